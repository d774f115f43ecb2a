"""Comparisons against closed forms, against `solve` and `predict_error`, and what goes wrong.

Compiling takes nearly all of the time. So almost every test compares flows of one and the same
loss, whose data make it a valley (with everything in closed form), a hill, or a quartic.
"""

import gc
import warnings

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo

ORDERS = (0, 1, 2)
LEARNING_RATE, STEPS, RESTART = 0.1, 40, 7
ASKED = [0, 1, 2, 5, 8, 20, 40]
RECORDS = np.array([0, 1, 2, 5, 7, 8, 20, 40])  # the restart among them
KINDS = ("local", "propagated")
DOPRI8 = diffrax.Dopri8()  # the default for few records, and always the same to compile once

ROTATION, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))
START = jnp.array([1.0, -0.5, 0.7])


def loss(theta, data):
    matrix, quartic = data
    return theta @ matrix @ theta / 2 + quartic * jnp.sum(theta**4) / 4


def problem(curvatures, quartic=0.0, weight_decay=0.0, dtype=float):
    matrix = ROTATION @ np.diag(curvatures) @ ROTATION.T
    return cf.Problem(loss, (jnp.asarray(matrix, dtype), jnp.asarray(quartic, dtype)), weight_decay)


WEIGHT_DECAY = 0.25
CURVATURES = np.array([0.2, 0.8, 1.5])
VALLEY = problem(CURVATURES, weight_decay=WEIGHT_DECAY)
CURVED = problem(CURVATURES, quartic=0.3, weight_decay=WEIGHT_DECAY)


class ClosedForm:
    """Descent, the flow of one order and its predicted errors in the valley, vector by vector.

    With `m` the eigenvalues of `A + λI`, everything is a function of `m` times the start:
    descent is `(1 − ηm)^k`, the flow `exp(−Lt)` with `L = Σ_{j ≤ γ+1} η^{j−1} m^j / j`, and what is
    left out of the velocity, `s = η^{γ+1} m^{γ+2} / (γ + 2)`, drives the predictions.
    """

    def __init__(self, order, learning_rate, steps):
        self.learning_rate, self.steps = learning_rate, np.asarray(steps)[:, None]
        self.m = CURVATURES + WEIGHT_DECAY
        self.start = ROTATION.T @ np.asarray(START)
        powers = range(1, order + 2)
        self.rate = sum(learning_rate ** (j - 1) * self.m**j / j for j in powers)
        self.source = learning_rate ** (order + 1) * self.m ** (order + 2) / (order + 2)

    @property
    def descent(self):
        return (1 - self.learning_rate * self.m) ** self.steps * self.start

    @property
    def flow(self):
        return np.exp(-self.rate * self.times) * self.start

    @property
    def error(self):
        return self.flow - self.descent

    @property
    def times(self):
        return self.learning_rate * self.steps

    def predicted(self, kind, start=0):
        """The prediction that starts from the error at the record with that index."""
        times = self.times - self.times[start]
        if kind == "local":
            drift = -np.expm1(-self.rate * times) / self.rate
            remains = 1
        else:
            gap = self.rate - self.m
            nonzero = np.where(gap > 0, gap, 1)
            drift = np.exp(-self.m * times) * np.where(
                gap > 0, -np.expm1(-gap * times) / nonzero, times
            )
            remains = np.exp(-self.m * times)
        return remains * self.error[start] + self.source * drift * self.flow[start]


def norms(vectors):
    return np.linalg.norm(vectors, axis=1)


def mismatches(predicted, measured):
    return norms(predicted - measured)[1:] / norms(measured)[1:]


@pytest.fixture(scope="module")
def comparison():
    return cf.compare(
        VALLEY, START, LEARNING_RATE, STEPS, ORDERS, records=ASKED, restart=RESTART, solver=DOPRI8
    )


