"""Runs that cannot be completed: noticed at once, told with a remedy, records before them kept."""

import math

import diffrax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf

QUADRATIC = cf.Problem(lambda theta: jnp.sum(theta**2) / 2)
# θ' = 4θ³ from θ(0) = 1 is 1/√(1 − 8t): it blows up at t = 1/8.
EXPLOSIVE = cf.Problem(lambda theta: -jnp.sum(theta**4))
BLOW_UP = 1 / 8
# Descent at η = 1000 on the quadratic multiplies by −999: soon it is 10²⁰ times as large.
LEARNING_RATE = 1000.0
LAST_WITHIN = math.floor(math.log(1e20 * (1 + 2**0.5) / 2**0.5) / math.log(999))


# --- descent --------------------------------------------------------------------------------


def exploding_descent(**options):
    # A billion steps would take minutes, were they not given up at the first beyond all bounds.
    steps = np.array([0, 3, LAST_WITHIN, 10**9])
    descent = cf.GradientDescent(QUADRATIC, LEARNING_RATE)
    return cf.solve(descent, jnp.ones(2), LEARNING_RATE * steps, **options)


def test_exploding_descent_stops_at_the_first_step_beyond_all_bounds():
    trajectory = exploding_descent(throw=False)
    assert trajectory.status == cf.Status.DIVERGED == "diverged"
    assert trajectory.statistics.accepted_steps == LAST_WITHIN + 1
    np.testing.assert_array_equal(
        trajectory.times, LEARNING_RATE * np.array([0.0, 3.0, LAST_WITHIN])
    )
    exact = (-999.0) ** np.array([0, 3, LAST_WITHIN])
    np.testing.assert_allclose(trajectory.params[:, 0], exact, rtol=1e-12)


def test_exploding_descent_raises_with_its_trajectory_and_a_remedy():
    with pytest.raises(cf.SolveError) as caught:
        exploding_descent()
    message = str(caught.value)
    assert message.startswith(f"diverged at step {LAST_WITHIN + 1}: ")
    assert "smaller learning rate" in message
    assert "2/sharpness" in message
    assert len(caught.value.trajectory.times) == 3
    assert caught.value.trajectory.params.shape == (3, 2)


def test_descent_that_leaves_the_domain_of_its_loss_is_told():
    descent = cf.GradientDescent(cf.Problem(lambda theta: jnp.sum(jnp.sqrt(theta))), 1.0)
    trajectory = cf.solve(descent, jnp.full(1, 1.0), [1.0, 1000.0], throw=False)
    # 1, then 1 − 1/2, then 1/2 − 1/√2 < 0, where the slope of the root is no number.
    assert trajectory.status == "non-finite values"
    assert trajectory.statistics.accepted_steps == 3
    np.testing.assert_allclose(trajectory.params[:, 0], [0.5])


def test_nothing_recorded_is_an_empty_trajectory():
    problem = cf.Problem(lambda theta: jnp.sum(theta["a"] ** 2) / 2)
    descent = cf.GradientDescent(problem, LEARNING_RATE)
    trajectory = cf.solve(descent, {"a": jnp.ones((2, 3))}, [1e6], throw=False)
    assert trajectory.status == "diverged"
    assert trajectory.params["a"].shape == (0, 2, 3)
    assert trajectory.times.shape == (0,)


def test_descent_keeps_to_its_number_of_steps():
    descent = cf.GradientDescent(QUADRATIC, 0.5)
    times = 0.5 * np.array([1, 10, 11, 12])
    trajectory = cf.solve(descent, jnp.ones(1), times, max_steps=10, throw=False)
    assert trajectory.status == "too many steps"
    assert trajectory.statistics.accepted_steps <= 10
    np.testing.assert_allclose(trajectory.params[:, 0], 0.5 ** np.array([1, 10]), rtol=1e-15)
    with pytest.raises(cf.SolveError, match=r"too many steps .*`max_steps`"):
        cf.solve(descent, jnp.ones(1), times, max_steps=10)
    assert cf.solve(descent, jnp.ones(1), times, max_steps=12).status == "completed"


# --- flows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [diffrax.Tsit5(), diffrax.Dopri8()])
def test_a_flow_that_blows_up_in_finite_time_stops_there(solver):
    times = np.array([0.0, 0.05, 0.1, 0.12, 0.2, 1.0])
    flow = cf.GradientFlow(EXPLOSIVE)
    with pytest.raises(cf.SolveError) as caught:
        cf.solve(flow, jnp.ones(1), times, rtol=1e-9, solver=solver)
    trajectory = caught.value.trajectory
    assert trajectory.status in ("step vanished", "non-finite values")
    reached = float(str(caught.value).split("at time ")[1].split(":")[0])
    assert reached == pytest.approx(BLOW_UP, rel=1e-4)
    np.testing.assert_array_equal(trajectory.times, times[:4])
    exact = 1 / np.sqrt(1 - times[:4] / BLOW_UP)
    np.testing.assert_allclose(trajectory.params[:, 0], exact, rtol=1e-6)
    attempts = trajectory.statistics.accepted_steps + trajectory.statistics.rejected_steps
    assert attempts < 2000
    assert "the records before are kept" in str(caught.value)


