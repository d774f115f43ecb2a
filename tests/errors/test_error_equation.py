"""The predictions of the error against closed forms and against descent itself."""

from functools import cache

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import counterflow as cf
import zoo

# --- linear fields: every prediction is a block of one matrix exponential -------------------

LEARNING_RATE, STEPS = 0.05, 40
# One solver at all tolerances, so that there is one compilation.
SOLVER = diffrax.Tsit5()
QUADRATIC, NONNORMAL = zoo.quadratic(), zoo.nonnormal()
LINEAR = {
    # The Hessian of a loss is symmetric; a Jacobian need not be, nor commute with its transpose.
    "loss": (QUADRATIC, zoo.symmetric_matrix() + QUADRATIC.problem.weight_decay * np.eye(5)),
    "field": (NONNORMAL, zoo.nonnormal_matrix()),
}
CASES = [("loss", 0), ("loss", 1), ("loss", 2), ("field", 1)]


def velocity_matrix(matrix, learning_rate, order):
    """`−(B + ηB²/2 + … + η^γ B^{γ+1}/(γ+1))`: the logarithm of a step, cut off."""
    power = np.linalg.matrix_power
    return -sum(learning_rate**m * power(matrix, m + 1) / (m + 1) for m in range(order + 1))


def exact_predictions(matrix, params, learning_rate, order, time, error=None):
    """The flow's params, the local sum and the propagated error on the field `g = Bθ`.

    `θ̇ = F_γ θ`, `Ṡ = Rθ` and `ė = −Be + Rθ` with `R = η^{γ+1} B^{γ+2}/(γ+2)`.
    """
    error = np.zeros_like(params) if error is None else error
    nothing = np.zeros_like(matrix)
    dropped = learning_rate ** (order + 1) * np.linalg.matrix_power(matrix, order + 2) / (order + 2)
    generator = np.block(
        [
            [velocity_matrix(matrix, learning_rate, order), nothing, nothing],
            [dropped, nothing, nothing],
            [dropped, nothing, -matrix],
        ]
    )
    state = scipy.linalg.expm(time * generator) @ np.concatenate([params, error, error])
    return np.split(state, 3)


@cache
def predict_linear(name, order, rtol=None):
    solved, _ = LINEAR[name]
    return cf.predict_error(
        solved.problem, solved.params, LEARNING_RATE, STEPS, order, rtol=rtol, solver=SOLVER
    )


@pytest.mark.parametrize(("name", "order"), CASES)
@pytest.mark.parametrize(("rtol", "accuracy"), [(None, 1e-5), (1e-9, 1e-8)])
def test_predictions_on_a_linear_field_are_matrix_exponentials(name, order, rtol, accuracy):
    solved, matrix = LINEAR[name]
    predicted = predict_linear(name, order, rtol)
    params, local, propagated = exact_predictions(
        matrix, np.asarray(solved.params), LEARNING_RATE, order, STEPS * LEARNING_RATE
    )
    assert zoo.distance(predicted.params[-1], params) < accuracy
    assert zoo.distance(predicted.local.vectors[-1], local) < accuracy
    assert zoo.distance(predicted.propagated.vectors[-1], propagated) < accuracy
    # The two differ, or one could pass for the other.
    assert zoo.distance(local, propagated) > 0.1


@pytest.mark.parametrize(("name", "order"), CASES)
def test_the_uncertainty_estimates_how_wrong_a_prediction_is(name, order):
    solved, matrix = LINEAR[name]
    flow, *exact = exact_predictions(
        matrix, np.asarray(solved.params), LEARNING_RATE, order, STEPS * LEARNING_RATE
    )
    step = np.eye(len(matrix)) - LEARNING_RATE * matrix
    measured = flow - np.linalg.matrix_power(step, STEPS) @ np.asarray(solved.params)
    prediction = predict_linear(name, order)
    local, propagated = (zoo.distance(vector, measured) for vector in exact)
    # In principle an estimate; but the next order is small here, and it is nearly the truth.
    np.testing.assert_allclose(prediction.local.uncertainty, [local], rtol=0.02)
    np.testing.assert_allclose(prediction.propagated.uncertainty, [propagated], rtol=0.02)
    assert propagated < 0.1 < local