@pytest.fixture(scope="module")
def closed_forms():
    return [ClosedForm(order, LEARNING_RATE, RECORDS) for order in ORDERS]


# --- what is measured -----------------------------------------------------------------------


def test_errors_and_losses_agree_with_closed_forms(comparison, closed_forms):
    assert comparison.status == "completed"
    assert comparison.orders == ORDERS
    np.testing.assert_array_equal(comparison.steps, RECORDS)
    np.testing.assert_allclose(comparison.times, LEARNING_RATE * RECORDS)
    descent = closed_forms[0].descent
    np.testing.assert_allclose(
        comparison.descent_loss, descent**2 @ CURVATURES / 2, rtol=1e-12
    )  # without weight decay
    for i, exact in enumerate(closed_forms):
        error = norms(exact.error)
        np.testing.assert_allclose(comparison.error[i], error, rtol=1e-6, atol=1e-15)
        np.testing.assert_allclose(
            comparison.relative_error[i], error / norms(descent), rtol=1e-6, atol=1e-15
        )
        np.testing.assert_allclose(comparison.flow_loss[i], exact.flow**2 @ CURVATURES / 2)
    assert not np.array_equal(comparison.flow_loss[0], comparison.flow_loss[1])


def test_predictions_agree_with_closed_forms(comparison, closed_forms):
    for kind in KINDS:
        found = comparison.predictions[kind]
        for i, exact in enumerate(closed_forms):
            predicted = exact.predicted(kind)
            np.testing.assert_allclose(found.prediction[i], norms(predicted), rtol=1e-5)
            expected = mismatches(predicted, exact.error)
            np.testing.assert_allclose(found.mismatch[i, 1:], expected, rtol=1e-3)


def test_a_prediction_expects_the_mismatch_that_it_has(comparison):
    for predicted in comparison.predictions.values():
        some = predicted.mismatch[0] > 0  # not where it starts, nor before
        assert some.sum() >= 3
        np.testing.assert_allclose(
            predicted.uncertainty[:, some], predicted.mismatch[:, some], rtol=0.2
        )


@pytest.fixture(scope="module")
def curved():
    return cf.compare(
        CURVED, START, LEARNING_RATE, STEPS, ORDERS, records=ASKED, restart=RESTART, solver=DOPRI8
    )


def solved(problem, order, learning_rate=LEARNING_RATE, steps=RECORDS, params=START, **options):
    """Descent and the flow of one order from `solve`, at the times of the records."""
    times = learning_rate * np.asarray(steps)
    descent = cf.solve(cf.GradientDescent(problem, learning_rate), params, times)
    flow = cf.EquationOfMotion(problem, learning_rate, order, **options)
    tight = {"rtol": 1e-13, "atol": 1e-15, "solver": DOPRI8}
    return np.asarray(descent.params), np.asarray(cf.solve(flow, params, times, **tight).params)


