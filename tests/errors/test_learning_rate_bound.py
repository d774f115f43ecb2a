"""Bounds on the learning rate: the paper's corollaries, the propagated one, and real runs."""

from functools import cache, partial

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import counterflow as cf
import zoo
from counterflow.errors.requirements import require_horizon, require_tolerance


def loss(z, coefficients):
    """Quadratic and quartic in the distance from a parabola, quadratic along it."""
    bend, quadratic, quartic, along = coefficients
    u = z[0] - bend * z[1] ** 2
    return quadratic * u**2 / 2 + quartic * u**4 / 4 + along * z[1] ** 2 / 2


def problem(*coefficients, weight_decay=0.0):
    """A problem of the family above: all of them are one compiled program."""
    return cf.Problem(loss, jnp.array(coefficients), weight_decay)


# A start near a curved stable manifold, where errors grow and local ones do not say so.
CURVED = problem(1.0, -1.0, 1.0, 4.0), jnp.array([0.09343725222527155, 1.0])
SADDLE = problem(0.0, -1.0, 0.0, 4.0), jnp.array([0.1, 1.0])
BOWL = problem(0.0, 0.5, 0.0, 2.0, weight_decay=0.25), jnp.array([1.0, -0.4])
QUARTIC = problem(0.0, 0.0, 1.0, 0.0), jnp.array([1.0, 0.0])
HILL = problem(0.0, 0.0, -1.0, 0.0), jnp.array([1.0, 0.0])


@cache
def problem_and_start(name):
    family = {
        "curved": CURVED,
        "saddle": SADDLE,
        # already along the unstable direction
        "leaving": (SADDLE[0], jnp.array([0.1, 1e-4])),
        "bowl": BOWL,
        "quartic": QUARTIC,
        "hill": HILL,
        "double well": (problem(0.0, -1.0, 1.0, 0.0, weight_decay=0.1), jnp.array([0.3, 0.0])),
    }
    if name in family:
        return family[name]
    if name == "network":
        return zoo.network()
    solved = zoo.SOLVED[name]()
    return solved.problem, solved.params


# The matrix of `g = Aθ`, of the quadratic ones.
MATRICES = {
    "saddle": np.diag([-1.0, 4.0]),
    "leaving": np.diag([-1.0, 4.0]),
    "bowl": np.diag([0.75, 2.25]),
    "quadratic": zoo.symmetric_matrix() + 0.25 * np.eye(5),
}
# The equation for the learning rate is solved to 1e-3.
CLOSE = 2e-3


@cache
def bound_of(name, kind, **options):
    """The bound of a problem, computed once."""
    problem, start = problem_and_start(name)
    return cf.learning_rate_bound(problem, start, kind=kind, **options)


