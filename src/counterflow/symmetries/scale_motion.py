"""How a scale-invariant layer turns: the equation of motion of its direction `θ̂_A`.

Theorem C.1 of the paper with its misprints corrected: `∇_A f` is taken at `θ̂_A + θ_{A^c}`, H_A at
θ, and the last part of the effective learning rate carries a factor `1/r_A`.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..dynamics.equation_of_motion import EquationOfMotion
from ..problem.numbers import require_learning_rate
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import add_scaled, zeros_like
from .requirements import require_scale, require_symmetry
from .scale import Scale


class EffectiveLearningRate(NamedTuple):
    """The four parts of the velocity of `θ̂_A` at order 1, each shaped like the params.

    Their sum is `−(1/r_A²) E ∇_A f(θ̂_A + θ_{A^c})`, where the operator E is the sum of

    Attributes:
        identity: `I`: gradient flow, with the effective learning rate `1/r_A²`.
        curvature: `(η/2) H_A(θ)`.
        surroundings: `(η/2) (∇_{A^c} f(θ) + λθ_{A^c})·∇_{A^c}`: what the rest of the network does.
        projection: `(η/2) (1/r_A) θ̂_A ∇_A^T f(θ)`, which keeps the velocity on the sphere.
        velocity: Their sum.
    """

    identity: PyTree
    curvature: PyTree
    surroundings: PyTree
    projection: PyTree

    @property
    def velocity(self) -> PyTree:
        """The velocity of `θ̂_A`, the sum of the parts; zero outside of A."""
        return jax.tree.map(lambda *parts: sum(parts), *self)


def direction_velocity(
    problem: Problem,
    scale: Scale,
    params: PyTree,
    learning_rate: Any,
    order: int = 1,
    method: str = "taylor",
) -> PyTree:
    """The velocity of `θ̂_A` along a flow of any order (Theorem C.1, first equation).

    `−(1/r²) ∇_A f(θ̂_A + θ_{A^c}) + (η/r) ((θ̂_A·ξ_A) θ̂_A − ξ_A)`, zero outside of A.

    Args:
        problem: The problem, with its weight decay.
        scale: The scale-invariant layer A, or its units.
        params: Where along the flow.
        learning_rate: The η of gradient descent.
        order: The order γ of the flow.
        method: How the counter terms are computed, as for `EquationOfMotion`.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)
        >>> cf.direction_velocity(problem, cf.Scale(""), jnp.array([0.0, 2.0]), 0.5).round(4)
        Array([-0.25,  0.  ], dtype=float64)
    """
    flow = EquationOfMotion(problem, learning_rate, order, method)
    params = at_the_door(problem, params)
    require_scale(scale)
    require_symmetry(scale, problem, params)
    return _direction_velocity(flow, scale, params)


@eqx.filter_jit
def _direction_velocity(flow: EquationOfMotion, scale: Scale, params: PyTree) -> PyTree:
    radius, direction = scale.radius(params), scale.direction(params)
    field = scale.selection.restrict(flow.problem.loss_gradient(scale.on_sphere(params)))
    counter = scale.selection.restrict(flow.velocity_and_counter(params)[1])
    outward = scale.selection.sum(jax.tree.map(jnp.multiply, direction, counter))
    along = _times(scale, outward, direction)
    turned = _times(scale, 1 / radius, add_scaled(along, -1, counter))
    return add_scaled(turned, -1, _times(scale, radius**-2, field))


def effective_learning_rate(
    problem: Problem, scale: Scale, params: PyTree, learning_rate: Any
) -> EffectiveLearningRate:
    """The velocity of `θ̂_A` at order 1 in the four parts of Theorem C.1.

    Of several units, each is a layer of its own, and the others belong to its surroundings; the
    curvature then costs a Hessian-vector product per unit.

    Args:
        problem: The problem, with its weight decay.
        scale: The scale-invariant layer A, or its units.
        params: Where along the flow.
        learning_rate: The η of gradient descent.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)
        >>> parts = cf.effective_learning_rate(problem, cf.Scale(""), jnp.array([0.6, 0.8]), 0.5)
        >>> parts.identity.round(3), parts.curvature.round(3), parts.projection.round(3)
        (Array([-0.64,  0.48], dtype=float64), Array([0.192, 0.056], dtype=float64),
         Array([-0.096, -0.128], dtype=float64))
    """
    learning_rate = require_learning_rate(learning_rate)
    params = at_the_door(problem, params)
    require_scale(scale)
    require_symmetry(scale, problem, params)
    return _effective_learning_rate(problem, scale, params, learning_rate)


@eqx.filter_jit
def _effective_learning_rate(
    problem: Problem, scale: Scale, params: PyTree, learning_rate: Any
) -> EffectiveLearningRate:
    radius, direction = scale.radius(params), scale.direction(params)
    gradient, sphere = problem.loss_gradient(params), scale.on_sphere(params)
    field = scale.selection.restrict(problem.loss_gradient(sphere))
    force = add_scaled(gradient, problem.weight_decay, params)
    units = jnp.reshape(radius, (-1,)).size
    shape = radius.shape

    def of_unit(index: Any) -> tuple[PyTree, PyTree]:
        """The curvature and the surroundings of one unit, which is alone inside."""
        one = jnp.reshape(jnp.zeros(units, radius.dtype).at[index].set(1), shape)
        inside = scale.selection.spread(one, params)

        def within(tree: PyTree) -> PyTree:
            return jax.tree.map(jnp.multiply, tree, inside)

        outside_force = add_scaled(force, -1, within(force))
        curvature = jax.jvp(problem.loss_gradient, (params,), (within(field),))[1]
        # On the sphere of this unit alone: the others stay where they are.
        alone = jax.tree.map(
            lambda leaf, mask, on: jnp.where(mask != 0, on, leaf), params, inside, sphere
        )
        surroundings = jax.jvp(problem.loss_gradient, (alone,), (outside_force,))[1]
        return within(curvature), within(surroundings)

    def add_unit(index: Any, sums: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        return jax.tree.map(jnp.add, sums, of_unit(index))

    zeros = (zeros_like(params), zeros_like(params))
    curvature, surroundings = jax.lax.fori_loop(0, units, add_unit, zeros)
    inner = scale.selection.sum(jax.tree.map(jnp.multiply, gradient, field))
    effective, half = radius**-2, jnp.asarray(learning_rate / 2, radius.dtype)
    return EffectiveLearningRate(
        identity=_times(scale, -effective, field),
        curvature=_times(scale, -half * effective, curvature),
        surroundings=_times(scale, -half * effective, surroundings),
        projection=_times(scale, -half * effective * inner / radius, direction),
    )


def _times(scale: Scale, factors: Float[Array, "*units"], tree: PyTree) -> PyTree:
    """Each unit of the tree times its factor, zero outside."""
    return jax.tree.map(jnp.multiply, scale.selection.spread(factors, tree), tree)


def angular_update(scale: Scale, before: PyTree, after: PyTree) -> Float[Array, "*units"]:
    """The angle Δ between `θ̂_A` at two params, for each unit; `cos Δ = θ̂_A·θ̂'_A`.

    Args:
        scale: The scale-invariant layer A, or its units.
        before: The params at step k, or of a flow at time t.
        after: The params at step k + 1, or of the flow at t + η.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> cf.angular_update(cf.Scale(""), jnp.array([1.0, 0.0]), jnp.array([2.0, 2.0])).round(4)
        Array(0.7854, dtype=float64)
    """
    first, second = scale.direction(before), scale.direction(after)

    def length(tree: PyTree) -> Array:
        return jnp.sqrt(scale.selection.sum(jax.tree.map(jnp.square, tree)))

    # The inverse cosine would lose half the digits of a small angle.
    apart, together = add_scaled(first, -1, second), add_scaled(first, 1, second)
    return 2 * jnp.arctan2(length(apart), length(together))