# --- velocity and remainder -----------------------------------------------------------------

PREY = zoo.predator_prey()


@zoo.jit_quickly
def velocity_and_remainder(flow, params):
    return flow.velocity_and_remainder(params)


def make_flow(learning_rate, order, method):
    return cf.EquationOfMotion(PREY.problem, learning_rate, order=order, method=method)


def gradients_along_descent(learning_rate, count):
    params, found = np.asarray(PREY.params), []
    for _ in range(count):
        found.append(np.asarray(zoo.predator_prey_gradient(params)))
        params = params - learning_rate * found[-1]
    return np.array(found)


@pytest.mark.parametrize("method", ["taylor", "lie", "orbit"])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_velocity_with_its_remainder_is_the_velocity(method, order):
    flow = make_flow(0.1, order, method)
    velocity, _ = velocity_and_remainder(flow, PREY.params)
    np.testing.assert_allclose(velocity, flow.velocity(PREY.params), rtol=1e-14)


@pytest.mark.parametrize("method", ["taylor", "lie"])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_remainder_of_a_series_is_its_first_term_left_out(method, order):
    _, remainder = velocity_and_remainder(make_flow(0.1, order, method), PREY.params)
    computed = cf.counter_term(PREY.problem, PREY.params, order, method=method)
    np.testing.assert_allclose(remainder, 0.1 ** (order + 1) * computed, rtol=1e-14)
    # The same in exact rational arithmetic.
    assert zoo.distance(remainder, 0.1 ** (order + 1) * PREY.counter_terms[order]) < 1e-13


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_remainder_of_orbit_is_its_first_difference_left_out(order):
    flow, further = make_flow(0.1, order, "orbit"), make_flow(0.1, order + 1, "orbit")
    _, remainder = velocity_and_remainder(flow, PREY.params)
    change = flow.velocity(PREY.params) - further.velocity(PREY.params)
    difference = np.diff(gradients_along_descent(0.1, order + 2), n=order + 1, axis=0)[0]
    np.testing.assert_allclose(remainder, change, rtol=0, atol=2e-15)
    by_hand = (-1) ** (order + 1) / (order + 2) * difference
    np.testing.assert_allclose(remainder, by_hand, rtol=0, atol=2e-15)


LEARNING_RATES = 0.02 / np.array([1.0, 2.0, 4.0])


def exact_velocity(learning_rate):
    """The velocity of gradient descent up to `O(η^8)`, from exact counter terms."""
    terms = [np.asarray(zoo.predator_prey_gradient(PREY.params)), *PREY.counter_terms]
    return -sum(learning_rate**power * term for power, term in enumerate(terms))


@pytest.mark.parametrize("method", ["taylor", "orbit"])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_remainder_is_what_a_velocity_exceeds_the_exact_one_by(method, order):
    mismatches = []
    for learning_rate in LEARNING_RATES:
        flow = make_flow(learning_rate, order, method)
        velocity, remainder = velocity_and_remainder(flow, PREY.params)
        excess = np.asarray(velocity) - exact_velocity(learning_rate)
        mismatches.append(zoo.distance(remainder, excess))
    assert zoo.slope(LEARNING_RATES, mismatches) == pytest.approx(1, abs=0.1)


def test_the_remainder_of_orbit_at_order_zero_tends_to_the_counter_term():
    # −½ Δg = ½ η g′g + O(η²).
    mismatches = [
        zoo.distance(
            velocity_and_remainder(make_flow(learning_rate, 0, "orbit"), PREY.params)[1],
            learning_rate * PREY.counter_terms[0],
        )
        for learning_rate in LEARNING_RATES
    ]
    assert zoo.slope(LEARNING_RATES, mismatches) == pytest.approx(1, abs=0.1)


