"""The velocity of the equation of motion from gradients alone, along real descent steps.

`order + 1` gradients met in `order` steps of gradient descent give the velocity up to
`O(η^{order+1})`. Its remainder differs from that of the exact truncation, and it yields the sum,
not single counter terms; but it works wherever there is a gradient.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import comb
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..problem.tree import add_scaled, norm, scaled
from .update_rule import descend
from .weights import velocity_weights

Gradient = Callable[[PyTree], PyTree]


def velocity(gradient: Gradient, params: PyTree, learning_rate: Any, order: int) -> PyTree:
    """`dθ/dt = −Σ_j w_j g(θ_j)` over `order + 1` gradients, without a division by η."""
    weights = velocity_weights(tuple(range(order + 1)))
    return _along_orbit(gradient, params, learning_rate, [[-w for w in weights]])[0]


def velocity_and_remainder(
    gradient: Gradient, params: PyTree, learning_rate: Any, order: int
) -> tuple[PyTree, PyTree]:
    """The velocity, and the first difference that it drops, from `order + 2` gradients.

    The remainder is this velocity minus the one of the next order, `(−1)^{γ+1}/(γ + 2) Δ^{γ+1} g`.
    """
    rows = [_velocity_row(order, order + 2), _dropped_row(order, order + 2)]
    velocity, remainder = _along_orbit(gradient, params, learning_rate, rows)
    return velocity, remainder


def velocity_and_tail(
    gradient: Gradient, params: PyTree, learning_rate: Any, order: int
) -> tuple[PyTree, Float[Array, ""]]:
    """The velocity, and about how large all that it drops is, from `order + 2` gradients.

    The tail is that of a geometric series through the last difference kept and the first dropped;
    where they do not shrink, twenty times the latter.
    """
    size = order + 2
    rows = [_velocity_row(order, size), _dropped_row(order - 1, size), _dropped_row(order, size)]
    velocity, kept, dropped = _along_orbit(gradient, params, learning_rate, rows)
    before, after = norm(kept), norm(dropped)
    ratio = jnp.minimum(after / jnp.where(before > 0, before, 1), 0.95)
    return velocity, after / (1 - ratio)


def _velocity_row(order: int, size: int) -> list[Fraction]:
    """The weights of the velocity of an order, for gradients at `size` nodes."""
    weights = [-w for w in velocity_weights(tuple(range(order + 1)))]
    return weights + [Fraction(0)] * (size - len(weights))


def _dropped_row(order: int, size: int) -> list[Fraction]:
    """The weights of the first difference that an order drops."""
    here, further = _velocity_row(order, size), _velocity_row(order + 1, size)
    return [a - b for a, b in zip(here, further, strict=True)]


def _along_orbit(
    gradient: Gradient, params: PyTree, learning_rate: Any, rows: Sequence[Sequence[Fraction]]
) -> tuple[PyTree, ...]:
    """The sums `Σ_j row[j] g(θ_j)` along the orbit, one for each row of weights."""
    first, *others = [[float(weight) for weight in column] for column in zip(*rows, strict=True)]
    start = gradient(params)
    totals = tuple(scaled(weight, start) for weight in first)

    def body(carry, weights):
        point, slope, totals = carry
        point = descend(point, slope, learning_rate)
        slope = gradient(point)
        totals = tuple(add_scaled(t, w, slope) for t, w in zip(totals, weights, strict=True))
        return (point, slope, totals), None

    if others:
        (_, _, totals), _ = jax.lax.scan(body, (params, start, totals), jnp.array(others))
    return totals


def difference_sizes(
    gradient: Gradient, params: PyTree, learning_rate: Any, count: int
) -> Float[Array, " terms"]:
    """The sizes `‖Δ^m g‖/(m + 1)` for `m = 0 … count`, from `count + 1` gradients.

    For a quadratic loss they are `‖g‖` and `η^m ‖ξ̃_{m−1}‖`; else of the same order in η.
    """
    # Δ^m g_0 = Σ_j (−1)^{m−j} C(m, j) g_j: summed along the orbit, so that no gradient is stored.
    table = [[(-1) ** (m - j) * comb(m, j) for m in range(count + 1)] for j in range(count + 1)]

    def body(carry, row):
        point, differences = carry
        slope = gradient(point)
        differences = jax.tree.map(
            lambda d, s: d + jnp.multiply.outer(row.astype(s.dtype), s), differences, slope
        )
        return (descend(point, slope, learning_rate), differences), None

    zeros = jax.tree.map(lambda leaf: jnp.zeros((count + 1, *leaf.shape), leaf.dtype), params)
    (_, differences), _ = jax.lax.scan(body, (params, zeros), jnp.array(table, dtype=float))
    return jax.vmap(norm)(differences) / jnp.arange(1, count + 2)
