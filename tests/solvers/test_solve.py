"""One way to run every dynamics: records, solvers, statistics, compilation, precision."""

import time
import warnings

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.solvers.descent import descend_to, start_descent

# θ' = −θ³ from 1 is 1/√(1 + 2t): not linear, so no solver is exact on it.
CUBIC = cf.Problem(lambda theta: jnp.sum(theta**4) / 4)


def cubic(times):
    return 1 / np.sqrt(1 + 2 * np.asarray(times))


# --- records --------------------------------------------------------------------------------

RECORDS = {"dense": np.linspace(0, 10, 401), "uneven": 10 * np.linspace(0, 1, 30) ** 2, "one": [10]}


@pytest.mark.parametrize("records", RECORDS)
@pytest.mark.parametrize("solver", [diffrax.Tsit5(), diffrax.Dopri8()])
def test_every_record_is_as_accurate_as_a_step(solver, records):
    times = np.asarray(RECORDS[records], float)
    trajectory = cf.solve(
        cf.GradientFlow(CUBIC), jnp.ones(1), times, rtol=1e-8, atol=1e-10, solver=solver
    )
    np.testing.assert_array_equal(trajectory.times, times)
    errors = abs(trajectory.params[:, 0] - cubic(times))
    assert errors.max() < 1e-7
    # As accurate as a solver that steps onto one record alone, at the time where that is worst.
    worst = times[int(np.argmax(errors))]
    if worst > 0:
        alone = cf.solve(
            cf.GradientFlow(CUBIC), jnp.ones(1), [worst], rtol=1e-8, atol=1e-10, solver=solver
        )
        assert errors.max() < 10 * abs(alone.params[0, 0] - cubic(worst)) + 1e-9


def test_dense_output_costs_no_more_than_one_record():
    many, one = (
        cf.solve(cf.GradientFlow(CUBIC), jnp.ones(1), times, solver=diffrax.Tsit5())
        for times in (np.linspace(0, 10, 1001), [10.0])
    )
    assert many.statistics.gradient_evaluations <= one.statistics.gradient_evaluations
    assert many.statistics.accepted_steps < 100  # so most records lie between steps


def test_clipping_to_many_records_changes_nothing_beyond_the_tolerance():
    many, one = (
        cf.solve(
            cf.GradientFlow(CUBIC),
            jnp.ones(1),
            times,
            rtol=1e-10,
            atol=1e-12,
            solver=diffrax.Dopri8(),
        )
        for times in (np.linspace(0, 10, 201), [10.0])
    )
    assert abs(many.params[-1, 0] - one.params[0, 0]) < 1e-10
    assert many.statistics.accepted_steps >= 200  # one step at least to every record


def test_sparse_records_cost_few_steps_more():
    times = np.linspace(0, 10, 11)
    for solver in (diffrax.Tsit5(), diffrax.Dopri8()):
        some, one = (
            cf.solve(cf.GradientFlow(CUBIC), jnp.ones(1), t, solver=solver).statistics
            for t in (times, [10.0])
        )
        assert some.accepted_steps <= one.accepted_steps + len(times)


@pytest.mark.parametrize(
    "dynamics", [cf.GradientDescent(CUBIC, 0.5), cf.GradientFlow(CUBIC)], ids=["descent", "flow"]
)
def test_time_zero_is_the_params_given_and_need_not_be_asked_for(dynamics):
    start = cf.solve(dynamics, jnp.array([0.7]), [0])
    np.testing.assert_array_equal(start.params, [[0.7]])
    assert start.status == "completed"
    assert start.statistics.accepted_steps == 0
    later = cf.solve(dynamics, jnp.array([0.7]), [1.0, 2.0])
    both = cf.solve(dynamics, jnp.array([0.7]), [0.0, 1.0, 2.0])
    np.testing.assert_allclose(later.params, both.params[1:], rtol=1e-9)


