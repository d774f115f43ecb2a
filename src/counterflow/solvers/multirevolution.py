"""Many steps of gradient descent at once: a Runge–Kutta method for the difference equation.

`N` steps of descent, `θ_{k+1} = θ_k − ηg(θ_k)`, are the result of a Runge–Kutta method with `N`
stages, every coefficient of which is `1/N`. A method with seven stages that meets the same order
conditions makes nearly the same step `H = Nη`. So the conditions of the classical methods remain,
except that sums stand where integrals stood, polynomials in `ν = 1/N`:

    Σ_i b_i c_i^q = Σ_{n<N} n^q / N^{q+1},   Σ_j a_ij c_j = c_i (c_i − ν)/2,   and so on.

As `N → ∞` it is a classical method for gradient flow; and the equation of motion of every order is
in the conditions, at one gradient a stage. Such methods are called multirevolution methods (Calvo,
Jay, Montijano, Rández, Numerische Mathematik 97, 2004). This one is of order 5 in `H`, built as
Dormand and Prince built theirs, whose coefficients it has at `ν = 0`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..problem.tree import add_scaled, weighted_sum

#: The gradients that a step takes: the last stage is the first one of the next step.
STAGES = 6
# Where the third to the sixth stage are, over 1 − ν, the place of the last step of descent.
_NODES = (3 / 10, 4 / 5, 8 / 9, 1.0)
# The weight of the seventh stage in the estimate of the error; the others follow.
_LAST_WEIGHT = 1 / 40


class Coefficients(NamedTuple):
    """The method for `N` steps of descent.

    Attributes:
        matrix: `a_ij`, of the first six stages.
        weights: `b_i`, which make the step.
        error: What makes the estimate of its error, of seven stages.
    """

    matrix: Float[Array, "6 6"]
    weights: Float[Array, "6"]
    error: Float[Array, "7"]


def coefficients(count: Any) -> Coefficients:
    """The coefficients for `count` steps of descent at once, which must be more than 4."""
    nu = 1 / jnp.asarray(count)
    nodes = [node * (1 - nu) for node in _NODES]
    # The second node is where the third stage is as accurate as the later ones.
    c = jnp.stack([jnp.zeros_like(nu), (2 * nodes[0] - nu) / 3, *nodes])
    others = jnp.array([0, 2, 3, 4, 5])
    powers = c[others][None, :] ** jnp.arange(5)[:, None]
    b = jnp.zeros(6, c.dtype).at[others].set(jnp.linalg.solve(powers, _moments(nu)))
    matrix = _matrix(nu, c, b)
    return Coefficients(matrix, b, _error_weights(c, b, matrix))


def _moments(nu: Any) -> Array:
    """`Σ_{n<N} n^q / N^{q+1}` for q from 0 to 4."""
    return jnp.stack(
        [
            jnp.ones_like(nu),
            (1 - nu) / 2,
            (1 - nu) * (2 - nu) / 6,
            (1 - nu) ** 2 / 4,
            (1 - nu) * (2 - nu) * (3 - nu * (3 + nu)) / 30,
        ]
    )


def _matrix(nu: Any, c: Array, b: Array) -> Array:
    """The `a_ij`, row by row."""
    # Every stage from the third on integrates, or rather adds up, degrees one and two exactly.
    once, twice = c * (c - nu) / 2, c * (c - nu) * (2 * c - nu) / 6
    a = jnp.zeros((6, 6), c.dtype).at[2, 1].set(once[2] / c[1])

    def both(degree_one: Any, degree_two: Any, i: int, j: int) -> tuple[Any, Any]:
        """The weights of two nodes with given sums of degree one and two."""
        difference = c[j] - c[i]
        return (
            (degree_one * c[j] - degree_two) / (c[i] * difference),
            (degree_two - degree_one * c[i]) / (c[j] * difference),
        )

    a42, a43 = both(once[3], twice[3], 1, 2)
    a = a.at[3, 1].set(a42).at[3, 2].set(a43)
    # The second stage, which is less accurate, must not be seen: Σ b_i a_i2 = Σ b_i c_i a_i2 = 0.
    seen = b[2] * (c[2] - c[5]) * a[2, 1] + b[3] * (c[3] - c[5]) * a42
    a52 = -seen / (b[4] * (c[4] - c[5]))
    a53, a54 = both(once[4] - a52 * c[1], twice[4] - a52 * c[1] ** 2, 2, 3)
    a = a.at[4, 1].set(a52).at[4, 2].set(a53).at[4, 3].set(a54)
    # Σ_i b_i a_ij = b_j (1 − c_j − ν) determines the last row.
    last = (b * (1 - c - nu) - b @ a) / b[5]
    a = a.at[5, 1:5].set(last[1:5])
    return a.at[:, 0].set(c - jnp.sum(a, axis=1))


def _error_weights(c: Array, b: Array, matrix: Array) -> Array:
    """The difference of the weights from others of order 4, which also use the seventh stage."""
    c = jnp.append(c, 1.0)
    second = jnp.append(matrix[:, 1], b[1])
    rows = jnp.concatenate([c[None, :] ** jnp.arange(4)[:, None], second[None, :]])
    free = jnp.array([0, 2, 3, 4, 5])
    found = jnp.linalg.solve(rows[:, free], -_LAST_WEIGHT * rows[:, 6])
    return jnp.zeros(7, c.dtype).at[free].set(found).at[6].set(_LAST_WEIGHT)


def leap(
    gradient: Callable[[PyTree], PyTree],
    params: PyTree,
    gradient_there: PyTree,
    learning_rate: Any,
    count: Any,
) -> tuple[PyTree, PyTree, PyTree]:
    """The params after `count` steps of descent, the gradient there, and the estimated error."""
    method = coefficients(jnp.asarray(count, jnp.result_type(*jax.tree.leaves(params))))
    distance = -learning_rate * count
    slopes = [gradient_there]
    for row in method.matrix[1:]:
        weights = [distance * weight for weight in row[: len(slopes)]]
        slopes.append(gradient(weighted_sum((1, *weights), (params, *slopes))))
    weights = [distance * weight for weight in method.weights]
    end = add_scaled(params, 1, weighted_sum(weights, slopes))
    slopes.append(gradient(end))
    error = weighted_sum([distance * weight for weight in method.error], slopes)
    return end, slopes[-1], error
