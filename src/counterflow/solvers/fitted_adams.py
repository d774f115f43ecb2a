"""The members of a family of Adams methods that fit their history instead of interpolating it.

An explicit Adams method integrates a polynomial through past slopes. Through as many points as it
has coefficients, it amplifies what alternates from step to step, and its interval of stability is
short: 0.3 for order 4. A polynomial of the same degree *fitted* to more points smooths that away.
The interval grows with the window, here up to 2.1 for order 4, for the same single evaluation per
step, and the price is a larger constant of the error. Which order and which window take the longest
step depends on how smooth and how stiff a flow is just now.

Polynomials are fitted by orthogonal ones, from Stieltjes' recurrence on the points there are, so
that steps may have any lengths.
"""

from fractions import Fraction
from functools import cache
from math import comb
from typing import Any, NamedTuple

import jax
import numpy as np

#: (order, window) of every member: the number of coefficients and of the slopes they are fitted to.
MEMBERS = (
    *((1, 1), (2, 2), (2, 3), (2, 5), (2, 8), (2, 12)),
    *((3, 4), (3, 5), (3, 7), (3, 9), (3, 11), (3, 13)),
    *((4, 5), (4, 6), (4, 8), (4, 10), (4, 12), (4, 14)),
    *((5, 6), (5, 7), (5, 9), (5, 11), (5, 13), (5, 15)),
    *((6, 7), (6, 8), (6, 10), (6, 12), (6, 14)),
    *((7, 8), (7, 9), (7, 11), (7, 13), (7, 15)),
    *((8, 9), (8, 10), (8, 12), (8, 14)),
)
ORDERS, WINDOWS = np.array(MEMBERS).T
#: The longest history that any member looks at.
LONGEST = int(WINDOWS.max())

# By what factor a slope counts less than the one after it, by order: what gives long intervals.
_DECAY = {1: 1.0, 2: 0.7, 3: 0.8, 4: 0.8, 5: 0.9}
_DECAYS = np.array([_DECAY.get(int(order), 1.0) for order in ORDERS])
# Eigenvalues may be this angle off the negative real axis.
_ANGLE = 0.1
# A fit to the slope at the end of a step as well is to go through that one, nearly.
_NEWEST = 10.0


def _rule(count: int) -> np.ndarray:
    """Gauss' points on [0, 1], and their shares in an integral."""
    points, shares = np.polynomial.legendre.leggauss(count)
    return np.array([(1 + points) / 2, shares / 2])


# Exact for the integral of every polynomial that occurs, which is of degree 8 at most.
_INTEGRAL = _rule(5)
# Enough points for every linear functional of such a polynomial.
_POINTS, _SHARES = _rule(9)


class Fits(NamedTuple):
    """How all members continue a history by one step of length one.

    Attributes:
        steps: (members, history): the weights of past slopes in the step.
        errors: (members, 1 + history): the weights of the slope at its end and of past slopes in
            the estimate of its error.
    """

    steps: Any
    errors: Any


def fits(times: Any, known: Any, xp: Any = np, count: Any = None) -> Fits:
    """All members on a history.

    Args:
        times: (history,): the times of past slopes, the latest first, at zero; the step ends at 1.
        known: How many of them there are. Members with longer windows are of no use.
        xp: NumPy, or JAX's NumPy.
        count: Of how many steps of Euler's method this one is to be the sum, instead of following
            the flow itself.
    """
    rule = _INTEGRAL if count is None else _mean_rule(count, xp)
    places = xp.arange(LONGEST)[None, :]
    within = (places < xp.asarray(WINDOWS)[:, None]) & (places < known)
    counts = xp.where(within, xp.asarray(_DECAYS)[:, None] ** places, 0)
    newest = xp.full((len(MEMBERS), 1), _NEWEST)
    steps = _integral(rule, times[None, :], counts, ORDERS, xp)
    corrected = _integral(
        rule,
        xp.concatenate([xp.ones((1, 1)), times[None, :]], axis=1),
        xp.concatenate([newest, counts], axis=1),
        ORDERS + 1,
        xp,
    )
    errors = corrected - xp.concatenate([xp.zeros_like(newest), steps], axis=1)
    return Fits(steps, errors)


def _mean_rule(count: Any, xp: Any) -> Any:
    """Points and shares for the mean `Σ_{n<N} p(n/N) / N` of a polynomial, of N = `count` values.

    Of `x^q` it is `Σ_j binom(q, j) B_j N^{−j} / (q + 1 − j)`, with the numbers `B_j` of Bernoulli
    (Faulhaber's formula).
    """
    powers = (1 / count) ** xp.arange(len(_POINTS))
    return xp.asarray(_POINTS), xp.asarray(_mean_shares()) @ powers


