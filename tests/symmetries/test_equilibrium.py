"""Runs of descent: where the fixed point is real, and the average that always holds."""

from functools import cache
from math import acos, cos, sin, tan

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from users import import_as_users_do

(as_users,) = import_as_users_do("counterflow")
PLANE = cf.Scale("")

# --- in the plane, where it is reached ------------------------------------------------------

RATE, DECAY = 0.5, 0.5


def turning(point):
    """The field `Jθ/‖θ‖²`, whose `c` is 1."""
    return jnp.stack([-point[1], point[0]]) / jnp.sum(point**2)


ROTATION = cf.Problem.from_gradient(turning, weight_decay=DECAY)
START = jnp.array([1.0, 0.0])


@cache
def rotation():
    settled = cf.equilibrium(ROTATION, PLANE, START, RATE, steps=200)
    return cf.equilibrium(ROTATION, PLANE, settled.params, RATE, steps=60, windows=3)


def test_a_rotating_field_reaches_the_exact_fixed_point():
    run = rotation()
    radius, angle = cf.equilibrium_radius(RATE, DECAY, 1.0), cf.equilibrium_angle(RATE, DECAY)
    np.testing.assert_allclose(run.radius_mean, radius.exact, rtol=1e-12)
    np.testing.assert_allclose(run.angle, angle.exact, rtol=1e-12)
    np.testing.assert_allclose(run.gradient_mean, 1, rtol=1e-12)
    left, right = run.averaged_law
    np.testing.assert_allclose(left, right, rtol=1e-12)
    for quantity in (run.radius_fluctuation, run.gradient_fluctuation):
        assert quantity < 1e-7
    for quantity in (run.radius_drift, run.gradient_drift, abs(run.drift)):
        assert quantity < 1e-12
    # The paper's formulas are some percent away.
    assert abs(radius.equation_of_motion / radius.exact - 1) > 0.05
    assert abs(angle.leading / angle.exact - 1) > 0.02


def test_the_flow_of_order_1_settles_at_the_papers_formula():
    flow = cf.EquationOfMotion(ROTATION, RATE, 1)
    end = cf.solve(flow, START, [40.0], rtol=1e-10).params[0]
    expected = cf.equilibrium_radius(RATE, DECAY, 1.0).equation_of_motion
    np.testing.assert_allclose(jnp.sqrt(end @ end), expected, rtol=1e-8)
    nothing = cf.solve(cf.GradientFlow(ROTATION), START, [2.0], rtol=1e-10).params[0]
    np.testing.assert_allclose(jnp.sqrt(nothing @ nothing), np.exp(-DECAY * 2.0), rtol=1e-8)


def test_a_two_cycle():
    """`f = −cos(3φ)/3`: descent jumps across a valley and back, φ = ±Δ_*/2."""

    def three_valleys(point):
        x, y = point / jnp.sqrt(jnp.sum(point**2))
        return -(x**3 - 3 * x * y**2) / 3

    problem = cf.Problem(three_valleys, weight_decay=DECAY)
    angle = acos(1 - RATE * DECAY)
    c = abs(sin(1.5 * angle))
    radius = cf.equilibrium_radius(RATE, DECAY, c).exact
    half = angle / 2 + 0.02
    start = 1.05 * radius * jnp.array([cos(half), sin(half)])
    settled = cf.equilibrium(problem, PLANE, start, RATE, steps=2000, windows=1)
    run = cf.equilibrium(problem, PLANE, settled.params, RATE, steps=100, windows=1)
    np.testing.assert_allclose(run.radius_mean, radius, rtol=1e-12)
    np.testing.assert_allclose(run.angle_mean, angle, rtol=1e-12)
    np.testing.assert_allclose(run.gradient_mean, c, rtol=1e-12)
    x, y = run.params
    np.testing.assert_allclose(abs(float(y) / float(x)), tan(angle / 2), rtol=1e-12)


# --- any run --------------------------------------------------------------------------------


def coupled(params):
    """Two scale-invariant units that share a weight which is not."""
    units = params["units"] / jnp.sqrt(jnp.sum(params["units"] ** 2, axis=1, keepdims=True))
    return jnp.sum(jnp.sin(3 * units[:, 0] + params["rest"]) * units[:, 1]) + params["rest"] ** 2


