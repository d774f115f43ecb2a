"""A lock step that is stopped anywhere goes on to the last bit, and predictions cost what asked."""

from functools import cache
from itertools import takewhile

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.dynamics.gradient_descent import GradientDescent
from counterflow.errors import lock_step as module
from counterflow.errors.error_equation import ErrorEquation, ErrorState, uncertainty
from counterflow.errors.lock_step import LockStep
from counterflow.errors.predict_error import PredictionRunner
from counterflow.solvers.choice import choose_solver
from counterflow.solvers.trajectory import Status

LEARNING_RATE, RESTART = 0.1, 3
START = jnp.array([1.0, 0.5])


def loss(theta, sign):
    return sign * jnp.sum(theta**4) / 4


VALLEY = cf.Problem(loss, jnp.array(1.0), weight_decay=0.1)
# Up the hill, gradient flow is infinite at t = 1/2, at step 5; descent is much later, and the
# counter term of order one holds its flow back for good.
HILL = cf.Problem(loss, jnp.array(-1.0))
PROBLEMS = {"valley": VALLEY, "hill": HILL}
RECORDS = np.arange(15)


def start(problem, estimate=False, max_steps=20_000, records=RECORDS, params=START):
    flows = [cf.EquationOfMotion(problem, LEARNING_RATE, order) for order in (0, 1)]
    descent = GradientDescent(problem, LEARNING_RATE)
    tolerances = [(1e-8, 1e-10)] * 2
    return LockStep(
        descent, flows, params, records, tolerances, None, max_steps, (0, 1), RESTART, estimate
    )


def bits(rows):
    return {p: {q: float(value).hex() for q, value in at.items()} for p, at in rows.items()}


def record(run, index):
    """What is measured at the next record and where everything is there, all bits of it."""
    if not run.advance(index):
        return None
    at = {p: {str(i): x for i, x in enumerate(params)} for p, params in run.processes.items()}
    return bits(run.latest), bits(at)


def end_of(run):
    return run.ended, run.statistics, run.status


def rest_of(run, first):
    """The records from one on, as far as descent gets."""
    measured = (record(run, index) for index in range(first, len(run.records)))
    return list(takewhile(lambda found: found is not None, measured))


def through_a_file(state):
    """A function that fills a state in, as one does that was read from a file: bytes alone."""
    kept = [np.array(leaf) for leaf in jax.tree.leaves(state)]

    def fill(like):
        leaves, structure = jax.tree.flatten(like)
        assert [(x.shape, x.dtype) for x in leaves] == [(x.shape, x.dtype) for x in kept]
        return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in kept])

    return fill


@cache
def in_one_piece(name, estimate=False, max_steps=20_000):
    """The measurements of an uninterrupted run; `ended` and `state` at every record; its end."""
    run = start(PROBLEMS[name], estimate, max_steps)
    measured, kept = [], []
    for index in range(len(RECORDS)):
        found = record(run, index)
        if found is None:
            break
        measured.append(found)
        kept.append((run.ended, through_a_file(run.state)))
    return measured, kept, end_of(run)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_run_resumed_at_any_record_ends_with_the_same_bits(name):
    measured, kept, end = in_one_piece(name)
    for index, (ended, fill) in enumerate(kept):
        run = start(PROBLEMS[name])
        run.resume(ended, fill)
        assert run.ended == ended
        assert rest_of(run, index + 1) == measured[index + 1 :]
        assert end_of(run) == end


def test_the_hill_is_what_it_is_said_to_be():
    measured, kept, (ended, _, status) = in_one_piece("hill")
    assert status == Status.DIVERGED
    assert 10 < len(measured) < len(RECORDS)
    assert ended["flow 0"]["flow"] != "COMPLETED"
    assert ended["flow 1"]["flow"] == "COMPLETED"
    seen = [set(rows) for rows, _ in measured]
    assert seen[4] == {"descent", "flow 0", "flow 1"}
    assert seen[6] == {"descent", "flow 1"}  # a flow that failed is neither measured nor followed
    assert [set(at) for _, at in measured] == seen
    before, after = kept[RESTART - 1][0], kept[RESTART][0]
    assert "prediction restarted_" not in before["flow 0"]
    assert after["flow 0"]["prediction restarted_"] == "COMPLETED"


