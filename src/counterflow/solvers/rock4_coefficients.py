"""The coefficients of ROCK4, a stabilized explicit Runge–Kutta method of order four.

After Abdulle, *Fourth order Chebyshev methods with recurrence relation* (SIAM J. Sci. Comput. 23,
2002). The stability polynomial of `s` stages is `R(z) = P(z) W(z)`: `P`, of degree s − 4, is
orthogonal on [−ℓ, 0] with respect to the weight `W(z)²/√(1 − x²)`, `x = 1 + 2z/ℓ`, which keeps
`|R|` below one up to about `ℓ = 0.35 s²`, and which gives a recurrence of three terms for the
stages. `W`, of degree 4, is what makes `R(z) = exp(z) + O(z⁵)`. Each determines the other, so they
are iterated until they agree.

For problems that are not linear, the last four stages are those of a Runge–Kutta method whose
composition with the recurrence meets all eight conditions of order four. The trees of these
conditions are written here as nested lists: `[]` is a single node, `[[]]` one with a child.
"""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

#: The numbers of stages there are coefficients for; between them, the next larger one is taken.
STAGES = (*range(5, 13), 14, 16, 18, 20, 23, 26, 30, 35, 40, 46, 54, 64, 76, 90)

#: The largest `|R|` allowed away from the origin: what is stiff is damped by at least this.
RIPPLE = 0.95


class Coefficients(NamedTuple):
    """One method.

    Attributes:
        stages: The number of stages.
        reach: The length ℓ of the interval [−ℓ, 0] of stability.
        recurrence: For each stage j of the first s − 4, (μ, ν, κ) in
            `g_j = μ h f(g_{j−1}) + ν g_{j−1} + κ g_{j−2}`.
        matrix: The lower triangle of the finishing method: a21, a31, a32, a41, a42, a43.
        weights: Its weights b1 … b4.
        error: The weights of its four stages and of `f` at the end in the estimate of the error.
    """

    stages: int
    reach: float
    recurrence: np.ndarray
    matrix: np.ndarray
    weights: np.ndarray
    error: np.ndarray


@cache
def coefficients(stages: int) -> Coefficients:
    """The method with a number of stages."""
    guess = _START

    def excess(ratio: float) -> float:
        """By how much the ripple exceeds what is allowed, if `ℓ = ratio · s²`."""
        nonlocal guess
        reach = ratio * stages**2
        recurrence, guess = _polynomials(stages, reach, guess)
        return _ripple(recurrence, guess, reach) - RIPPLE

    low = 0.2 if stages < 8 else 0.29
    ratio = float(brentq(excess, low, 0.37, xtol=2e-4)) - 2e-4  # pyright: ignore
    reach = ratio * stages**2
    recurrence, _ = _polynomials(stages, reach, guess)
    begun = _series(recurrence, reach)
    matrix, weights = _finishing(_missing(begun))
    scaled = recurrence.copy()
    scaled[:, 1] += recurrence[:, 0]  # x = 1 + 2z/ℓ
    scaled[:, 0] *= 2 / reach
    return Coefficients(
        stages, reach, scaled, matrix, weights, _error_weights(begun, matrix, weights)
    )


# --- the stability polynomial -----------------------------------------------------------------

# Where the iteration for W starts: coefficients of 1, z, …, z⁴.
_START = np.array([1, 0.68, 0.24, 0.056, 0.01])
_EXPONENTIAL = np.array([1, 1, 1 / 2, 1 / 6, 1 / 24])


