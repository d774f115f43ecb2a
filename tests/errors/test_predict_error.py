"""What `predict_error` returns, and what it refuses."""

from functools import cache

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo
from counterflow.solvers.requirements import require_records, require_steps


def two_wells(params):
    """Wells at `x = ±1`, `y = ±1`, coupled by a term that vanishes there to second order."""
    x, y = params["x"], params["y"]
    wells = (x**2 - 1) ** 2 / 4 + jnp.sum((y**2 - 1) ** 2) / 4
    return wells + (x**2 - 1) * jnp.sum((y - 1) ** 2) / 10


PROBLEM = cf.Problem(two_wells)
PARAMS = {"x": jnp.array(0.3), "y": jnp.array([1.4, 0.5])}
LEARNING_RATE, STEPS = 0.02, 120


def predict(**options):
    return cf.predict_error(PROBLEM, PARAMS, LEARNING_RATE, STEPS, **options)


@cache
def every_twentieth():
    return predict(records=list(range(0, STEPS + 1, 20)))


def at(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def minus(tree, other):
    return jax.tree.map(lambda a, b: a - b, tree, other)


# --- records --------------------------------------------------------------------------------


def test_by_default_the_last_step_is_the_only_record():
    prediction = predict()
    assert prediction.status == cf.Status.COMPLETED
    assert prediction.order == 0
    assert prediction.learning_rate == LEARNING_RATE
    np.testing.assert_array_equal(prediction.steps, [STEPS])
    assert prediction.params["x"].shape == (1,)
    assert prediction.params["y"].shape == (1, 2)


def test_records_may_be_a_number_or_a_list():
    np.testing.assert_array_equal(predict(records=4).steps, [0, 30, 60, 90, 120])
    np.testing.assert_array_equal(predict(records=1).steps, [0, 120])
    # No more than there are steps.
    few = cf.predict_error(PROBLEM, PARAMS, LEARNING_RATE, 3, records=1000)
    np.testing.assert_array_equal(few.steps, [0, 1, 2, 3])
    np.testing.assert_array_equal(predict(records=[3, 40]).steps, [3, 40])
    np.testing.assert_array_equal(predict(records=np.array([0])).steps, [0])


def test_a_prediction_does_not_depend_on_where_it_is_recorded():
    dense, last = every_twentieth(), predict()
    for kind in ("local", "propagated"):
        vectors = getattr(dense, kind).vectors, getattr(last, kind).vectors
        assert zoo.distance(at(vectors[0], -1), at(vectors[1], -1)) < 1e-6


def test_vectors_are_stacked_and_norms_are_theirs():
    prediction = every_twentieth()
    np.testing.assert_array_equal(prediction.times, prediction.steps * LEARNING_RATE)
    for predicted in (prediction.local, prediction.propagated):
        x, y = np.asarray(predicted.vectors["x"]), np.asarray(predicted.vectors["y"])
        assert x.shape == (7,)
        assert y.shape == (7, 2)
        np.testing.assert_allclose(predicted.norms, np.hypot(x, np.hypot(*y.T)), rtol=1e-14)
        # Nothing is predicted at the start, and with certainty.
        assert predicted.norms[0] == predicted.uncertainty[0] == 0
        assert np.all(predicted.norms[1:] > 0)
        assert np.all(predicted.uncertainty[1:] > 0)
    np.testing.assert_allclose(prediction.params["x"][0], PARAMS["x"])


def test_progress_is_told_after_every_record():
    calls = []
    predict(records=[10, 20, 30], progress=lambda done, to_do: calls.append((done, to_do)))
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_repr_says_what_is_predicted_and_how_far_to_trust_it():
    prediction = every_twentieth()
    local, propagated = prediction.local, prediction.propagated
    assert repr(prediction) == (
        "ErrorPrediction(order 0, η = 0.02; at step 120, t = 2.4: "
        f"local {local.norms[-1]:.3g} (± over 1000 %), "
        f"propagated {propagated.norms[-1]:.3g} (± {100 * propagated.uncertainty[-1]:.2g} %); "
        "completed)"
    )


# --- where it starts ------------------------------------------------------------------------


def solve_flow(times, rtol):
    flow = cf.EquationOfMotion(PROBLEM, LEARNING_RATE, order=0)
    return cf.solve(flow, PARAMS, times, rtol=rtol, solver=diffrax.Tsit5())


@cache
def measured():
    """The error at steps 60 and 120, by running descent."""
    times = LEARNING_RATE * np.array([60, 120])
    flow = solve_flow(times, rtol=1e-10).params
    descent = cf.solve(cf.GradientDescent(PROBLEM, LEARNING_RATE), PARAMS, times).params
    return flow, minus(flow, descent)


def test_a_prediction_goes_on_from_an_error_that_was_measured():
    flow, errors = measured()
    options = {"learning_rate": LEARNING_RATE, "steps": 60}
    restarted = cf.predict_error(PROBLEM, at(flow, 0), initial_error=at(errors, 0), **options)
    from_nothing = cf.predict_error(PROBLEM, at(flow, 0), **options)

    def mismatch(prediction):
        return zoo.distance(at(prediction.propagated.vectors, -1), at(errors, 1))

    # As good as a prediction from the start, which is right up to O(η).
    assert mismatch(every_twentieth()) < 0.02
    assert mismatch(restarted) < 0.02
    assert mismatch(from_nothing) > 0.2
    assert restarted.propagated.uncertainty[-1] == pytest.approx(mismatch(restarted), rel=0.3)


@pytest.mark.parametrize("kind", ["local", "propagated"])
def test_a_prediction_that_is_stopped_and_started_is_the_same(kind):
    whole = every_twentieth()
    middle = getattr(whole, kind).vectors
    second = cf.predict_error(
        PROBLEM, at(whole.params, 3), LEARNING_RATE, 60, initial_error=at(middle, 3)
    )
    ends = at(getattr(second, kind).vectors, -1), at(getattr(whole, kind).vectors, -1)
    assert zoo.distance(*ends) < 1e-5
    assert zoo.distance(at(second.params, -1), at(whole.params, -1)) < 1e-5


def test_an_initial_error_is_the_prediction_at_the_start():
    error = {"x": 0.25, "y": np.array([1.0, -2.0])}
    start = predict(records=[0], initial_error=error)
    for predicted in (start.local, start.propagated):
        assert zoo.distance(at(predicted.vectors, 0), error) < 1e-15
        np.testing.assert_allclose(predicted.norms, [np.sqrt(0.25**2 + 5)])
        np.testing.assert_array_equal(predicted.uncertainty, [0])


@pytest.mark.parametrize("corner", [1.0, 0.0])
def test_at_rest_there_is_no_error(corner):
    # A minimum in every direction, or a maximum in some: the gradient is exactly zero.
    params = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1.0), PARAMS)
    params["x"] = jnp.array(corner)
    prediction = cf.predict_error(PROBLEM, params, LEARNING_RATE, STEPS, records=2)
    assert prediction.status == cf.Status.COMPLETED
    for predicted in (prediction.local, prediction.propagated):
        assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(predicted.vectors))
        np.testing.assert_array_equal(predicted.norms, np.zeros(3))
        np.testing.assert_array_equal(predicted.uncertainty, np.zeros(3))
    np.testing.assert_array_equal(prediction.params["x"], np.full(3, corner))