@cache
def _mean_shares() -> np.ndarray:
    """(points, powers): the shares of points in a mean of N values, as polynomials in `1/N`."""
    size = len(_POINTS)
    bernoulli = [Fraction(1)]
    for n in range(1, size):
        known = sum((comb(n + 1, j) * bernoulli[j] for j in range(n)), Fraction(0))
        bernoulli.append(-known / (n + 1))
    # Of Legendre's polynomials on [0, 1], whose coefficients are whole numbers.
    means = np.zeros((size, size))
    for degree in range(size):
        for j in range(degree + 1):
            terms = [
                (-1) ** (degree + q)
                * comb(degree, q)
                * comb(degree + q, q)
                * Fraction(comb(q, j), q + 1 - j)
                * bernoulli[j]
                for q in range(j, degree + 1)
            ]
            means[degree, j] = float(sum(terms))
    legendre = np.polynomial.legendre.legvander(2 * _POINTS - 1, size - 1)
    return _SHARES[:, None] * ((2 * np.arange(size) + 1) * legendre) @ means


def _integral(rule: Any, nodes: Any, counts: Any, orders: np.ndarray, xp: Any) -> Any:
    """The weights of values at nodes in the integral over [0, 1] of polynomials fitted to them.

    Args:
        rule: The points of a quadrature, and their shares.
        nodes: (1, values): where they are.
        counts: (members, values): how much each counts in the sum of squares.
        orders: (members,): how many coefficients the polynomial has.
        xp: NumPy, or JAX's NumPy.
    """
    # Constants of a program in single precision have to be so themselves.
    points, shares = (xp.asarray(some)[None, :] for some in rule)
    limits = xp.asarray(orders[:, None])

    def positive(squares: Any) -> Any:
        root = xp.sqrt(squares)
        return xp.where(root > 0, root, 1)

    def next_degree(degree: Any, carry: Any) -> Any:
        """Adds the share of one orthonormal polynomial, and goes on to the next.

        They are kept by their values at the nodes and at the points of the quadrature.
        """
        found, length, (here, there), (here_before, there_before) = carry
        share = xp.sum(shares * there, axis=1, keepdims=True)
        found = found + (degree < limits) * counts * here * share
        centre = xp.sum(counts * nodes * here**2, axis=1, keepdims=True)
        next_here = (nodes - centre) * here - length * here_before
        next_there = (points - centre) * there - length * there_before
        length = positive(xp.sum(counts * next_here**2, axis=1, keepdims=True))
        return found, length, (next_here / length, next_there / length), (here, there)

    size = positive(xp.sum(counts, axis=1, keepdims=True))
    first = xp.ones_like(counts) / size, xp.ones((len(orders), points.size)) / size
    nothing = xp.zeros_like(counts)
    carry = (nothing, xp.zeros_like(size), first, (nothing, xp.zeros_like(first[1])))
    if xp is not np:  # a loop in the program, which is shorter and compiles sooner
        return jax.lax.fori_loop(0, int(orders.max()), next_degree, carry)[0]
    for degree in range(int(orders.max())):
        carry = next_degree(degree, carry)
    return carry[0]


@cache
def reaches() -> np.ndarray:
    """How long a step of each member may be, times the spectral radius, to be stable.

    For steps of one length. A slope `−zy` makes of the step a recurrence, whose roots must not be
    outside of the unit circle, for every z up to there and within an angle of the real axis.
    """
    steps = fits(-np.arange(LONGEST, dtype=float), LONGEST).steps
    found = np.array([_reach(weights) for weights in steps])
    found.setflags(write=False)
    return found


def _reach(weights: np.ndarray) -> float:
    low, high = 0.0, 8.0
    for _ in range(3):  # the first of so many points beyond which it is unstable, ever finer
        grid = np.linspace(low, high, 41)[1:]
        beyond = np.flatnonzero(_radius(weights, grid) > 1 + 1e-9)
        if not len(beyond):
            return high
        high, low = float(grid[beyond[0]]), float(grid[beyond[0]] - (high - low) / 40)
    return low


def _radius(weights: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The largest root of the recurrence for each z, on the real axis and at the angle from it."""
    at = np.concatenate([z, z * np.exp(1j * _ANGLE)])
    matrices = np.zeros((len(at), LONGEST, LONGEST), complex)
    matrices[:, 0] = -at[:, None] * weights
    matrices[:, 0, 0] += 1
    matrices[:, np.arange(1, LONGEST), np.arange(LONGEST - 1)] = 1
    largest = np.abs(np.linalg.eigvals(matrices)).max(axis=1)
    return largest.reshape(2, -1).max(axis=0)
