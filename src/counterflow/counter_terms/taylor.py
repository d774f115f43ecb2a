"""Counter terms by Taylor mode in η: exact, at a cost polynomial in the order.

Treat the learning rate as a formal variable. The orbit of gradient descent through `params`,
continued backwards as well, is a power series in η at each step index; its velocity at `params` is
the equation of motion's, `−(g + Σ η^{α+1} ξ̃_α)`, coefficient by coefficient. An orbit centred on
`params` keeps all digits: the one that only goes forward loses one or two with every order.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..problem.tree import add_scaled, scaled, zeros_like
from .taylor_mode import TaylorMode
from .update_rule import ascend_coefficient, descend_series
from .weights import velocity_weights

Gradient = Callable[[PyTree], PyTree]


def nodes_for(count: int) -> tuple[int, ...]:
    """The step indices used for `count` counter terms: `count + 1` of them, centred on zero.

    >>> nodes_for(3)
    (-1, 0, 1, 2)
    """
    behind = count // 2
    return tuple(range(-behind, count - behind + 1))


def counter_terms(gradient: Gradient, params: PyTree, count: int) -> tuple[PyTree, ...]:
    """The series of the equation of motion, `(g, ξ̃_0, …, ξ̃_{count−1})`."""
    mode = TaylorMode(gradient, params)
    if count == 0:
        return (mode.value,)
    nodes = nodes_for(count)
    weights = dict(zip(nodes, map(float, velocity_weights(nodes)), strict=True))
    zero = zeros_like(params)
    start = (params, *[zero] * count)
    gradient_at_start = (mode.value, *[zero] * count)

    def backward(carry, weight):
        ahead, total = carry
        series = mode.begin()
        point, values = [params], [mode.value]
        for degree in range(1, count + 1):
            point.append(ascend_coefficient(ahead[degree], values[-1]))
            values.append(series.extend(point[-1]))
        return (tuple(point), _accumulate(total, weight, values)), None

    def forward(carry, weight):
        point, total = carry
        series = mode.begin()
        values = [mode.value, *map(series.extend, point[1:])]
        return (descend_series(point, tuple(values)), _accumulate(total, weight, values)), None

    total = tuple(scaled(weights[0], term) for term in gradient_at_start)
    behind = jnp.array([weights[node] for node in reversed(nodes) if node < 0])
    ahead = jnp.array([weights[node] for node in nodes if node > 0])
    if len(behind):
        (_, total), _ = jax.lax.scan(backward, (start, total), behind, unroll=len(behind) == 1)
    first = descend_series(start, gradient_at_start)
    (_, total), _ = jax.lax.scan(forward, (first, total), ahead, unroll=len(ahead) == 1)
    return (mode.value, *total[1:])


def _accumulate(
    total: tuple[PyTree, ...], weight: jax.Array, values: list[PyTree]
) -> tuple[PyTree, ...]:
    return tuple(add_scaled(a, weight, b) for a, b in zip(total, values, strict=True))


def gradient_evaluations(count: int) -> int:
    """The cost of `count` counter terms in gradients, each new coefficient counted as two.

    >>> [gradient_evaluations(count) for count in range(4)]
    [1, 3, 9, 19]
    """
    return 1 + 2 * count * count