@pytest.mark.parametrize("order", ORDERS)
def test_a_nonlinear_problem_agrees_with_solve_and_predict_error(curved, order):
    descent, flow = solved(CURVED, order)
    error = flow - descent
    i = curved.orders.index(order)
    np.testing.assert_allclose(curved.error[i], norms(error), rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(
        curved.relative_error[i], norms(error) / norms(descent), rtol=1e-6, atol=1e-15
    )
    for found, params in ((curved.descent_loss, descent), (curved.flow_loss[i], flow)):
        expected = [float(CURVED.loss(jnp.asarray(point))) for point in params]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    alone = cf.predict_error(CURVED, START, LEARNING_RATE, STEPS, order, records=RECORDS)
    at = list(RECORDS).index(RESTART)
    rest = cf.predict_error(
        CURVED,
        jnp.asarray(flow[at]),
        LEARNING_RATE,
        STEPS - RESTART,
        order,
        records=RECORDS[at:] - RESTART,
        initial_error=jnp.asarray(error[at]),
    )
    for kind in KINDS:
        found, vectors = curved.predictions[kind], np.asarray(getattr(alone, kind).vectors)
        np.testing.assert_allclose(found.prediction[i], norms(vectors), rtol=1e-5)
        np.testing.assert_allclose(found.mismatch[i, 1:], mismatches(vectors, error), rtol=1e-3)
        np.testing.assert_allclose(
            found.uncertainty[i], getattr(alone, kind).uncertainty, rtol=1e-3
        )
        found, again = curved.predictions[f"restarted_{kind}"], getattr(rest, kind)
        assert np.isnan(found.prediction[i, :at]).all()
        np.testing.assert_allclose(found.prediction[i, at:], norms(again.vectors), rtol=1e-5)
        np.testing.assert_allclose(
            found.mismatch[i, at + 1 :], mismatches(again.vectors, error[at:]), rtol=1e-3
        )
        np.testing.assert_allclose(found.uncertainty[i, at:], again.uncertainty, rtol=1e-3)
        if kind == "local":  # a sum: what it is from there on is what it has grown by
            np.testing.assert_allclose(
                norms(error[at] + vectors[at:] - vectors[at]), norms(again.vectors), rtol=1e-5
            )


# --- restart --------------------------------------------------------------------------------


def test_restarted_predictions_go_on_from_the_measured_error(comparison, closed_forms):
    assert comparison.restart == RESTART
    at = list(comparison.steps).index(RESTART)
    for kind in KINDS:
        found = comparison.predictions[f"restarted_{kind}"]
        for part in (found.prediction, found.mismatch, found.uncertainty):
            assert np.isnan(part[:, :at]).all()
            assert np.isfinite(part[:, at + 1 :]).all()
        for i, exact in enumerate(closed_forms):
            predicted = exact.predicted(kind, at)
            np.testing.assert_allclose(found.prediction[i, at:], norms(predicted[at:]), rtol=1e-5)
            expected = mismatches(predicted[at:], exact.error[at:])
            np.testing.assert_allclose(found.mismatch[i, at + 1 :], expected, rtol=1e-3)


@pytest.mark.parametrize("problem", [VALLEY, CURVED], ids=["valley", "curved"])
def test_restarting_makes_a_prediction_better_at_a_small_learning_rate(problem):
    run = cf.compare(
        problem, START, 0.02, STEPS, ORDERS, records=ASKED, restart=RESTART, solver=DOPRI8
    )
    after = run.steps > RESTART
    restarted = {kind: run.predictions[f"restarted_{kind}"].mismatch[:, after] for kind in KINDS}
    for kind in KINDS:
        assert np.all(restarted[kind] < run.predictions[kind].mismatch[:, after])
    # One step after the restart there is little that can have gone wrong: for the local prediction,
    # which does not know that errors decay, a few percent.
    assert run.steps[after][0] == RESTART + 1
    assert np.all(restarted["propagated"][:, 0] < 0.005)
    assert np.all(restarted["local"][:, 0] < 0.05)
    following = run.error[:, after][:, 0]
    predicted = run.predictions["restarted_propagated"].prediction[:, after][:, 0]
    np.testing.assert_allclose(predicted, following, rtol=0.005)


def test_without_predictions_there_are_none(comparison):
    run = cf.compare(
        VALLEY, START, LEARNING_RATE, STEPS, ORDERS, records=RECORDS, predict=False, solver=DOPRI8
    )
    assert run.predictions == {}
    assert run.restart is None
    np.testing.assert_array_equal(run.error, comparison.error)


# --- the solver's own error -----------------------------------------------------------------


def test_the_solver_error_is_measured_where_it_hides_the_discretization_error():
    # At this learning rate the flow of order 2 is so close to descent that nearly all of the error
    # is the solver's.
    learning_rate, steps = 0.002, 2000
    options = {"records": 8, "predict": False}
    run = cf.compare(VALLEY, START, learning_rate, steps, (2,), rtol=1e-4, **options)
    discretization = norms(ClosedForm(2, learning_rate, run.steps).error)[1:]
    error, solver_error = run.error[0, 1:], run.solver_error[0, 1:]
    assert np.all(discretization < 0.1 * error)
    assert np.all(error - discretization < 1.5 * solver_error)
    assert np.all(error + discretization > 1e-3 * solver_error)
    np.testing.assert_array_equal(run.solver_limited[0], run.steps > 0)
    assert run.rtol == {2: 1e-4}
    assert "*" in repr(run)
    assert "limited by the solver or by rounding: pass a smaller `rtol`" in repr(run)
    tight = cf.compare(VALLEY, START, learning_rate, steps, (2,), rtol=1e-12, **options)
    np.testing.assert_allclose(tight.error[0, 1:], discretization, rtol=1e-3)
    assert not tight.solver_limited.any()
    assert "*" not in repr(tight)


def test_by_default_nothing_is_limited_by_the_solver(comparison, curved):
    fine = cf.compare(VALLEY, START, 0.002, 2000, ORDERS, records=8, predict=False)
    for run in (comparison, curved, fine):
        assert not run.solver_limited.any()
        assert np.all(run.solver_error[:, 1:] < 1e-3 * run.error[:, 1:])
    # The more terms, the smaller the error that the solver has to leave visible.
    assert 1e-8 >= fine.rtol[0] > fine.rtol[1] > fine.rtol[2] >= 1e-13
    for order, error in zip(ORDERS, fine.error, strict=True):
        exact = norms(ClosedForm(order, 0.002, fine.steps).error)
        np.testing.assert_allclose(error, exact, rtol=1e-5, atol=1e-15)


def test_an_error_below_rounding_is_flagged_too():
    # After eight such tiny steps the flow of order 1 is 10⁻¹¹ away, that of order 2 some 10⁻¹⁵.
    run = cf.compare(VALLEY, START, 1e-4, 8, ORDERS, records=8, predict=False, solver=DOPRI8)
    assert not run.solver_limited[:2].any()
    np.testing.assert_array_equal(run.solver_limited[2], run.steps > 0)
    # Not because of the solver.
    assert np.any(run.error[2] > 10 * run.solver_error[2])


def test_the_solver_error_is_measured_where_records_cut_every_step_short():
    learning_rate, steps = 0.2, 20
    run = cf.compare(
        VALLEY, START, learning_rate, steps, ORDERS, records=steps, predict=False, solver=DOPRI8
    )
    assert not run.solver_limited.any()
    for i, order in enumerate(ORDERS):
        # After the first, every step ends at a record, whatever the tolerance.
        assert run.statistics[f"coarse flow {order}"].accepted_steps <= steps + 1
        assert run.statistics[f"flow {order}"].accepted_steps <= 2 * steps + 1
        exact = norms(ClosedForm(order, learning_rate, run.steps).error)
        rounding = 4 * np.finfo(float).eps
        assert np.all(np.abs(run.error[i] - exact) <= 1.5 * run.solver_error[i] + rounding)
        assert np.all(run.solver_error[i, 1:] > rounding)


# --- memory ---------------------------------------------------------------------------------


def test_no_trajectory_is_stored():
    def live_bytes(steps):
        gc.collect()
        before = sum(array.nbytes for array in jax.live_arrays())
        sizes = []

        def progress(done, total):
            sizes.append(sum(array.nbytes for array in jax.live_arrays()) - before)

        options = {"records": steps, "solver": DOPRI8, "progress": progress}
        cf.compare(VALLEY, START, 0.01, steps, (0, 1), **options)
        assert len(sizes) == steps + 1
        return sizes

    live_bytes(3)  # constants of whatever is compiled only now
    few, many = live_bytes(10), live_bytes(100)
    assert min(many) > 0
    assert max(many) == many[1] == many[-1]
    assert max(few) == max(many)


# --- what goes wrong ------------------------------------------------------------------------


def test_descent_that_explodes_ends_the_comparison_with_a_status():
    quartic = problem(CURVATURES, quartic=1.0)
    # So far from where it holds, a prediction may take any number of steps.
    options = {"records": range(1001), "solver": DOPRI8, "max_steps": 2000}
    run = cf.compare(quartic, 3 * START, 0.5, 1000, ORDERS, **options)
    assert run.status in ("diverged", "non-finite values")
    np.testing.assert_array_equal(run.steps, np.arange(len(run.steps)))
    assert 3 <= len(run.steps) < 10
    descent = [np.asarray(3 * START)]
    for _ in run.steps[1:]:
        descent.append(descent[-1] - 0.5 * np.asarray(quartic.gradient(jnp.asarray(descent[-1]))))
    np.testing.assert_allclose(
        run.descent_loss, [float(quartic.loss(jnp.asarray(point))) for point in descent], rtol=1e-9
    )
    # Beside where descent went, the flow has not moved.
    np.testing.assert_allclose(run.relative_error[:, -1], 1, rtol=1e-3)
    assert {str(status) for status in run.flow_status.values()} == {"completed"}
    assert "gradient descent diverged" in repr(run)
    assert "use a smaller learning rate (descent is unstable above 2/sharpness)" in repr(run)
    assert "smaller learning rate" in run._repr_html_()
    assert run.to_xarray().sizes == {"order": 3, "step": len(run.steps)}


def test_descent_that_diverges_slowly_keeps_the_records_before():
    unstable = 1.3 * 2 / (CURVATURES.max() + WEIGHT_DECAY)  # multiplies by −1.6
    run = cf.compare(VALLEY, START, unstable, 400, (0,), records=40, predict=False, solver=DOPRI8)
    assert run.status == "diverged"
    records = np.arange(0, 401, 10)
    exact = ClosedForm(0, unstable, records)
    within = norms(exact.descent) <= 1e20 * (1 + np.linalg.norm(START))
    assert 5 < within.sum() < 15
    np.testing.assert_array_equal(run.steps, records[within])
    np.testing.assert_allclose(run.error[0], norms(exact.error)[within], rtol=1e-9, atol=1e-10)


def test_nothing_recorded_is_an_empty_comparison():
    run = cf.compare(VALLEY, START, 3.0, 1000, ORDERS, records=[1000], solver=DOPRI8)
    assert run.status == "diverged"
    assert run.error.shape == run.flow_loss.shape == (3, 0)
    assert run.steps.shape == run.descent_loss.shape == (0,)
    assert "smaller learning rate" in repr(run)


HILL = np.array([-1.0, -0.7, -0.4])
NEAR_THE_TOP = jnp.asarray(ROTATION @ np.array([0.2, 0.1, 0.05]))


def test_a_flow_that_fails_leaves_the_others_alone():
    # Down a quartic hill without end, gradient flow and the flow of order 2 are faster than descent
    # and reach infinity in finite time; that of order 1 is slower.
    hill = problem(HILL, quartic=-0.02)
    options = {"records": [0, 1, 2, 3], "predict": False, "solver": DOPRI8}
    run = cf.compare(hill, NEAR_THE_TOP, 1.4, 3, ORDERS, **options)
    assert run.status == "completed"
    assert run.flow_status == {0: "step vanished", 1: "completed", 2: "step vanished"}
    np.testing.assert_array_equal(run.steps, [0, 1, 2, 3])
    assert np.isfinite(run.descent_loss).all()
    for series in (run.error, run.relative_error, run.solver_error, run.flow_loss):
        failed = np.isnan(series[[0, 2]])
        assert failed[:, -1].all()
        assert not failed[:, 0].any()
        assert np.all(np.diff(failed.astype(int), axis=1) >= 0)  # from there on
    assert not run.solver_limited[[0, 2]][failed].any()
    alone = cf.compare(hill, NEAR_THE_TOP, 1.4, 3, (1,), **options)
    assert alone.flow_status == {1: "completed"}
    for name in ("error", "relative_error", "solver_error", "flow_loss"):
        np.testing.assert_array_equal(getattr(run, name)[1], getattr(alone, name)[0])
    assert run.best_order == 1
    assert "flow, order 0: step vanished: " in repr(run)
    assert "flow, order 2: step vanished: " in repr(run)


def test_a_flow_that_needs_too_many_steps_ends_in_nan(comparison):
    options = {"records": ASKED, "restart": RESTART, "max_steps": 12, "solver": DOPRI8}
    run = cf.compare(VALLEY, START, LEARNING_RATE, STEPS, ORDERS, **options)
    assert run.status == "completed"
    np.testing.assert_array_equal(run.steps, comparison.steps)
    np.testing.assert_array_equal(run.descent_loss, comparison.descent_loss)
    for i, order in enumerate(ORDERS):
        assert run.flow_status[order] == "too many steps"
        reached = np.isfinite(run.error[i])
        assert 1 < reached.sum() < len(run.steps)
        assert reached[: reached.sum()].all()
        np.testing.assert_array_equal(run.error[i, reached], comparison.error[i, reached])
        for predicted in run.predictions.values():
            assert np.isnan(predicted.prediction[i, ~reached]).all()


# --- orders ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "orders", [(2, 0, 1), range(3), np.array([1, 2, 0]), [np.int64(0), 2, 1]], ids=repr
)
def test_orders_are_sorted_whatever_holds_them(comparison, orders):
    run = cf.compare(
        VALLEY, START, LEARNING_RATE, STEPS, orders, records=RECORDS, predict=False, solver=DOPRI8
    )
    assert run.orders == (0, 1, 2)
    assert all(type(order) is int for order in run.orders)
    np.testing.assert_array_equal(run.error, comparison.error)