def _polynomials(stages: int, reach: float, guess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The recurrence of P in x, normalized to P(z = 0) = 1, and the coefficients of W."""
    weight = guess
    for iteration in range(200):
        recurrence = _orthogonal(stages - 4, weight, reach)
        completed = _completion(recurrence, reach)
        if np.max(np.abs(completed / weight - 1)) < 1e-13:
            return recurrence, completed
        weight = completed if iteration < 3 else (weight + completed) / 2
    # W completes P to order four in any case; that it is also P's weight is a matter of ripple.
    recurrence = _orthogonal(stages - 4, weight, reach)
    return recurrence, _completion(recurrence, reach)


def _orthogonal(degree: int, weight: np.ndarray, reach: float) -> np.ndarray:
    """(μ, ν, κ) of `P_{j+1} = (μx + ν) P_j + κ P_{j−1}`, by Stieltjes' procedure.

    Gauss–Chebyshev quadrature is exact for the products that occur.
    """
    nodes = np.cos((2 * np.arange(1, 2 * degree + 13) - 1) * np.pi / (4 * degree + 24))
    measure = np.polynomial.polynomial.polyval(reach * (nodes - 1) / 2, weight) ** 2
    before, here, norm = np.zeros_like(nodes), np.ones_like(nodes), 1.0
    rows = np.empty((degree, 3))
    for j in range(degree):
        last, norm = norm, float(measure @ here**2)
        centre = float(measure @ (nodes * here**2)) / norm
        back = float(measure @ (nodes * here * before)) / last if j else 0.0
        scale = 1 / (1 - centre - back)
        rows[j] = scale, -centre * scale, -back * scale
        before, here = here, ((nodes - centre) * here - back * before) * scale
    return rows


def _completion(recurrence: np.ndarray, reach: float) -> np.ndarray:
    """The coefficients of `exp(z)/P(z)` up to z⁴."""
    before, here = np.zeros(5), np.eye(5)[0]
    for scale, shift, back in recurrence:
        times_x = here + 2 / reach * np.concatenate([[0], here[:-1]])
        before, here = here, scale * times_x + shift * here + back * before
    found = np.zeros(5)
    for power in range(5):
        found[power] = _EXPONENTIAL[power] - found[:power] @ here[power:0:-1]
    return found


def _ripple(recurrence: np.ndarray, completion: np.ndarray, reach: float) -> float:
    """The largest `|R|` beyond the first time it falls to a half."""
    x = np.cos(np.linspace(0, np.pi, 60 * len(recurrence) + 400))
    values = stability(recurrence, completion, reach, x)
    return float(np.max(np.abs(values[np.argmax(values < 0.5) :])))


def stability(
    recurrence: np.ndarray, completion: np.ndarray, reach: float, x: np.ndarray
) -> np.ndarray:
    """`R` at `z = ℓ(x − 1)/2`."""
    before, here = np.zeros_like(x), np.ones_like(x)
    for scale, shift, back in recurrence:
        before, here = here, (scale * x + shift) * here + back * before
    return here * np.polynomial.polynomial.polyval(reach * (x - 1) / 2, completion)


# --- conditions of order four -----------------------------------------------------------------

# By tree: [], [[]], [[], []], [[[]]], [[], [], []], [[], [[]]], [[[], []]], [[[[]]]].
_EXACT = np.array([1, 1 / 2, 1 / 3, 1 / 6, 1 / 4, 1 / 8, 1 / 12, 1 / 24])


def _of_function(series: np.ndarray) -> np.ndarray:
    """The elementary weights of `h f(g)` from those of g: the products over a tree's children."""
    leaf, chain, bush, tall = series[:4]
    return np.array([1, leaf, leaf**2, chain, leaf**3, leaf * chain, bush, tall])


def _series(recurrence: np.ndarray, reach: float) -> np.ndarray:
    """The elementary weights of the last stage of the recurrence."""
    before, here = np.zeros(8), np.zeros(8)
    for scale, shift, back in recurrence:
        moved = here + 2 / reach * _of_function(here)
        before, here = here, scale * moved + shift * here + back * before
    return here


def _missing(begun: np.ndarray) -> np.ndarray:
    """The elementary weights that a method must have to complete another to order four.

    Those of the composition are, for every tree, the sum over the parts that contain the root:
    what the second method makes of the part, times what the first makes of the rest.
    """
    p1, p2, p3, p4, p5, p6, p7, p8 = begun
    e1, e2, e3, e4, e5, e6, e7, e8 = _EXACT
    w1 = e1 - p1
    w2 = e2 - p2 - w1 * p1
    w3 = e3 - p3 - w1 * p1**2 - 2 * w2 * p1
    w4 = e4 - p4 - w1 * p2 - w2 * p1
    w5 = e5 - p5 - w1 * p1**3 - 3 * w2 * p1**2 - 3 * w3 * p1
    w6 = e6 - p6 - w1 * p1 * p2 - w2 * (p2 + p1**2) - (w3 + w4) * p1
    w7 = e7 - p7 - w1 * p3 - w2 * p1**2 - 2 * w4 * p1
    w8 = e8 - p8 - w1 * p4 - w2 * p2 - w4 * p1
    return np.array([w1, w2, w3, w4, w5, w6, w7, w8])


def _finishing(wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matrix and the weights of four stages with given elementary weights.

    Two of the ten coefficients are free: of a grid of nodes, those whose coefficients are smallest.
    """
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    total = wanted[0]
    fourths = np.linspace(0.95, 1.15, 21)
    for second, third in product((0.35, 0.4, 0.45), (0.3, 0.35, 0.5, 0.55)):
        if second == third:
            continue

        def excess(fourth: float, second=second, third=third) -> float:
            return _tallest(wanted, total * np.array([second, third, fourth]))

        values = [excess(fourth) for fourth in fourths]
        for index in np.flatnonzero(np.diff(np.sign(values))):
            fourth = float(brentq(excess, fourths[index], fourths[index + 1], xtol=1e-15))  # pyright: ignore
            matrix, weights = _four_stages(wanted, total * np.array([second, third, fourth]))
            size = float(np.max(np.abs([*matrix, *weights])))
            if best is None or size < best[0]:
                best = (size, matrix, weights)
    assert best is not None
    return best[1], best[2]


def _tallest(wanted: np.ndarray, nodes: np.ndarray) -> float:
    """By how much four stages that fit all other trees miss the tallest one, times b3.

    Without that factor it had a pole where b3 vanishes, which looks like a root.
    """
    _, _, _, w4, _, w6, w7, w8 = wanted
    c2, c3, c4 = nodes
    _, b3, _ = _weights(wanted, nodes)
    b4_a43 = (w7 - w4 * c2) / (c3 * (c3 - c2))
    return b4_a43 * (w4 * c4 - w6) / (c4 - c3) - w8 * b3


def _weights(wanted: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The weights b2, b3, b4 for the trees without branches of their own."""
    return np.linalg.solve(np.array([nodes, nodes**2, nodes**3]), wanted[[1, 2, 4]])


def _four_stages(wanted: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matrix and the weights that fit all trees but the tallest."""
    w1, _, _, w4, _, w6, w7, _ = wanted
    c2, c3, c4 = nodes
    b2, b3, b4 = _weights(wanted, nodes)
    # The sums Σ_j a_ij c_j of the third and the fourth stage.
    third = (w4 * c4 - w6) / (c4 - c3) / b3
    fourth = (w6 - w4 * c3) / (c4 - c3) / b4
    a32 = third / c2
    a43 = (w7 - w4 * c2) / (c3 * (c3 - c2)) / b4
    a42 = (fourth - a43 * c3) / c2
    matrix = np.array([c2, c3 - a32, a32, c4 - a42 - a43, a42, a43])
    return matrix, np.array([w1 - b2 - b3 - b4, b2, b3, b4])


# How large the error estimate is, beside what the trees of order four contribute to the solution.
_ESTIMATE = 0.05


def _error_weights(begun: np.ndarray, matrix: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights of four stages and of the end that vanish to order three, but not to order four."""
    inner = _stage_series(begun, matrix)
    end = begun + weights @ np.array([_of_function(stage) for stage in inner])
    rows = np.array([_of_function(stage) for stage in (*inner, end)])
    _, _, directions = np.linalg.svd(rows[:, :4].T)
    found = directions[-1]
    size = np.linalg.norm(found @ rows[:, 4:]) / np.linalg.norm(_EXACT[4:])
    return found * (_ESTIMATE / size)


def _stage_series(begun: np.ndarray, matrix: np.ndarray) -> list[np.ndarray]:
    a21, a31, a32, a41, a42, a43 = matrix
    first = begun
    second = begun + a21 * _of_function(first)
    third = begun + a31 * _of_function(first) + a32 * _of_function(second)
    fourth = (
        begun + a41 * _of_function(first) + a42 * _of_function(second) + a43 * _of_function(third)
    )
    return [first, second, third, fourth]