def test_the_remainder_of_orbit_at_order_one_does_not_tend_to_the_counter_term():
    # ⅓ Δ²g = η² (⅓ g′g′g + ⅓ g″(g, g)) + O(η³), where ξ̃_1 has 1/12 g″(g, g).
    u, v = np.asarray(PREY.params)
    g = np.array([u * (2 - v), v * (u - 1)])
    curvature = 2 * g[0] * g[1] * np.array([-1.0, 1.0])
    limit = PREY.counter_terms[1] + curvature / 4
    away, towards = [], []
    for learning_rate in LEARNING_RATES:
        _, remainder = velocity_and_remainder(make_flow(learning_rate, 1, "orbit"), PREY.params)
        away.append(zoo.distance(remainder / learning_rate**2, PREY.counter_terms[1]))
        towards.append(zoo.distance(remainder / learning_rate**2, limit))
    assert zoo.slope(LEARNING_RATES, towards) == pytest.approx(1, abs=0.1)
    gap = zoo.distance(limit, PREY.counter_terms[1])
    assert gap > 0.1
    np.testing.assert_allclose(away, gap, rtol=0.1)


# --- a nonlinear field: what holds as the learning rate tends to zero -----------------------

TIME = 1.0
COUNTS = np.array([50, 100, 200])
FLOWS = [("taylor", 0), ("taylor", 1), ("orbit", 1)]


@cache
def flow_at_every_step(method, order, count):
    flow = make_flow(TIME / count, order, method)
    times = np.arange(count + 1) * TIME / count
    return cf.solve(flow, PREY.params, times, rtol=1e-12, solver=SOLVER).params


@cache
def measured_error(method, order, count):
    descent = cf.GradientDescent(PREY.problem, TIME / count)
    end = cf.solve(descent, PREY.params, [TIME]).params[-1]
    return flow_at_every_step(method, order, count)[-1] - end


@cache
def predict(method, order, count):
    options = {"method": method, "rtol": 1e-8, "solver": SOLVER}
    return cf.predict_error(PREY.problem, PREY.params, TIME / count, int(count), order, **options)


@pytest.mark.parametrize(("method", "order"), FLOWS)
def test_the_propagated_error_improves_like_the_learning_rate_and_the_local_sum_does_not(
    method, order
):
    mismatches = []
    for count in COUNTS:
        predicted, measured = predict(method, order, count), measured_error(method, order, count)
        vectors = predicted.propagated.vectors[-1], predicted.local.vectors[-1]
        mismatches.append([zoo.distance(vector, measured) for vector in vectors])
    propagated, local = np.transpose(mismatches)
    assert zoo.slope(1 / COUNTS, propagated) == pytest.approx(1, abs=0.1)
    assert propagated[-1] < 0.02
    assert zoo.slope(1 / COUNTS, local) == pytest.approx(0, abs=0.1)
    assert local[-1] > 0.2


@pytest.mark.parametrize(("method", "order"), FLOWS)
def test_the_uncertainty_shrinks_as_the_mismatch_does(method, order):
    for count in COUNTS:
        predicted, measured = predict(method, order, count), measured_error(method, order, count)
        for kind in (predicted.propagated, predicted.local):
            mismatch = zoo.distance(kind.vectors[-1], measured)
            assert kind.uncertainty[-1] == pytest.approx(mismatch, rel=0.02)


def test_the_counter_term_is_the_wrong_source_for_the_error_of_orbit():
    wrong = []
    for count in COUNTS:
        measured = measured_error("orbit", 1, count)
        wrong.append(zoo.distance(predict("taylor", 1, count).propagated.vectors[-1], measured))
    # The two flows differ by O(η²), as do their params: only the source can make a difference.
    assert zoo.slope(1 / COUNTS, wrong) == pytest.approx(0, abs=0.1)
    assert min(wrong) > 0.5