def test_single_precision_stays_single_and_agrees():
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), PARAMS)
    error = {"x": np.float64(1e-3), "y": np.zeros(2)}
    single = cf.predict_error(PROBLEM, params, LEARNING_RATE, STEPS, initial_error=error)
    double = predict(initial_error=error)
    assert single.status == cf.Status.COMPLETED
    for kind in ("local", "propagated"):
        vectors = getattr(single, kind).vectors
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(vectors))
        assert zoo.distance(vectors, getattr(double, kind).vectors) < 1e-3
    np.testing.assert_allclose(
        single.propagated.uncertainty, double.propagated.uncertainty, rtol=0.1
    )
    # It is asked for fewer digits by default.
    assert single.statistics.accepted_steps < double.statistics.accepted_steps


# --- what it costs --------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "order", "of_velocity"), [("taylor", 0, 3), ("orbit", 1, 3)])
def test_gradients_are_counted(method, order, of_velocity):
    statistics = predict(method=method, order=order).statistics
    assert statistics.solver == "Tsit5"
    attempts = statistics.accepted_steps + statistics.rejected_steps
    # Six stages an attempt, the first one of the first, and one for the first step size.
    evaluations = 6 * attempts + 2
    # The velocity with its remainder, a product with the Hessian, and 2γ + 5 for the next order.
    gradients = of_velocity + 2 + 2 * order + 5
    # And before that, what the choice of the solver took: some velocities of the flow alone.
    chosen = statistics.gradient_evaluations - gradients * evaluations
    assert chosen % (order + 1) == 0
    assert 2 <= chosen / (order + 1) <= 11