def test_the_best_order_is_the_closest_at_the_last_record(comparison):
    assert np.all(np.diff(comparison.error[:, 1:], axis=0) < 0)
    assert comparison.best_order == 2


def verdict_along_the_run(problem, params, learning_rate, steps):
    """The smallest best order that `convergence` names along descent."""
    times = learning_rate * np.arange(steps + 1)
    descent = cf.solve(cf.GradientDescent(problem, learning_rate), params, times)
    flow = cf.EquationOfMotion(problem, learning_rate, order=0)
    return min(flow.convergence(point, terms=7).best_order for point in descent.params)


# On a hill the counter terms alternate in sign, so that the error is about the first one left out.
# The quartic part makes the hill steeper, and the last verdict of a run the worst.
@pytest.mark.parametrize(
    ("learning_rate", "quartic", "steps", "best"),
    [
        (1.2, 0.0, 3, 3),
        (1.3, 0.0, 3, 3),
        (1.4, 0.0, 3, 1),
        (1.8, 0.0, 3, 1),
        (1.2, -0.02, 2, 3),
        (1.4, -0.02, 3, 1),
    ],
)
def test_more_terms_stop_helping_where_convergence_says(learning_rate, quartic, steps, best):
    hill = problem(HILL, quartic)
    options = {"records": [0, steps], "predict": False, "solver": DOPRI8}
    run = cf.compare(hill, NEAR_THE_TOP, learning_rate, steps, range(5), **options)
    assert run.best_order == best
    verdict = verdict_along_the_run(hill, NEAR_THE_TOP, learning_rate, steps)
    assert abs(verdict - run.best_order) <= 1