def test_the_first_record_may_be_the_only_one_and_tiny():
    trajectory = cf.solve(cf.GradientFlow(CUBIC), jnp.ones(1), [1e-9, 1e-3])
    np.testing.assert_allclose(trajectory.params[:, 0], cubic([1e-9, 1e-3]), rtol=1e-13)


# --- solvers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "rtol", "name"),
    [
        (None, 1e-9, "Dopri8"),
        (None, 1e-6, "Tsit5"),
        (diffrax.Tsit5(), 1e-9, "Tsit5"),
        (diffrax.Dopri5(), 1e-9, "Dopri5"),
        (diffrax.Dopri8(), 1e-9, "Dopri8"),
        (diffrax.Bosh3(), 1e-7, "Bosh3"),
        (diffrax.Heun(), 1e-5, "Heun"),
        (diffrax.Euler(), 1e-4, "HalfSolver(Euler)"),
        (diffrax.Kvaerno5(), 1e-7, "Kvaerno5"),
        (diffrax.ReversibleHeun(), 1e-5, "ReversibleHeun"),
        (diffrax.ImplicitEuler(), 1e-4, "ImplicitEuler"),
    ],
)
def test_any_diffrax_solver_agrees_with_the_closed_form(solver, rtol, name):
    times = np.array([0.5, 1.0, 3.0])
    trajectory = cf.solve(cf.GradientFlow(CUBIC), jnp.ones(2), times, rtol=rtol, solver=solver)
    error = abs(trajectory.params - cubic(times)[:, None]).max()
    assert error < 20 * rtol
    assert trajectory.statistics.solver == name


# --- statistics -----------------------------------------------------------------------------


class Counted:
    """A field that counts how often it is really evaluated."""

    def __init__(self):
        self.calls = 0

    def field(self, theta):
        jax.debug.callback(self._count)
        return theta**3

    def _count(self):
        self.calls += 1

    def during(self, function):
        jax.effects_barrier()
        before = self.calls
        result = function()
        jax.effects_barrier()
        return self.calls - before, result


def at_the_door(counted, dynamics, params):
    """The evaluations that `solve` makes once, to check its input: outside of the statistics."""
    descent = cf.GradientDescent(dynamics.problem, 0.1)
    calls, _ = counted.during(lambda: cf.solve(descent, params, [0.0]))  # no step at all
    if isinstance(dynamics, cf.EquationOfMotion):
        # Its own door included, which `solve` passes only once.
        calls, _ = counted.during(lambda: dynamics.convergence(params, terms=dynamics.order))
    return calls


@pytest.mark.parametrize(
    ("make", "start", "options"),
    [
        (lambda p: cf.GradientDescent(p, 0.1), 1.0, {}),
        (cf.GradientFlow, 1.0, {"solver": diffrax.Tsit5()}),
        (cf.GradientFlow, 30.0, {"solver": diffrax.Tsit5()}),
        (cf.GradientFlow, 30.0, {"solver": diffrax.Dopri8()}),
        (cf.GradientFlow, 1.0, {"solver": diffrax.Bosh3(), "rtol": 1e-6}),
        (cf.GradientFlow, 1.0, {"solver": diffrax.Heun(), "rtol": 1e-5}),
        (cf.GradientFlow, 1.0, {"solver": diffrax.Euler(), "rtol": 1e-4}),
        (lambda p: cf.EquationOfMotion(p, 0.1, order=2, method="orbit"), 1.0, {}),
    ],
    ids="descent Tsit5 Tsit5-rejecting Dopri8-rejecting Bosh3 Heun Euler orbit".split(),
)
def test_gradient_evaluations_are_those_really_made(make, start, options, request):
    counted = Counted()
    dynamics = make(cf.Problem.from_gradient(counted.field))
    params = jnp.full(1, start)
    door = at_the_door(counted, dynamics, params)
    times = 0.1 * np.array([1, 2, 3, 7])
    calls, trajectory = counted.during(lambda: cf.solve(dynamics, params, times, **options))
    assert trajectory.statistics.gradient_evaluations == calls - door
    assert calls > door
    if "rejecting" in request.node.name:
        assert trajectory.statistics.rejected_steps > 0