@pytest.mark.parametrize("solver", [diffrax.Tsit5(), diffrax.Dopri8()])
def test_a_field_that_is_not_defined_beyond_a_wall_stops_there(solver):
    # θ' = 1 up to the wall at θ = 1, reached at t = 1.
    wall = cf.Problem.from_gradient(lambda theta: jnp.where(theta < 1, -1.0, jnp.nan))
    flow = cf.GradientFlow(wall)
    trajectory = cf.solve(flow, jnp.zeros(1), [0.25, 0.5, 0.9, 2.0], solver=solver, throw=False)
    assert trajectory.status == "non-finite values"
    np.testing.assert_allclose(trajectory.params[:, 0], [0.25, 0.5, 0.9], rtol=1e-12)
    attempts = trajectory.statistics.accepted_steps + trajectory.statistics.rejected_steps
    assert attempts < 200


def test_a_flow_keeps_to_its_number_of_steps():
    flow = cf.GradientFlow(QUADRATIC)
    options = {"rtol": 1e-10, "solver": diffrax.Dopri8()}
    times = np.linspace(0, 20, 41)
    enough = cf.solve(flow, jnp.ones(1), times, **options)
    needed = enough.statistics.accepted_steps + enough.statistics.rejected_steps
    with pytest.raises(
        cf.SolveError, match=r"too many steps at time .*raise `max_steps`"
    ) as caught:
        cf.solve(flow, jnp.ones(1), times, max_steps=needed // 2, **options)
    trajectory = caught.value.trajectory
    statistics = trajectory.statistics
    assert statistics.accepted_steps + statistics.rejected_steps == needed // 2
    assert 0 < len(trajectory.times) < len(times)
    np.testing.assert_array_equal(trajectory.params, enough.params[: len(trajectory.times)])
    assert cf.solve(flow, jnp.ones(1), times, max_steps=needed, **options).status == "completed"


# --- the keyboard ---------------------------------------------------------------------------


def interrupting(after):
    def progress(done, total):
        if done == after:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize(
    "dynamics", [cf.GradientDescent(QUADRATIC, 0.5), cf.GradientFlow(QUADRATIC)]
)
def test_an_interrupted_run_hands_over_what_it_has(dynamics):
    times = 0.5 * np.arange(6)
    with pytest.raises(cf.SolveInterrupted, match=r"interrupted at .*records before") as caught:
        cf.solve(dynamics, jnp.ones(1), times, progress=interrupting(3))
    whole = cf.solve(dynamics, jnp.ones(1), times)
    trajectory = caught.value.trajectory
    assert isinstance(caught.value, KeyboardInterrupt)
    assert trajectory.status == "interrupted"
    np.testing.assert_array_equal(trajectory.times, times[:3])
    np.testing.assert_allclose(trajectory.params, whole.params[:3], rtol=1e-7)


def test_any_other_error_of_the_progress_callback_comes_through():
    def progress(done, total):
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        cf.solve(cf.GradientDescent(QUADRATIC, 0.5), jnp.ones(1), [0.5], progress=progress)


def test_every_status_but_completed_has_a_remedy():
    for status in cf.Status:
        assert bool(status.remedy) == (status != cf.Status.COMPLETED)


def test_a_velocity_that_is_not_a_number_ends_the_run_at_once():
    # The gradient of θ^1.5 is finite at zero, its derivative along itself is ∞ · 0.
    problem = cf.Problem(lambda theta: jnp.sum(theta**1.5))
    flow = cf.EquationOfMotion(problem, 0.01, order=1)
    with pytest.warns(UserWarning, match="not converging"):
        trajectory = cf.solve(flow, jnp.array([0.0, 1.0]), [0.0, 0.5], throw=False)
    assert trajectory.status == "non-finite values"
    assert len(trajectory.times) == 1
    assert trajectory.statistics.rejected_steps < 5


def test_slow_divergence_is_noticed_before_it_overflows():
    descent = cf.GradientDescent(cf.Problem(lambda theta: jnp.sum(theta**2) / 2), 2.01)
    times = 2.01 * np.array([1000, 60000])
    trajectory = cf.solve(descent, jnp.ones(1), times, throw=False)
    assert trajectory.status == "diverged"
    assert len(trajectory.times) == 1
    assert trajectory.statistics.accepted_steps == pytest.approx(np.log(2e20) / np.log(1.01), abs=2)
    flow = cf.GradientFlow(cf.Problem(lambda theta: -jnp.sum(theta**2) / 2))
    trajectory = cf.solve(flow, jnp.ones(1), [1.0, 1000.0], throw=False)
    assert trajectory.status == "diverged"
    assert len(trajectory.times) == 1


def test_an_interruption_is_raised_even_where_failures_are_values():
    flow = cf.GradientFlow(cf.Problem(lambda theta: jnp.sum(theta**2) / 2))
    with pytest.raises(cf.SolveInterrupted):
        cf.solve(flow, jnp.ones(1), [0.5, 1.0], progress=interrupting(1), throw=False)