def test_the_valley_is_measured_to_the_end():
    measured, _, (ended, statistics, status) = in_one_piece("valley")
    assert status == Status.COMPLETED
    assert len(measured) == len(RECORDS)
    assert all(s == "COMPLETED" for lane in ended.values() for s in lane.values())
    rows, at = measured[-1]
    assert set(rows) == set(at) == {"descent", "flow 0", "flow 1"}
    assert {"error", "restarted_local_prediction", "propagated_mismatch"} <= set(rows["flow 0"])
    assert set(statistics) == {
        "descent",
        *(f"{part}{order}" for part in ("flow ", "coarse flow ") for order in (0, 1)),
        *(
            f"{part}{order}"
            for part in ("prediction ", "restarted prediction ")
            for order in (0, 1)
        ),
    }


def test_the_latest_is_the_last_of_the_result():
    run = start(VALLEY)
    for index in range(5):
        run.advance(index)
    result, latest = run.result(), run.latest
    assert latest["descent"]["loss"] == result.descent_loss[-1]
    for i, order in enumerate((0, 1)):
        assert latest[f"flow {order}"]["error"] == result.error[i, -1]
        found = latest[f"flow {order}"]["restarted_local_mismatch"]
        assert found == result.predictions["restarted_local"].mismatch[i, -1]


def test_a_prediction_that_failed_stays_failed(monkeypatch):
    # By default a prediction may take some steps and a multiple of those of its flow.
    monkeypatch.setattr(module, "_FEW_STEPS", 8)
    monkeypatch.setattr(module, "_MORE_STEPS", 0)
    measured, kept, end = in_one_piece("valley", True, None)  # and no limit of its own
    failed = [ended["flow 0"]["prediction "] for ended, _ in kept]
    assert failed[0] == "COMPLETED"
    assert failed[-1] == "TOO_MANY_STEPS"
    assert "local_prediction" not in measured[-1][0]["flow 0"]
    assert "error" in measured[-1][0]["flow 0"]
    for index in (2, failed.index("TOO_MANY_STEPS"), len(kept) - 2):
        run = start(VALLEY, True, None)
        run.resume(*kept[index])
        assert rest_of(run, index + 1) == measured[index + 1 :]
        assert end_of(run) == end


def test_a_prediction_that_starts_anew_keeps_the_solver_of_the_first():
    # Steep where all begins, which over this long a time wants the stabilized solver; flat at the
    # restart, where a choice made there would be another one.
    steep, records = jnp.array([1.8, 1.7]), np.array([0, 1, RESTART, 10, 20, 40])

    def begin():
        return start(VALLEY, records=records, params=steep)

    run = begin()
    measured = [record(run, index) for index in range(3)]
    lane, left = run.lanes[0], LEARNING_RATE * float(records[-1] - RESTART)
    first, restarted = (lane.predictions[name][0].solver for name in ("", "restarted_"))
    anew = choose_solver(None, lane.flow, lane.at_record, lane.rtol, left).solver
    assert not isinstance(anew, cf.StabilizedAdams)
    assert isinstance(first, cf.StabilizedAdams)
    assert type(restarted) is type(first)
    assert None not in measured
    resumed = begin()
    resumed.resume(run.ended, through_a_file(run.state))
    assert rest_of(resumed, 3) == rest_of(run, 3)
    assert end_of(resumed) == end_of(run)


def test_after_a_state_that_cannot_be_read_an_earlier_one_can():
    measured, kept, end = in_one_piece("valley")

    def unreadable(like):
        raise ValueError("damaged")

    run = start(VALLEY)
    for index in (8, RESTART):  # at both, predictions have been restarted
        with pytest.raises(ValueError, match="damaged"):
            run.resume(kept[index][0], unreadable)
    run.resume(*kept[RESTART - 1])  # and here not yet
    assert rest_of(run, RESTART) == measured[RESTART:]
    assert end_of(run) == end


# --- predictions that do not know how good they are -----------------------------------------


