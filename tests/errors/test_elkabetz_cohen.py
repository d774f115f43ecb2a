"""The bound of Elkabetz & Cohen: its formula, its guarantee, and what it refuses."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo
from counterflow.errors.requirements import require_curvature


def quadratic(theta, matrix):
    return theta @ matrix @ theta / 2


def bounded(x, weights):
    """A loss of one number whose second derivative is bounded everywhere."""
    convex, wavy = weights
    return convex * jnp.logaddexp(x, -x) + wavy * jnp.cos(x)


ROTATION = np.array([[0.6, -0.8], [0.8, 0.6]])
# The eigenvalues of the matrix, in ascending order, and the weight decay that is part of them.
QUADRATICS = {
    "bowl": (np.array([0.5, 2.0]), 0.0),
    "bowl with decay": (np.array([0.5, 2.0]), 0.25),
    "saddle": (np.array([-1.0, 4.0]), 0.0),
    "flat": (np.array([0.0, 3.0]), 0.0),
}
START, TIME, TOLERANCE = np.array([0.3, -0.5]), 3.0, 1e-2


@cache
def quadratic_bounds(name):
    """The bound with its curvature known, and with what is measured."""
    eigenvalues, weight_decay = QUADRATICS[name]
    matrix = ROTATION @ np.diag(eigenvalues - weight_decay) @ ROTATION.T
    problem = cf.Problem(quadratic, jnp.asarray(matrix), weight_decay)
    options = {"time": TIME, "tolerance": TOLERANCE}
    known = cf.elkabetz_cohen_bound(
        problem, jnp.asarray(START), curvature=(eigenvalues[0], eigenvalues[1]), **options
    )
    return known, cf.elkabetz_cohen_bound(problem, jnp.asarray(START), **options)


def growth(lowest, time):
    """`c(t) = ∫_0^t e^{m(t − s)} ds` for `m = −lowest`; it only grows with t."""
    return time if lowest == 0 else np.expm1(-lowest * time) / -lowest


def gradients(name):
    """`‖g‖` along the flow; a sum of exponentials is largest at one of its ends."""
    eigenvalues, _ = QUADRATICS[name]
    modes = ROTATION.T @ START * np.exp(-np.outer([0, TIME], eigenvalues))
    return in_norm(modes * eigenvalues)


def in_norm(vectors):
    return np.linalg.norm(vectors, axis=1)


# --- the formula ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUADRATICS)
def test_the_formula_on_quadratics(name):
    eigenvalues, _ = QUADRATICS[name]
    known, _ = quadratic_bounds(name)
    smoothness = abs(eigenvalues).max()
    # The gradient is at most this large within the tolerance of the flow; where it may grow from
    # one record to the next, a little is added.
    gradient_size = gradients(name).max() + smoothness * TOLERANCE
    added = 0.02 if eigenvalues[0] < 0 else 1e-6
    assert known.guaranteed is True
    assert known.smoothness == smoothness
    assert (1 - 1e-6) * gradient_size <= known.gradient_size <= (1 + added) * gradient_size
    assert known.growth == pytest.approx(growth(eigenvalues[0], TIME), rel=1e-10)
    formula = TOLERANCE / (smoothness * known.gradient_size * growth(eigenvalues[0], TIME))
    assert float(known) == known.learning_rate == pytest.approx(formula, rel=1e-10)


@pytest.mark.parametrize("name", QUADRATICS)
def test_what_is_measured_is_at_most_what_holds_in_the_tube(name):
    known, measured = quadratic_bounds(name)
    assert measured.guaranteed is False
    rounding = 1 + 1e-12
    assert measured.smoothness <= known.smoothness * rounding
    assert measured.gradient_size < known.gradient_size
    assert measured.growth <= known.growth * rounding
    assert float(measured) > float(known)  # the most that the bound can give
    # A quadratic has the same curvature everywhere: only the gradient differs in the tube.
    assert measured.smoothness == pytest.approx(known.smoothness, rel=1e-10)
    assert measured.growth == pytest.approx(known.growth, rel=1e-10)
    assert measured.gradient_size == pytest.approx(gradients(name).max(), rel=1e-6)


# --- the guarantee --------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUADRATICS)
def test_descent_on_quadratics_stays_within_the_tolerance(name):
    eigenvalues, _ = QUADRATICS[name]
    known, _ = quadratic_bounds(name)
    learning_rate, start = float(known), ROTATION.T @ START
    steps = np.arange(int(TIME / learning_rate) + 1)[:, None]
    flow = np.exp(-steps * learning_rate * eigenvalues)
    descent = (1 - learning_rate * eigenvalues) ** steps
    assert len(steps) > 100
    assert 0 < in_norm((flow - descent) * start).max() <= TOLERANCE
    # So it is not above the propagated bound, where the leading error meets the tolerance:
    # ė = −A e + (η/2) A² θ, e(0) = 0.
    leading = learning_rate / 2 * (steps * learning_rate) * eigenvalues**2 * flow
    assert in_norm(leading * start).max() <= TOLERANCE


# A loss, the ends of its second derivative, and its gradient and gradient flow from x.
BOUNDED = {
    # ẋ = −tanh x
    "log cosh": (
        (1.0, 0.0),
        (0.0, 1.0),
        np.tanh,
        lambda x, t: np.arcsinh(np.sinh(x) * np.exp(-t)),
    ),
    "minus log cosh": (
        (-1.0, 0.0),
        (-1.0, 0.0),
        lambda x: -np.tanh(x),
        lambda x, t: np.arcsinh(np.sinh(x) * np.exp(t)),
    ),
    # ẋ = sin x: away from a maximum, over the steepest place, to a minimum
    "cosine": (
        (0.0, 1.0),
        (-1.0, 1.0),
        lambda x: -np.sin(x),
        lambda x, t: 2 * np.arctan(np.tan(x / 2) * np.exp(t)),
    ),
}


@pytest.mark.parametrize("tolerance", [1e-3, 1e-1])
@pytest.mark.parametrize("name", BOUNDED)
def test_descent_on_a_loss_of_bounded_curvature_stays_within_the_tolerance(name, tolerance):
    weights, curvature, gradient, flow = BOUNDED[name]
    problem, start = cf.Problem(bounded, jnp.array(weights)), 0.4
    options = {"time": TIME, "tolerance": tolerance, "records": 20}
    known = cf.elkabetz_cohen_bound(problem, jnp.array(start), curvature=curvature, **options)
    assert known.guaranteed
    learning_rate, x, errors = float(known), start, []
    for step in range(int(TIME / learning_rate) + 1):
        errors.append(abs(flow(start, step * learning_rate) - x))
        x = x - learning_rate * gradient(x)
    assert len(errors) > 10
    assert 0 < max(errors) <= tolerance
    # On the flow itself the curvature is not always at its ends.
    measured = cf.elkabetz_cohen_bound(problem, jnp.array(start), **options)
    assert measured.smoothness < known.smoothness
    assert measured.gradient_size < known.gradient_size
    assert measured.growth < known.growth
    assert float(measured) > float(known)


@pytest.mark.parametrize("records", [1, 3, None])
def test_a_guaranteed_bound_knows_the_largest_gradient_of_the_flow(records):
    # It is met between two records, on the way from a maximum to a minimum.
    weights, curvature, gradient, flow = BOUNDED["cosine"]
    problem, start = cf.Problem(bounded, jnp.array(weights)), 0.01
    options = {"time": 10.0, "tolerance": 1e-3, "curvature": curvature}
    known = cf.elkabetz_cohen_bound(problem, jnp.array(start), records=records, **options)
    largest = abs(gradient(flow(start, np.linspace(0, 10, 1000)))).max()
    assert known.guaranteed
    assert known.gradient_size >= largest


@pytest.mark.parametrize(
    ("matrix", "start"),
    [(np.eye(2), np.zeros(2)), (np.zeros((2, 2)), np.ones(2))],
    ids=["at rest", "no curvature"],
)
def test_where_descent_is_exact_every_learning_rate_will_do(matrix, start):
    problem = cf.Problem(quadratic, jnp.asarray(matrix))
    bound = cf.elkabetz_cohen_bound(problem, jnp.asarray(start), time=1.0, tolerance=1e-2)
    assert float(bound) == np.inf


# --- bad input ------------------------------------------------------------------------------

VALID = {"time": 1.0, "tolerance": 1e-2}
BOWL = cf.Problem(quadratic, jnp.eye(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": 0.0}, r"`time` must be positive and finite, got 0\.0"),
        ({"time": -1.0}, "`time` must be positive and finite, got -1"),
        ({"time": np.nan}, "`time` must be positive and finite, got nan"),
        ({"tolerance": 0.0}, r"`tolerance` must be positive and finite, got 0\.0"),
        ({"tolerance": -1.0}, "`tolerance` must be positive and finite, got -1"),
        ({"records": 0}, "`records` must be from 1 to .*, got 0"),
        ({"curvature": (2.0, 1.0)}, r"`curvature` must be the lowest and then"),
        ({"curvature": (0.0, np.inf)}, "both finite, got"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        cf.elkabetz_cohen_bound(BOWL, jnp.ones(2), **(VALID | change))


@pytest.mark.parametrize("curvature", [(1.0,), (1.0, 2.0, 3.0), 1.0, "two"])
def test_curvature_is_two_numbers(curvature):
    # Asked directly: of the bound itself, under test, the type checker would be the first to ask.
    with pytest.raises(TypeError, match="`curvature` must be two numbers, the lowest and the high"):
        require_curvature(curvature)


def test_a_field_that_is_no_gradient_is_refused():
    solved = zoo.predator_prey()
    with pytest.raises(ValueError, match=r"is one for a loss, got a problem given by .*from_grad"):
        cf.elkabetz_cohen_bound(solved.problem, solved.params, **VALID)
