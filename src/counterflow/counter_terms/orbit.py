"""The velocity of the equation of motion from gradients alone, along real descent steps.

`order + 1` gradients met in `order` steps of gradient descent give the velocity up to
`O(η^{order+1})`. Its remainder differs from that of the exact truncation, and it yields the sum,
not single counter terms; but it works wherever there is a gradient.
"""

from collections.abc import Callable
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
    first, *weights = map(float, velocity_weights(tuple(range(order + 1))))
    start = gradient(params)
    total = scaled(-first, start)

    def body(carry, weight):
        point, slope, total = carry
        point = descend(point, slope, learning_rate)
        slope = gradient(point)
        return (point, slope, add_scaled(total, -weight, slope)), None

    if order > 0:
        (_, _, total), _ = jax.lax.scan(body, (params, start, total), jnp.array(weights))
    return total


def difference_sizes(
    gradient: Gradient, params: PyTree, learning_rate: Any, count: int
) -> Float[Array, " terms"]:
    """The sizes `‖Δ^m g‖/(m + 1)` for `m = 0 … count`, from `count + 1` gradients.

    To leading order in η they are `‖g‖` and `η^m ‖ξ̃_{m−1}‖`; for a quadratic loss exactly so.
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