def linear_flow(matrix, start, times, learning_rate=None, order=0):
    """The flow of an order of a linear field, one row per time; descent itself if order is None."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    rates = eigenvalues
    if order is None:
        rates = -np.log1p(-learning_rate * eigenvalues) / learning_rate
    elif order > 0:
        powers = range(1, order + 2)
        rates = sum(learning_rate ** (n - 1) * eigenvalues**n / n for n in powers)
    modes = np.exp(-np.outer(times, rates)) * (vectors.T @ np.asarray(start))
    return modes @ vectors.T


def real_error(matrix, start, times, learning_rate):
    """The discretization error of gradient flow of a linear field at multiples of `η`, exactly."""
    flow = linear_flow(matrix, start, times)
    return flow - linear_flow(matrix, start, times, learning_rate, order=None)


def in_norm(vectors):
    return np.linalg.norm(vectors, axis=1)


# --- the paper's bound ----------------------------------------------------------------------


def corollary(matrix, start, tolerance, order, steps=None, time=None):
    """Corollaries 4.2 (order 0), A.1 (order 1) and on, for a linear field, by bisection.

    `η^{γ+2} = (tolerance / k) (γ + 2) / max ‖A^{γ+2} θ‖`, where `A^{γ+2} θ / (γ + 2)` is `ξ̃_γ`;
    for γ = 0 its norm is `½ ‖(H + λI) g‖`.
    """

    def excess(logarithm):
        learning_rate = np.exp(logarithm)
        horizon = time if time is not None else steps * learning_rate
        count = horizon / learning_rate
        times = np.linspace(0, horizon, 2000)
        points = linear_flow(matrix, start, times, learning_rate, order)
        largest = in_norm(points @ np.linalg.matrix_power(matrix, order + 2)).max()
        allowed = tolerance / count * (order + 2) / largest
        return (order + 2) * logarithm - np.log(allowed)

    return np.exp(brentq(excess, np.log(1e-9), np.log(0.3)))


@pytest.mark.parametrize(
    ("name", "order", "tolerance", "horizon"),
    [
        ("quadratic", 0, 1e-2, {"time": 3.0}),
        ("bowl", 0, 1e-2, {"steps": 300}),
        ("leaving", 0, 1e-2, {"time": 3.0}),
        ("leaving", 0, 1.0, {"steps": 100}),
        ("leaving", 1, 1e-1, {"time": 3.0}),
        ("leaving", 1, 1e-1, {"steps": 20}),
        ("leaving", 2, 1e-2, {"time": 3.0}),
        ("leaving", 2, 1e-2, {"steps": 20}),
    ],
)
def test_local_bound_is_the_papers_on_quadratics(name, order, tolerance, horizon):
    bound = bound_of(name, "local", tolerance=tolerance, order=order, **horizon)
    start = problem_and_start(name)[1]
    expected = corollary(MATRICES[name], start, tolerance, order, **horizon)
    assert float(bound) == pytest.approx(expected, rel=CLOSE)
    if "time" in horizon:
        assert (bound.time, bound.steps) == (3.0, int(3.0 / float(bound)))
    else:
        steps = horizon["steps"]
        assert (bound.time, bound.steps) == (steps * float(bound), steps)
    assert bound.worst_time == (bound.time if name == "leaving" else 0)


def test_with_steps_the_maximum_is_taken_as_far_as_they_reach():
    bound = bound_of("leaving", "local", tolerance=1.0, order=0, steps=100)
    matrix, start = MATRICES["leaving"], problem_and_start("leaving")[1]
    at_the_start = np.sqrt(1.0 / 100 * 2 / np.linalg.norm(matrix @ matrix @ start))
    assert float(bound) < 0.9 * at_the_start


@pytest.mark.parametrize("horizon", [{"time": 2.0}, {"steps": 100}])
def test_local_bound_of_order_1_is_corollary_a1(horizon):
    # Descent speeds up before it slows down, so that the maximum is not at the start.
    problem, start = cf.Problem(loss, CURVED[0].data, 0.1), jnp.array([0.6, 0.4])
    bound = cf.learning_rate_bound(problem, start, tolerance=1e-2, order=1, **horizon)
    learning_rate = float(bound)

    def product(point, vector):
        return jax.jvp(problem.gradient, (point,), (vector,))[1]

    def field(theta):  # 4 (H + λI)² g + gᵀ ∇H g
        g = problem.gradient(theta)
        along = jax.jvp(lambda point: product(point, g), (theta,), (g,))[1]
        return 4 * product(theta, product(theta, g)) + along

    flow = cf.EquationOfMotion(problem, learning_rate, order=1)
    points = cf.solve(flow, start, np.linspace(0, bound.time, 401), rtol=1e-6).params
    largest = in_norm(jax.jit(jax.vmap(field))(points)).max()
    count = bound.time / learning_rate
    assert count * learning_rate**3 * largest / 12 == pytest.approx(1e-2, rel=CLOSE)
    assert bound.worst == pytest.approx(largest / 12, rel=CLOSE)
    assert count == pytest.approx(horizon.get("steps", 2.0 / learning_rate))
    assert 0 < bound.worst_time < bound.time
    assert f"equation of motion of order 1 at η = {learning_rate:.4g}" in bound.evaluated


# --- the propagated bound -------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [1e-4, 1e-2])
@pytest.mark.parametrize("name", ["saddle", "bowl"])
def test_propagated_bound_is_where_the_leading_error_meets_the_tolerance(name, tolerance):
    bound = bound_of(name, "propagated", time=3.0, tolerance=tolerance)
    matrix, start = MATRICES[name], problem_and_start(name)[1]
    learning_rate = float(bound)
    times = np.linspace(0, 3, 3001)
    # ė = −A e + (η/2) A² e^{−At} θ, e(0) = 0
    flow = linear_flow(matrix, start, times)
    leading = learning_rate / 2 * times[:, None] * (flow @ matrix @ matrix)
    sizes = in_norm(leading)
    worst = int(np.argmin(abs(times - bound.worst_time)))
    assert bound.worst == pytest.approx(sizes[worst], rel=CLOSE)
    assert sizes.max() <= tolerance
    # Equal to the tolerance but for what is kept in reserve: twice its own error, everywhere.
    real = real_error(matrix, start, times, learning_rate)
    doubts = in_norm(leading - real)
    assert bound.uncertainty == pytest.approx(doubts[worst] / sizes[worst], rel=0.1)
    assert bound.worst * (1 + 2 * bound.uncertainty) == pytest.approx(tolerance, rel=CLOSE)
    assert (sizes + 2 * doubts).max() == pytest.approx(tolerance, rel=1e-2)
    assert in_norm(real).max() <= tolerance


@pytest.mark.parametrize(
    ("name", "kind"), [("saddle", "local"), ("saddle", "propagated"), ("bowl", "propagated")]
)
def test_more_tolerance_allows_a_larger_learning_rate(name, kind):
    tolerances = (1e-4, 1.1e-4, 1e-2)
    bounds = [float(bound_of(name, kind, time=3.0, tolerance=each)) for each in tolerances]
    assert bounds[0] < bounds[1] < bounds[2]
    # To leading order in proportion; what is kept in reserve takes from the largest.
    assert bounds[1] / bounds[0] == pytest.approx(1.1, rel=CLOSE)
    assert bounds[2] / bounds[0] == pytest.approx(100, rel=CLOSE if kind == "local" else 0.3)


@pytest.mark.parametrize("kind", ["local", "propagated"])
def test_steps_and_time_say_the_same(kind):
    by_time = bound_of("saddle", kind, time=3.0, tolerance=1e-4)
    steps = round(3.0 / float(by_time))
    assert steps > 1000  # so that rounding it is nothing
    by_steps = bound_of("saddle", kind, steps=steps, tolerance=1e-4)
    assert float(by_steps) == pytest.approx(float(by_time), rel=CLOSE)
    assert by_steps.steps == steps
    assert abs(by_time.steps - steps) <= 1


# --- real runs ------------------------------------------------------------------------------

verified = partial(bound_of, verify=True)


@pytest.mark.parametrize(("time", "low", "high"), [(8.0, 1.5, 1.7), (10.0, 9.0, 10.0)])
def test_the_local_bound_is_broken_near_a_curved_stable_manifold(time, low, high):
    assert low < verified("curved", "local", time=time, tolerance=1e-2).slack < high


@pytest.mark.parametrize("time", [8.0, 10.0])
def test_the_propagated_bound_is_met_near_a_curved_stable_manifold(time):
    assert 0.95 <= verified("curved", "propagated", time=time, tolerance=1e-2).slack <= 1


@pytest.mark.parametrize("kind", ["local", "propagated"])
def test_both_bounds_are_met_on_a_quadratic_saddle(kind):
    bound = verified("saddle", kind, time=8.0, tolerance=1e-2)
    assert 0.95 <= bound.slack <= 1 + 1e-3
    times = float(bound) * np.rint(np.linspace(0, bound.steps, 1000))
    real = real_error(MATRICES["saddle"], SADDLE[1], times, float(bound))
    assert bound.slack == pytest.approx(in_norm(real).max() / 1e-2, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "order", "tolerance"),
    [
        ("quartic", 0, 1e-2),
        ("quartic", 1, 1e-3),
        ("double well", 0, 1e-2),
        ("predator-prey", 0, 1e-2),
        ("network", 0, 1e-2),
    ],
)
def test_the_propagated_bound_holds_in_a_real_run(name, order, tolerance):
    bound = verified(name, "propagated", time=2.0, tolerance=tolerance, order=order)
    # The less certain the prediction, the more there is to spare.
    assert 0.95 / (1 + 2 * bound.uncertainty) - 0.05 < bound.slack <= 1
    # The run once more, at other steps and tolerances than the library chose.
    problem, start = problem_and_start(name)
    steps = np.unique(np.rint(np.linspace(0, bound.steps, 200)).astype(int))
    times = float(bound) * steps
    descent = cf.solve(cf.GradientDescent(problem, float(bound)), start, times)
    flow = cf.EquationOfMotion(problem, float(bound), order)
    flow = cf.solve(flow, start, times, rtol=1e-10, solver=diffrax.Tsit5())
    pairs = zip(jax.tree.leaves(flow.params), jax.tree.leaves(descent.params), strict=True)
    squares = sum(np.sum((a - b).reshape(len(times), -1) ** 2, axis=1) for a, b in pairs)
    assert bound.slack == pytest.approx(np.sqrt(squares.max()) / tolerance, rel=CLOSE)


def test_slack_sees_an_error_that_comes_and_goes_early():
    one_rate, start = problem(0.0, 1.0, 0.0, 1.0), jnp.array([1.0, 0.0])
    options = {"time": 200.0, "tolerance": 1e-2, "kind": "propagated", "verify": True}
    bound = cf.learning_rate_bound(one_rate, start, **options)
    times = float(bound) * np.arange(bound.steps)
    real = real_error(np.eye(2), start, times, float(bound))
    assert bound.slack == pytest.approx(in_norm(real).max() / 1e-2, rel=0.02)


# --- beyond the theory's reach --------------------------------------------------------------


@pytest.mark.parametrize(
    "tolerance",
    [
        1e-2,
        1e-1,
        1.0,
        100.0,
    ],
)
def test_a_bound_that_a_real_run_breaks_says_that_it_is_uncertain(tolerance):
    bound = verified("quartic", "propagated", time=2.0, tolerance=tolerance, order=0)
    assert bound.slack <= 1 or bound.uncertainty > 0.2


def test_a_flow_that_cannot_be_run_counts_as_an_infinite_error():
    # f = −x⁴/4: gradient flow from 1 is 1/√(1 − 2t), and ξ̃_0 = 3/2 x⁵. At the first guess, 0.26,
    # ten steps reach beyond t = 1/2.
    bound = bound_of("hill", "local", steps=10, tolerance=1.0)
    expected = brentq(lambda h: 10 * h**2 * 1.5 * (1 - 20 * h) ** -2.5 - 1, 1e-3, 0.0499)
    assert float(bound) == pytest.approx(expected, rel=CLOSE)
    assert bound.worst_time == bound.time < 0.5


def test_where_no_flow_reaches_the_horizon_there_is_no_bound():
    with pytest.raises(RuntimeError, match=r"could not be run to the horizon.*shorter `time`"):
        cf.learning_rate_bound(HILL[0], jnp.array([10.0, 0.0]), time=2.0, tolerance=1.0)


def test_a_real_run_that_diverges_has_infinite_slack():
    bound = cf.learning_rate_bound(*QUARTIC, steps=10, tolerance=100.0, verify=True)
    assert float(bound) > 2
    assert bound.slack == np.inf


# --- what comes back ------------------------------------------------------------------------


def test_a_bound_is_a_number_and_says_what_it_is():
    bound = bound_of("bowl", "local", time=3.0, tolerance=1e-2)
    assert float(bound) == bound.learning_rate
    assert (bound.kind, bound.order, bound.tolerance, bound.time) == ("local", 0, 1e-2, 3.0)
    assert bound.uncertainty is None
    assert bound.slack is None
    assert bound.evaluated == (
        "the maximum of ‖ξ̃_0‖ along gradient flow from 0 to t = 3, at 200 times"
    )
    assert repr(bound) == (
        f"LearningRateBound({float(bound):.4g}: local, order 0, ‖e_k‖ ≤ 0.01 for {bound.steps} "
        "steps, t = 3)"
    )


def test_a_propagated_bound_says_how_uncertain_it_is_and_what_a_run_reached():
    bound = verified("quartic", "propagated", time=2.0, tolerance=1e-2, order=0)
    assert "along gradient flow from 0 to t = 2" in bound.evaluated
    assert "ė = −(H + λI)e + η^1 ξ̃_0" in bound.evaluated
    assert f"predicted to ± {100 * bound.uncertainty:.2g} %" in repr(bound)
    assert f"a real run reaches {bound.slack:.3g} of the tolerance" in repr(bound)


def test_of_a_higher_order_it_says_along_which_equation_of_motion():
    bound = verified("quartic", "propagated", time=2.0, tolerance=1e-3, order=1)
    flow = f"along the equation of motion of order 1 at η = {float(bound):.4g} from 0 to t = 2"
    assert flow in bound.evaluated
    assert "order 1" in repr(bound)


def test_each_learning_rate_tried_is_told_and_the_last_is_the_bound():
    told = []
    leaving = problem_and_start("leaving")  # whose error is the largest at the end
    bound = cf.learning_rate_bound(*leaving, **VALID, progress=lambda *each: told.append(each))
    counts, rates = zip(*told, strict=True)
    assert counts == tuple(range(1, len(told) + 1))
    assert len(set(rates)) > 1
    assert rates[-1] == float(bound)


def test_whoever_is_told_may_interrupt():
    def interrupt(count, learning_rate):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cf.learning_rate_bound(*BOWL, **VALID, progress=interrupt)


# --- bad input ------------------------------------------------------------------------------

VALID = {"time": 1.0, "tolerance": 1e-2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tolerance": 0.0}, r"`tolerance` must be positive and finite, got 0\.0"),
        ({"tolerance": -1.0}, "`tolerance` must be positive and finite, got -1"),
        ({"tolerance": np.nan}, "`tolerance` must be positive and finite, got nan"),
        ({"time": None, "steps": 0}, "`steps` must be from 1 to .*, got 0"),
        ({"time": 0.0}, r"`time` must be positive and finite, got 0\.0"),
        ({"time": np.inf}, "`time` must be positive and finite, got inf"),
        ({"steps": 10}, "`steps` or `time` must be given, one of the two, got both"),
        ({"time": None}, "one of the two, got neither"),
        ({"order": -1}, "`order` must be at least 0, got -1: 0 is gradient flow"),
        ({"kind": "global"}, "`kind` must be 'local' or 'propagated', got 'global'"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        cf.learning_rate_bound(*BOWL, **(VALID | change))


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: require_tolerance("small"), "`tolerance` must be a number, got 'small' of type s"),
        (lambda: require_tolerance(True), "`tolerance` must be a number, got True of type bool"),
        (lambda: require_horizon(1.5, None), r"`steps` must be an integer, got 1\.5 of type float"),
        (lambda: require_horizon(None, "long"), "`time` must be a number, got 'long' of type str"),
        (
            lambda: cf.learning_rate_bound.__wrapped__(*BOWL, **VALID, progress="bar"),
            "`progress` must be a function of the learning rates tried .*, got 'bar'",
        ),
    ],
)
def test_a_wrong_type_is_named(check, message):
    # Asked directly: of the bound itself, under test, the type checker would be the first to ask.
    with pytest.raises(TypeError, match=message):
        check()


def test_at_rest_there_is_nothing_to_bound():
    with pytest.raises(ValueError, match=r"vanishes at `params`.* at a point at rest"):
        cf.learning_rate_bound(BOWL[0], jnp.zeros(2), **VALID)


def test_an_inflection_point_is_not_a_point_at_rest():
    # f = x⁴ − 3x²/2: at x = 1/2 the curvature is zero, and the gradient is not.
    inflection, start = problem(0.0, -3.0, 4.0, 0.0), jnp.array([0.5, 0.0])
    bound = cf.learning_rate_bound(inflection, start, **VALID)
    beside = cf.learning_rate_bound(inflection, start + jnp.array([1e-9, 0.0]), **VALID)
    assert float(bound) == pytest.approx(float(beside), rel=CLOSE)


def test_the_bound_of_an_orbit_flow_is_its_own():
    # Its remainder at order 1 is not ξ̃_1 on a nonlinear problem, so its bound is another one.
    options = {"time": 2.0, "tolerance": 1e-3, "order": 1, "kind": "propagated", "verify": True}
    orbit = cf.learning_rate_bound(*QUARTIC, method="orbit", **options)
    taylor = verified("quartic", "propagated", time=2.0, tolerance=1e-3, order=1)
    assert 0.8 < orbit.slack <= 1
    assert float(orbit) < 0.9 * float(taylor)