@pytest.mark.parametrize("order", [0, 1])
def test_the_local_sum_is_the_papers_sum_over_steps_up_to_the_learning_rate(order):
    @zoo.jit_quickly
    def sum_of_counter_terms(points):
        terms = jax.vmap(lambda params: cf.counter_terms(PREY.problem, params, order + 1)[order])
        return jnp.sum(terms(points), axis=0)

    differences = []
    for count in COUNTS:
        points = flow_at_every_step("taylor", order, count)[:-1]
        total = (TIME / count) ** (order + 2) * sum_of_counter_terms(points)
        predicted = predict("taylor", order, count).local.vectors[-1]
        differences.append(zoo.distance(total, predicted))
    assert zoo.slope(1 / COUNTS, differences) == pytest.approx(1, abs=0.1)
    assert differences[0] < 0.1


# --- what the solver has to look at ---------------------------------------------------------


def predict_diagonal(curvatures, params, learning_rate, steps, **options):
    """The prediction for `g = diag(curvatures) θ` and its closed form, at the last record."""
    matrix, params = np.diag(curvatures), np.asarray(params)
    problem = cf.Problem(QUADRATIC.problem.function, jnp.asarray(matrix))
    predicted = cf.predict_error(
        problem, jnp.asarray(params), learning_rate, steps, solver=SOLVER, **options
    )
    error = options.get("initial_error")
    time = steps * learning_rate
    return predicted, exact_predictions(matrix, params, learning_rate, 0, time, error)


def test_an_error_may_be_stiff_where_the_flow_is_not():
    # The params stay on a plane where all is smooth; the error starts off it, where the curvature
    # is 500 times as large. Steps chosen by the params alone would blow it up.
    curvatures = [0.2, 0.4, 0.6, 0.8, 200.0]
    params, error = [1.0, -1.0, 0.5, 2.0, 0.0], np.array([0.0, 0.0, 1e-4, 0.0, 1e-3])
    predicted, (theta, local, propagated) = predict_diagonal(
        curvatures, params, 1e-3, 2000, initial_error=error
    )
    assert predicted.status == "completed"
    assert zoo.distance(predicted.params[-1], theta) < 1e-6
    assert zoo.distance(predicted.local.vectors[-1], local) < 1e-4
    assert zoo.distance(predicted.propagated.vectors[-1], propagated) < 1e-4
    # Of the stiff part nothing is left, e^{−400} of what it was.
    assert abs(predicted.propagated.vectors[-1][4]) < 1e-4 * np.linalg.norm(propagated)


def test_an_error_is_accurate_relative_to_itself_as_it_decays():
    # At t = 40 params and error are 1e-16 of what they were, far below the tolerance for params.
    params = [1.0, -1.0, 0.5, 2.0, 0.7]
    predicted, (_, _, propagated) = predict_diagonal([1.0, 1.1, 1.2, 1.5, 2.0], params, 0.01, 4000)
    assert np.linalg.norm(propagated) < 1e-16
    assert zoo.distance(predicted.propagated.vectors[-1], propagated) < 1e-3


def test_a_stiff_error_that_decays_is_right_all_the_way():
    # Over a thousand times the time that the stiffest part takes to decay.
    curvatures, params = [0.1, 0.5, 1.0, 30.0, 100.0], [1.0, 1.0, 1.0, 1.0, 1.0]
    predicted, (theta, _, propagated) = predict_diagonal(curvatures, params, 1e-3, 10_000)
    assert zoo.distance(predicted.params[-1], theta) < 1e-5
    assert zoo.distance(predicted.propagated.vectors[-1], propagated) < 1e-3


def test_a_tiny_error_does_not_stop_the_solver():
    # The error is 1e-13. Its propagated equation is linear and not affected by its size.
    learning_rate, order, steps = 1e-4, 2, 20_000
    solved, matrix = LINEAR["loss"]
    predicted = cf.predict_error(
        solved.problem, solved.params, learning_rate, steps, order, solver=SOLVER
    )
    _, _, propagated = exact_predictions(
        matrix, np.asarray(solved.params), learning_rate, order, steps * learning_rate
    )
    assert predicted.status == "completed"
    assert zoo.distance(predicted.propagated.vectors[-1], propagated) < 1e-4