def test_a_prediction_takes_little_more_steps_than_its_flow():
    # Both at the prediction's default tolerance.
    flow = solve_flow([LEARNING_RATE * STEPS], rtol=1e-6).statistics
    prediction = predict().statistics
    assert prediction.accepted_steps <= 2.5 * flow.accepted_steps
    assert prediction.gradient_evaluations <= 20 * flow.gradient_evaluations


# --- runs that end early --------------------------------------------------------------------

# dθ/dt = θ² from θ(0) = 1 is 1/(1 − t): it blows up at t = 1, which descent outlives.
EXPLOSIVE = cf.Problem.from_gradient(lambda theta: -(theta**2))


@cache
def exploding():
    return cf.predict_error(EXPLOSIVE, jnp.array(1.0), 0.01, 200, records=[0, 50, 90, 150, 200])


def test_a_flow_that_blows_up_keeps_the_records_before():
    prediction = exploding()
    assert prediction.status != cf.Status.COMPLETED
    assert repr(prediction).endswith(f"; {prediction.status})")
    np.testing.assert_array_equal(prediction.steps, [0, 50, 90])
    left = 1 - prediction.times
    np.testing.assert_allclose(prediction.params, 1 / left, rtol=1e-4)
    # ξ̃_0 = ½ g′g = θ³, whose integral is ½(1/(1 − t)² − 1); propagated, ė = 2θe + ηθ³.
    np.testing.assert_allclose(prediction.local.vectors, 0.005 * (left**-2 - 1), rtol=1e-4)
    propagated = -0.01 * np.log(left) / left**2
    np.testing.assert_allclose(prediction.propagated.vectors, propagated, rtol=1e-4)


def test_a_prediction_without_a_record_is_empty():
    prediction = cf.predict_error(EXPLOSIVE, jnp.array(1.0), 0.01, 200)
    assert prediction.status == exploding().status
    assert "before the first record" in repr(prediction)
    for predicted in (prediction.local, prediction.propagated):
        assert predicted.vectors.shape == predicted.norms.shape == (0,)
        assert predicted.uncertainty.shape == (0,)
    assert prediction.times.shape == (0,)


def test_a_solver_that_runs_out_of_steps_is_told():
    prediction = predict(records=[0, STEPS], max_steps=3)
    assert prediction.status == cf.Status.TOO_MANY_STEPS
    np.testing.assert_array_equal(prediction.steps, [0])
    assert prediction.statistics.accepted_steps <= 3


def test_a_flow_that_has_converged_does_not_hold_up_the_prediction():
    # At t = 20 the params are at rest in their wells up to rounding, and so is the error. The flow
    # alone takes 40 steps to get there.
    prediction = cf.predict_error(PROBLEM, PARAMS, LEARNING_RATE, 1000, max_steps=2000)
    assert prediction.status == cf.Status.COMPLETED
    assert prediction.propagated.norms[-1] < 1e-14


def test_an_interruption_leaves_what_was_predicted():
    def interrupt(done, to_do):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(cf.RunInterrupted, match="interrupted: the records before") as caught:
        predict(records=[20, 60, 100, 120], progress=interrupt)
    assert isinstance(caught.value, KeyboardInterrupt)
    result = caught.value.result
    assert result.status == cf.Status.INTERRUPTED
    assert repr(result).endswith("; interrupted)")
    np.testing.assert_array_equal(result.steps, [20, 60])
    assert result.params["y"].shape == (2, 2)
    whole = every_twentieth().propagated.vectors
    assert zoo.distance(at(result.propagated.vectors, 1), at(whole, 3)) < 1e-6


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, -1, 2**31 - 1])
def test_steps_are_at_least_one(steps):
    with pytest.raises(ValueError, match=f"`steps` must be from 1 to 2147483646, got {steps}"):
        cf.predict_error(PROBLEM, PARAMS, LEARNING_RATE, steps)