COUPLED = cf.Problem(coupled, weight_decay=0.4)
PARAMS = {"units": jnp.array([[0.5, 1.0], [-0.8, 0.3]]), "rest": jnp.array(0.7)}
UNITS, COUPLED_RATE, STEPS = cf.Scale("units", axis=0), 0.3, 25


@cache
def short_run():
    return cf.equilibrium(COUPLED, UNITS, PARAMS, COUPLED_RATE, STEPS, windows=4)


@cache
def stored():
    """Every quantity at every step, from stored params by plain NumPy."""
    step = jax.jit(lambda params: (COUPLED.loss_gradient(params), COUPLED.gradient(params)))
    rows, params = [], PARAMS
    for _ in range(STEPS):
        bare, gradient = step(params)
        after = jax.tree.map(lambda p, g: p - COUPLED_RATE * g, params, gradient)
        here, there, force = (np.asarray(tree["units"]) for tree in (params, after, bare))
        radius = np.sqrt(np.sum(here**2, 1))
        cosine = np.sum(here * there, 1) / (radius * np.sqrt(np.sum(there**2, 1)))
        size = np.sqrt(np.sum(force**2, 1))
        rows.append([radius, radius * size, size, np.arccos(cosine)])
        params = after
    return np.array(rows), params


def test_windows_are_those_of_a_stored_run():
    run, (rows, end) = short_run(), stored()
    np.testing.assert_array_equal(run.steps, [6, 12, 19, 25])
    windows = np.split(rows, run.steps[:-1])
    radius, c, force, angle = ([window[:, column] for window in windows] for column in range(4))
    expected = {
        "radius_mean": [np.mean(values, 0) for values in radius],
        "radius_deviation": [np.std(values, 0) for values in radius],
        "gradient_mean": [np.mean(values, 0) for values in c],
        "gradient_deviation": [np.std(values, 0) for values in c],
        "radius_squared": [np.mean(values**2, 0) for values in radius],
        "force_squared": [np.mean(values**2, 0) for values in force],
        "angle_mean": [np.mean(values, 0) for values in angle],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(run, name), values, rtol=1e-9, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(run.params["units"], end["units"], rtol=1e-12)
    np.testing.assert_allclose(run.angle, np.mean(rows[:, 3], 0), rtol=1e-9)
    change = np.sum(np.asarray(PARAMS["units"]) ** 2 - np.asarray(end["units"]) ** 2, 1)
    np.testing.assert_allclose(run.drift, change / (STEPS * COUPLED_RATE), rtol=1e-11)


def test_fluctuation_and_drift_are_averages_over_windows():
    run = short_run()
    np.testing.assert_allclose(
        run.radius_fluctuation, np.mean(run.radius_deviation / run.radius_mean, 0), rtol=1e-14
    )
    np.testing.assert_allclose(
        run.gradient_fluctuation, np.mean(run.gradient_deviation / run.gradient_mean, 0), rtol=1e-14
    )
    for drift, mean in (
        (run.radius_drift, run.radius_mean),
        (run.gradient_drift, run.gradient_mean),
    ):
        changes = [abs(mean[i + 1] - mean[i]) / mean[i + 1] for i in range(3)]
        np.testing.assert_allclose(drift, np.mean(changes, 0), rtol=1e-14)


def test_the_averaged_law_is_exact_with_the_drift():
    run = short_run()
    left, right = run.averaged_law
    np.testing.assert_allclose(left, right + run.drift, rtol=1e-12)
    # Neither side is idle, and the drift matters in so short a run.
    assert np.min(right) > 1e-2 * np.max(left)
    assert np.max(np.abs(run.drift)) > 1e-3 * np.max(left)


def test_windows_of_one_intrinsic_time_by_default():
    run = cf.equilibrium(COUPLED, UNITS, PARAMS, COUPLED_RATE, 50)  # 50 · 0.3 · 0.4 = 6
    assert len(run.steps) == 6
    assert run.steps[-1] == 50
    whole = cf.equilibrium(COUPLED, cf.Scale("units"), PARAMS, COUPLED_RATE, 3, windows=10)
    np.testing.assert_array_equal(whole.steps, [1, 2, 3])
    assert whole.radius_mean.shape == (3,)


# --- how runs end ---------------------------------------------------------------------------


def test_an_interrupted_run_keeps_what_was_measured():
    calls = []

    def interrupt(done, to_do):
        calls.append((done, to_do))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(cf.RunInterrupted, match="interrupted") as caught:
        cf.equilibrium(COUPLED, UNITS, PARAMS, COUPLED_RATE, STEPS, windows=4, progress=interrupt)
    result, whole = caught.value.result, short_run()
    assert calls == [(1, 4), (2, 4)]
    assert result.status == cf.Status.INTERRUPTED
    np.testing.assert_array_equal(result.steps, [6, 12])
    np.testing.assert_array_equal(result.radius_mean, whole.radius_mean[:2])
    left, right = result.averaged_law
    np.testing.assert_allclose(left, right + result.drift, rtol=1e-12)


def test_a_run_that_diverges_says_so():
    broken = cf.Problem.from_gradient(
        lambda p: jnp.where(p @ p < 1.0, jnp.nan, 0.0) * p, weight_decay=0.5
    )
    run = cf.equilibrium(broken, PLANE, jnp.array([3.0, 0.0]), 0.5, 20, windows=10)
    assert run.status == cf.Status.NON_FINITE
    # (1 − ηλ)^k · 3 falls below 1 at the fourth step, and the fifth is no number.
    np.testing.assert_array_equal(run.steps, [2, 4])
    np.testing.assert_allclose(run.params, [3 * 0.75**4, 0], rtol=1e-14)


def test_repr():
    text = repr(short_run())
    assert text.startswith("Equilibrium after 25 steps, 4 windows; completed\n  r        fluctuat")
    left, right = short_run().averaged_law
    assert f"averaged law  {left.min():.4g} … {left.max():.4g} against {right.min():.4g}" in text
    assert f"at equilibrium {acos(1 - 0.12):.3g}" in text


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"steps": 0}, ValueError, "`steps` must be from 1 to"),
        ({"windows": 0}, ValueError, "`windows` must be from 1 to"),
        ({"windows": 2.0}, TypeError, "`windows` must be an integer, got 2.0"),
        ({"progress": "bar"}, TypeError, "`progress` must be a function"),
        ({"learning_rate": -1.0}, ValueError, "`learning_rate` must be a positive"),
        ({"learning_rate": 5.0}, ValueError, "above 0 and below 2, got 2.5: without weight decay"),
        ({"scale": "units"}, TypeError, "`scale` must be a `Scale`, got 'units'"),
    ],
)
def test_bad_input(options, error, text):
    arguments = {
        "problem": as_users.Problem.from_gradient(turning, weight_decay=DECAY),
        "scale": as_users.Scale(""),
        "params": START,
        "learning_rate": RATE,
        "steps": 10,
    }
    with pytest.raises(error, match=text):
        as_users.equilibrium(**(arguments | options))