@pytest.mark.parametrize("order", [0, 1, 2])
def test_without_an_estimate_the_velocities_are_the_same_and_cost_less(order):
    flow = cf.EquationOfMotion(VALLEY, LEARNING_RATE, order)
    full, bare = ErrorEquation(flow), ErrorEquation(flow, estimate=False)
    # Gradient flow needs one product with the Hessian instead of two.
    saved = 2 if order == 0 else 0
    assert full.gradient_evaluations - bare.gradient_evaluations == 2 * order + 5 + saved
    error = jnp.array([0.01, -0.02])
    started = bare.start(START, error)
    assert (started.refined, started.doubt) == (None, None)
    known, found = full.velocity(full.start(START, error)), bare.velocity(started)
    for name in ("params", "propagated"):
        np.testing.assert_allclose(getattr(found, name), getattr(known, name), rtol=1e-13)
    # Of the local sum, how fast that changes which is read off.
    np.testing.assert_allclose(bare.read(started).local, error, rtol=1e-14)
    _, read = jax.jvp(bare.read, (started,), (found,))
    np.testing.assert_allclose(read.local, known.local, rtol=1e-13)
    assert (found.refined, found.doubt) == (None, None)


def test_without_an_estimate_the_uncertainty_is_not_a_number():
    vector = jnp.array([3.0, 4.0])
    assert np.isnan(uncertainty(vector, ErrorState(START, vector, vector, None, None)))
    known = ErrorState(START, vector, vector, vector, jnp.array(0.5))
    assert float(uncertainty(vector, known)) == pytest.approx(0.1)


def test_without_an_estimate_predictions_are_as_good_and_cheaper():
    flow = cf.EquationOfMotion(VALLEY, LEARNING_RATE, 0)
    times = LEARNING_RATE * RECORDS
    full, bare = (PredictionRunner(flow, START, times, estimate=asked) for asked in (True, False))
    for index in range(len(RECORDS)):
        status, found = bare.advance(index)
        _, known = full.advance(index)
        assert status == Status.COMPLETED
        for name in ("params", "local", "propagated"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(known, name), rtol=1e-4, atol=1e-12
            )
    assert bare.statistics().gradient_evaluations < full.statistics().gradient_evaluations / 1.5


def test_what_a_prediction_reads_at_records_is_counted():
    # Reading a local sum off takes one gradient, at the start and at every record.
    flow = cf.EquationOfMotion(VALLEY, LEARNING_RATE, 0)
    times = LEARNING_RATE * RECORDS
    bare = PredictionRunner(flow, START, times, solver=diffrax.Tsit5(), estimate=False)
    for done in range(3):
        bare.advance(done)
        of_steps = bare.runner.statistics().gradient_evaluations
        assert bare.statistics().gradient_evaluations - of_steps == 1 + (done + 1)


def test_the_stiffness_of_a_prediction_is_that_of_its_flow():
    # Driven by the params, the errors make the Jacobian non-normal, and its norm a large one.
    flow = cf.EquationOfMotion(VALLEY, LEARNING_RATE, 0)
    steep = jnp.array([1.8, 1.7])
    runner = PredictionRunner(flow, steep, np.array([100.0]), solver=cf.ROCK4(), estimate=False)
    start = runner.equation.start(steep)
    term = diffrax.ODETerm(lambda t, y, args: runner.equation.velocity(y))
    state = runner.solver.init(term, jnp.array(0.0), jnp.array(1e-3), start, None)
    alone = diffrax.ODETerm(lambda t, y, args: flow.velocity(y))
    known = cf.ROCK4().init(alone, jnp.array(0.0), jnp.array(1e-3), steep, None)
    assert float(state.radius) == pytest.approx(float(known.radius), rel=1e-6)
    steepest = 3 * 1.8**2 + 0.1
    assert float(state.radius) == pytest.approx(steepest, rel=0.05)


def test_a_comparison_without_estimates_has_the_same_measurements():
    known, _, _ = in_one_piece("valley", estimate=True)
    found, _, _ = in_one_piece("valley")
    for (rows, at), (bare_rows, bare_at) in zip(known, found, strict=True):
        assert at == bare_at
        for process, quantities in rows.items():
            assert set(quantities) == set(bare_rows[process])
            for quantity, value in quantities.items():
                before, now = float.fromhex(value), float.fromhex(bare_rows[process][quantity])
                if quantity.endswith("uncertainty"):
                    # A prediction that has just been restarted is exact.
                    assert np.isnan(now) or (now == before == 0 and "restarted" in quantity)
                elif quantity.endswith(("prediction", "mismatch")):
                    assert now == pytest.approx(before, rel=1e-4, abs=1e-5, nan_ok=True)
                else:
                    assert now == before