def test_steps_of_descent_are_counted():
    statistics = cf.solve(cf.GradientDescent(CUBIC, 0.1), jnp.ones(1), [0.5, 2.0]).statistics
    assert statistics == cf.Statistics(20, 20, 0, "gradient descent")


def test_an_implicit_solver_is_not_counted():
    trajectory = cf.solve(
        cf.GradientFlow(CUBIC), jnp.ones(1), [1.0], solver=diffrax.Kvaerno3(), rtol=1e-4
    )
    assert trajectory.statistics.gradient_evaluations is None
    assert "uncounted gradient evaluations" in repr(trajectory)


# --- long runs ------------------------------------------------------------------------------


def test_a_million_steps_with_a_hundred_records_are_one_quick_call():
    learning_rate, decay = 1e-5, 0.3
    problem = cf.Problem(lambda theta: decay * jnp.sum(theta**2) / 2)
    steps = 10_000 * np.arange(1, 101)
    began = time.process_time()
    run = cf.solve(cf.GradientDescent(problem, learning_rate), jnp.ones(2), learning_rate * steps)
    assert time.process_time() - began < 20
    assert run.statistics.accepted_steps == 1_000_000
    exact = np.exp(steps * np.log1p(-learning_rate * decay))
    np.testing.assert_allclose(run.params, np.stack([exact, exact], axis=1), rtol=1e-9)


def test_between_records_nothing_is_kept():
    descent = cf.GradientDescent(CUBIC, 0.01)
    run = cf.solve(descent, jnp.ones(3), [0.0, 10.0])
    assert run.params.shape == (2, 3)
    # The number of steps is an argument of the one compiled program, so memory cannot depend on it.
    lowered = descend_to.lower(descent, start_descent(jnp.ones(3)), jnp.asarray(1, jnp.int32))
    sizes = lowered.compile().compiled.memory_analysis()
    assert sizes.temp_size_in_bytes + sizes.output_size_in_bytes < 4096


# --- compilation ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["descent", "flow", "motion", "orbit"])
def test_nothing_is_traced_again_when_only_numbers_change(kind):
    traces = []

    def loss(theta, data):
        traces.append(kind)
        return jnp.sum(data * theta**4)

    def run(learning_rate, weight_decay, scale, stop, rtol):
        problem = cf.Problem(loss, scale * np.ones(2), weight_decay)
        dynamics = {
            "descent": lambda: cf.GradientDescent(problem, learning_rate),
            "flow": lambda: cf.GradientFlow(problem),
            "motion": lambda: cf.EquationOfMotion(problem, learning_rate),
            "orbit": lambda: cf.EquationOfMotion(problem, learning_rate, 2, "orbit"),
        }[kind]()
        options = {} if kind == "descent" else {"rtol": rtol, "atol": rtol / 10}
        return cf.solve(dynamics, jnp.ones(2), learning_rate * np.array(stop), **options)

    first = run(0.01, 0.1, 1.0, [1, 5], 1e-8)
    once = len(traces)
    assert once > 0
    changed = [
        run(0.02, 0.1, 1.0, [1, 5], 1e-8),
        run(0.01, 0.2, 1.0, [1, 5], 1e-8),
        run(0.01, 0.1, 2.0, [1, 5], 1e-8),
        run(0.01, 0.1, 1.0, [2, 3, 9], 1e-8),
    ]
    run(0.01, 0.1, 1.0, [1, 5], 1e-9)
    run(np.float64(0.01), 0, 1.0, [1, 5], 1e-9)
    assert len(traces) == once
    # And the numbers do arrive, instead of being baked in.
    for other in changed:
        assert not np.array_equal(other.params[-1], first.params[-1])