def test_in_a_valley_more_terms_help_even_beyond_the_verdict():
    # There all counter terms point downhill, and make a flow faster that was too slow without them.
    # So the verdict errs on the side of caution.
    valley = problem(np.zeros(3), quartic=1.0)
    params = jnp.array([1.0, 0.8, 0.6])
    options = {"records": [0, 1, 4], "predict": False, "solver": DOPRI8}
    run = cf.compare(valley, params, 0.45, 4, range(5), **options)
    assert verdict_along_the_run(valley, params, 0.45, 4) == 0
    assert np.all(np.diff(run.error[:, 1:], axis=0) < 0)


# --- progress and the keyboard --------------------------------------------------------------


def test_progress_counts_the_records():
    told = []
    cf.compare(
        VALLEY,
        START,
        LEARNING_RATE,
        STEPS,
        ORDERS,
        records=[1, 5, 20],
        restart=RESTART,
        solver=DOPRI8,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def assert_interrupted_after(result, comparison, count):
    assert isinstance(result, cf.Comparison)
    assert result.status == "interrupted"
    np.testing.assert_array_equal(result.steps, comparison.steps[:count])
    np.testing.assert_array_equal(result.descent_loss, comparison.descent_loss[:count])
    for name in ("error", "relative_error", "solver_error", "solver_limited", "flow_loss"):
        np.testing.assert_array_equal(getattr(result, name), getattr(comparison, name)[:, :count])
    assert set(result.predictions) == set(comparison.predictions)
    for kind, predicted in result.predictions.items():
        for name in ("prediction", "mismatch", "uncertainty"):
            whole = getattr(comparison.predictions[kind], name)
            np.testing.assert_array_equal(getattr(predicted, name), whole[:, :count])


def interrupted(progress=None):
    with pytest.raises(cf.RunInterrupted, match=r"interrupted: the records before") as caught:
        cf.compare(
            VALLEY,
            START,
            LEARNING_RATE,
            STEPS,
            ORDERS,
            records=ASKED,
            restart=RESTART,
            solver=DOPRI8,
            progress=progress,
        )
    assert isinstance(caught.value, KeyboardInterrupt)
    return caught.value.result


@pytest.mark.parametrize("after", [1, 3, 6, 8])
def test_an_interrupted_comparison_hands_over_what_it_has(comparison, after):
    def progress(done, total):
        if done == after:
            raise KeyboardInterrupt

    result = interrupted(progress)
    assert_interrupted_after(result, comparison, after)
    assert "gradient descent interrupted" in repr(result)


def test_an_interruption_leaves_no_record_half_measured(comparison, monkeypatch):
    from counterflow.errors import lock_step

    measure, calls = lock_step._measure, []

    def interrupt_at_order_1(*arguments):
        calls.append(None)
        if len(calls) == 3 * len(ORDERS) + 2:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(lock_step, "_measure", interrupt_at_order_1)
    assert_interrupted_after(interrupted(), comparison, 3)


def test_any_other_error_of_the_progress_callback_comes_through():
    def progress(done, total):
        raise RuntimeError("the disk is full")

    options = {"records": ASKED, "predict": False, "solver": DOPRI8}
    with pytest.raises(RuntimeError, match="the disk is full"):
        cf.compare(VALLEY, START, LEARNING_RATE, STEPS, ORDERS, **options, progress=progress)


# --- problems of every kind -----------------------------------------------------------------


@pytest.mark.parametrize("method", ["taylor", "orbit"])
def test_a_field_that_is_no_gradient_has_no_loss_but_everything_else(method):
    field = zoo.predator_prey()
    learning_rate, steps = 0.02, np.array([0, 10, 30, 50])
    options = {"records": steps, "method": method, "solver": DOPRI8}
    run = cf.compare(field.problem, field.params, learning_rate, 50, (1,), **options)
    assert run.status == run.flow_status[1] == "completed"
    assert run.method == method
    assert np.isnan(run.descent_loss).all()
    assert np.isnan(run.flow_loss).all()
    descent, flow = solved(field.problem, 1, learning_rate, steps, field.params, method=method)
    np.testing.assert_allclose(run.error[0], norms(flow - descent), rtol=1e-5, atol=1e-15)
    assert not run.solver_limited.any()
    propagated = run.predictions["propagated"]
    assert np.all(propagated.mismatch[0, 1:] < 0.05)
    assert propagated.mismatch[0, -1] < 0.1 * run.predictions["local"].mismatch[0, -1]
    np.testing.assert_allclose(propagated.uncertainty[0, 1:], propagated.mismatch[0, 1:], rtol=0.1)


@pytest.mark.parametrize(
    ("resting", "params"),
    [(VALLEY, jnp.zeros(3)), (problem(-np.ones(3), quartic=1.0), jnp.ones(3))],
    ids=["at zero", "in a well"],
)
def test_at_rest_there_is_no_error(resting, params):
    assert float(jnp.max(jnp.abs(resting.gradient(params)))) < 1e-15
    run = cf.compare(
        resting, params, LEARNING_RATE, STEPS, ORDERS, records=ASKED, restart=RESTART, solver=DOPRI8
    )
    assert run.status == "completed"
    assert set(run.flow_status.values()) == {cf.Status.COMPLETED}
    np.testing.assert_allclose(run.error, 0, atol=1e-14)
    np.testing.assert_allclose(run.solver_error, 0, atol=1e-14)
    for kind in KINDS:
        np.testing.assert_allclose(run.predictions[kind].prediction, 0, atol=1e-14)
    assert repr(run).startswith("Comparison at η = 0.1")


def test_single_precision():
    single = problem(CURVATURES, weight_decay=WEIGHT_DECAY, dtype=jnp.float32)
    options = {"records": RECORDS, "restart": RESTART, "solver": DOPRI8}
    run = cf.compare(single, START.astype(jnp.float32), LEARNING_RATE, STEPS, (0,), **options)
    assert run.status == run.flow_status[0] == "completed"
    exact = ClosedForm(0, LEARNING_RATE, RECORDS)
    np.testing.assert_allclose(run.error[0], norms(exact.error), rtol=1e-3, atol=1e-7)
    assert not run.solver_limited.any()
    for kind in KINDS:
        predicted = exact.predicted(kind)
        found = run.predictions[kind]
        np.testing.assert_allclose(found.prediction[0], norms(predicted), rtol=1e-3, atol=1e-7)
        expected = mismatches(predicted, exact.error)
        np.testing.assert_allclose(found.mismatch[0, 1:], expected, rtol=0.02)
    assert np.isfinite(run.predictions["restarted_propagated"].prediction[0, -1])


# --- the result -----------------------------------------------------------------------------


def test_a_comparison_counts_what_it_cost(comparison):
    names = {"descent"}
    for order in ORDERS:
        names |= {f"flow {order}", f"coarse flow {order}", f"prediction {order}"}
    assert names <= set(comparison.statistics)
    assert comparison.statistics["descent"].gradient_evaluations == STEPS
    costs = [comparison.statistics[f"flow {order}"].gradient_evaluations for order in ORDERS]
    assert costs[0] < costs[1] < costs[2]


def test_no_warning_is_given_by_a_comparison_beyond_the_best_order():
    # The errors are there to be seen.
    options = {"records": [0, 3], "predict": False, "solver": DOPRI8}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        cf.compare(problem(HILL), NEAR_THE_TOP, 1.8, 3, ORDERS, **options)
    assert not told


def test_a_real_comparison_makes_a_whole_dataset(comparison):
    dataset = comparison.to_xarray()
    parts = ("prediction", "mismatch", "uncertainty")
    kinds = (*KINDS, *(f"restarted_{kind}" for kind in KINDS))
    assert set(dataset.data_vars) == {
        *("error", "relative_error", "solver_error", "solver_limited"),
        *("flow_loss", "descent_loss"),
        *(f"{kind}_{part}" for kind in kinds for part in parts),
    }
    np.testing.assert_array_equal(dataset.error.sel(order=1), comparison.error[1])
    assert dataset.attrs["restart"] == RESTART