def test_without_weight_decay_there_is_no_equilibrium():
    free = cf.Problem.from_gradient(turning)
    with pytest.raises(ValueError, match="got 0: without weight decay the norm only grows"):
        cf.equilibrium(free, PLANE, START, RATE, 10)
    with pytest.raises(ValueError, match="above 0 and below 2, got 0"):
        cf.equilibrium_radius(RATE, 0.0, 1.0)
    with pytest.raises(ValueError, match="above 0 and below 2, got 2"):
        cf.equilibrium_angle(2.0, 1.0)
    with pytest.raises(ValueError, match="`gradient_norm` must be at least 0, got -1"):
        cf.equilibrium_radius(RATE, DECAY, -1.0)


def test_only_invariant_layers():
    with pytest.raises(ValueError, match=r"Scale\('rest'\) must leave the loss unchanged"):
        cf.equilibrium(COUPLED, cf.Scale("rest"), PARAMS, COUPLED_RATE, 10)


def test_a_force_far_below_weight_decay_is_seen():
    problem = cf.Problem(lambda p: 1e-12 * p[0] / jnp.sqrt(p @ p), weight_decay=1.0)
    params = jnp.array([0.0, 500.0])
    found = cf.equilibrium(problem, cf.Scale(""), params, 1e-3, 1)
    np.testing.assert_allclose(found.force_squared, [(1e-12 / 500) ** 2], rtol=1e-6)