def test_a_numpy_number_as_tolerance_is_no_reason_to_trace_again():
    traces = []

    def loss(theta):
        traces.append("loss")
        return jnp.sum(theta**4)

    flow = cf.GradientFlow(cf.Problem(loss))
    cf.solve(flow, jnp.ones(1), [0.1], rtol=1e-6, atol=1e-8)
    once = len(traces)
    cf.solve(flow, jnp.ones(1), [0.1], rtol=np.float64(1e-6), atol=np.float64(1e-8))
    assert len(traces) == once


# --- precision ------------------------------------------------------------------------------

DYNAMICS = {
    "descent": lambda: cf.GradientDescent(CUBIC, 0.125),
    "flow": lambda: cf.GradientFlow(CUBIC),
    "motion": lambda: cf.EquationOfMotion(CUBIC, 0.125, order=2),
    "orbit": lambda: cf.EquationOfMotion(CUBIC, 0.125, order=2, method="orbit"),
}


@pytest.mark.parametrize("name", DYNAMICS)
@pytest.mark.parametrize("x64", [True, False])
def test_single_precision_agrees_with_double_whether_or_not_x64_is_on(name, x64):
    times = 0.125 * np.array([0, 4, 16])
    double = cf.solve(DYNAMICS[name](), jnp.ones(2), times)
    with jax.enable_x64(x64):
        single = cf.solve(DYNAMICS[name](), jnp.ones(2, jnp.float32), times)
    assert single.params.dtype == jnp.float32
    # 2e-4 tells order 2 from gradient flow, which is 3e-2 off.
    np.testing.assert_allclose(single.params, double.params, rtol=2e-4)
    assert double.params.dtype == jnp.float64


def test_params_of_mixed_precision_keep_their_dtypes():
    problem = cf.Problem(lambda t: jnp.sum(t["a"] ** 2) / 2 + jnp.sum(t["b"] ** 2).astype(float))
    params = {"a": jnp.ones(1), "b": jnp.ones(1, jnp.float32)}
    run = cf.solve(cf.GradientDescent(problem, 0.1), params, [0.1])
    assert {name: leaf.dtype for name, leaf in run.params.items()} == {
        "a": jnp.float64,
        "b": jnp.float32,
    }
    np.testing.assert_allclose(run.params["a"], [[0.9]], rtol=1e-15)
    np.testing.assert_allclose(run.params["b"], [[0.8]], rtol=1e-6)