def test_steps_are_not_a_truth_value():
    with pytest.raises(TypeError, match="`steps` must be an integer, got True of type bool"):
        cf.predict_error(PROBLEM, PARAMS, LEARNING_RATE, True)


@pytest.mark.parametrize("steps", [1.5, 100.0, "100", None])
def test_steps_are_an_integer(steps):
    # In tests, the type checker would speak first.
    with pytest.raises(TypeError, match=r"`steps` must be an integer, got .* t / learning_rate"):
        require_steps(steps)


def test_steps_may_be_a_numpy_integer():
    assert require_steps(np.int32(7)) == 7


@pytest.mark.parametrize("records", [0, -3])
def test_a_number_of_records_is_at_least_one(records):
    with pytest.raises(ValueError, match=f"`records` must be at least 1 or a list.*got {records}"):
        predict(records=records)


@pytest.mark.parametrize(
    "records", [[], [1.0, 2.0], 3.0, True, "all", [[1, 2], [3, 4]], [[1], [2, 3]], {1, 2}]
)
def test_records_are_a_list_of_integers(records):
    with pytest.raises(TypeError, match="`records` must be a number of records or a list of step"):
        predict(records=records)


@pytest.mark.parametrize("records", [[3, 2], [3, 3], [-1, 3], [0, STEPS + 1]])
def test_records_are_increasing_steps(records):
    with pytest.raises(ValueError, match="`records` must be increasing step numbers from 0 to 120"):
        predict(records=records)


def test_records_of_unsigned_integers_are_increasing_too():
    with pytest.raises(ValueError, match="`records` must be increasing step numbers"):
        require_records(np.array([3, 1], dtype=np.uint32), 10, default=1)


def test_the_order_is_at_least_zero():
    with pytest.raises(ValueError, match="`order` must be at least 0, got -1: 0 is gradient flow"):
        predict(order=-1)


def test_the_method_is_one_of_those_of_a_flow():
    with pytest.raises(ValueError, match="`method` must be one of 'taylor', 'lie', 'orbit', got"):
        predict(method="euler")


@pytest.mark.parametrize(
    "error",
    [
        jnp.zeros(3),
        {"x": 0.0},
        {"x": jnp.zeros(1), "y": jnp.zeros(2)},
        {"x": 0.0, "y": jnp.zeros(3)},
        {"x": 0.0, "y": jnp.zeros(2), "z": 0.0},
    ],
)
def test_an_initial_error_is_shaped_like_the_params(error):
    with pytest.raises(ValueError, match="`initial_error` must have the structure and the shapes"):
        predict(initial_error=error)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_initial_error_is_finite(value):
    with pytest.raises(ValueError, match="`initial_error` must be finite, got NaN or infinity"):
        predict(initial_error={"x": value, "y": jnp.zeros(2)})


def test_the_tolerance_is_one_that_the_params_can_resolve():
    with pytest.raises(ValueError, match=r"`rtol` must be at least 8\.9e-16"):
        predict(rtol=1e-16)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), PARAMS)
    with pytest.raises(ValueError, match=r"`rtol` must be at least .*double precision"):
        cf.predict_error(PROBLEM, single, LEARNING_RATE, STEPS, rtol=1e-8)


def test_params_of_two_precisions_are_refused():
    mixed = {"x": PARAMS["x"].astype(jnp.float32), "y": PARAMS["y"]}
    with pytest.raises(TypeError, match="params of one dtype, got float32 and float64"):
        cf.predict_error(PROBLEM, mixed, LEARNING_RATE, STEPS)


def test_max_steps_is_at_least_one():
    with pytest.raises(ValueError, match="`max_steps` must be an integer of at least 1, got 0"):
        predict(max_steps=0)