def test_single_precision_is_told_when_the_order_is_below_rounding():
    with jax.enable_x64(False):
        flow = cf.EquationOfMotion(CUBIC, 1e-3, order=5)
        with pytest.warns(UserWarning, match="single precision.*below rounding.*enable_x64"):
            cf.solve(flow, jnp.ones(1), [0.1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cf.solve(cf.EquationOfMotion(CUBIC, 1e-1, order=1), jnp.ones(1), [0.1])
            cf.solve(cf.GradientFlow(CUBIC), jnp.ones(1), [0.1])


def test_an_order_beyond_the_best_one_is_told():
    quadratic = cf.Problem(lambda theta: jnp.sum(theta**2) / 2)
    with pytest.warns(UserWarning, match="order 3 was asked for, but the series is not converging"):
        cf.solve(cf.EquationOfMotion(quadratic, 3.0, order=3), jnp.ones(1), [0.1])
    cf.solve(cf.EquationOfMotion(quadratic, 0.1, order=3), jnp.ones(1), [0.1])
    cf.solve(cf.EquationOfMotion(quadratic, 3.0, order=0), jnp.ones(1), [0.1])


# --- progress and shapes --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["descent", "flow"])
def test_progress_is_called_once_per_record(name):
    calls = []
    times = 0.125 * np.arange(4)
    cf.solve(DYNAMICS[name](), jnp.ones(1), times, progress=lambda *call: calls.append(call))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


class Model(eqx.Module):
    weights: jax.Array
    inner: dict


@pytest.mark.parametrize("name", ["descent", "flow"])
def test_params_come_back_in_their_own_structure_stacked(name):
    def loss(model):
        scalar, pair = model.inner["scalar"], model.inner["pair"]
        return (jnp.sum(model.weights**4) + scalar**4 + jnp.sum(pair[0] ** 4) + pair[1] ** 4) / 4

    params = Model(jnp.ones((2, 3)), {"scalar": jnp.array(1.0), "pair": [jnp.ones(4), 1.0]})
    problem = cf.Problem(loss)
    dynamics = cf.GradientFlow(problem) if name == "flow" else cf.GradientDescent(problem, 0.5)
    run = cf.solve(dynamics, params, [0.0, 0.5])
    assert isinstance(run.params, Model)
    assert jax.tree.structure(run.params) == jax.tree.structure(params)
    assert [leaf.shape for leaf in jax.tree.leaves(run.params)] == [(2, 2, 3), (2, 4), (2,), (2,)]
    end = cubic(0.5) if name == "flow" else 0.5
    for leaf in jax.tree.leaves(run.params):
        np.testing.assert_allclose(leaf[0], 1.0)
        np.testing.assert_allclose(leaf[1], end, rtol=1e-7)


def test_a_trajectory_says_what_it_is():
    run = cf.solve(cf.GradientDescent(CUBIC, 0.1), jnp.ones(1), [0.0, 0.5])
    assert repr(run) == (
        "Trajectory(2 records, t = 0 … 0.5; completed; gradient descent, 5 gradient evaluations, "
        "5 steps accepted, 0 rejected)"
    )


@pytest.mark.parametrize("learning_rate", [0.1, 0.01, 3e-4])
def test_descent_without_double_precision_finds_its_own_times(learning_rate):
    with jax.enable_x64(False):
        descent = cf.GradientDescent(CUBIC, learning_rate)
        trajectory = cf.solve(descent, jnp.ones(1), learning_rate * np.arange(0, 1001, 500))
    assert trajectory.statistics.accepted_steps == 1000


def test_a_learning_rate_in_single_precision_finds_its_times():
    descent = cf.GradientDescent(CUBIC, jnp.float32(0.1))
    assert cf.solve(descent, jnp.ones(1), [10.0]).statistics.accepted_steps == 100


def test_a_series_that_diverges_at_the_start_is_told():
    flow = cf.EquationOfMotion(cf.Problem(lambda theta: jnp.sum(theta**4) / 4), 0.3, order=4)
    with pytest.warns(UserWarning, match="grow from the first on"):
        cf.solve(flow, jnp.array([1.0, 2.0]), [0.1], throw=False)


def test_a_flow_is_compiled_once_whatever_the_number_of_records():
    def traces_of(times):
        traces = []

        def loss(theta):
            traces.append(theta)
            return jnp.sum(theta**4) / 4

        cf.solve(cf.GradientFlow(cf.Problem(loss)), jnp.ones(2), times)
        return len(traces)

    assert traces_of([0.1, 0.2, 0.3]) == traces_of([0.1])


def test_one_record_is_shaped_as_the_params_were():
    descent = cf.GradientDescent(cf.Problem(lambda p: p["a"] ** 2 + jnp.sum(p["b"])), 0.1)
    params = {"a": jnp.array(1.0), "b": jnp.zeros(2)}
    trajectory = cf.solve(descent, params, [0.1, 0.2])
    first, last = trajectory.at(0), trajectory.at(-1)
    assert (float(first["a"]), float(last["a"])) == pytest.approx((0.8, 0.64))
    np.testing.assert_allclose(last["b"], [-0.2, -0.2])
    with pytest.raises(IndexError, match=r"from 0 to 1, or from -1 down to -2 .*, got 2"):
        trajectory.at(2)
