"""What a symmetry is: a transformation of the params, and what follows from it alone."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import (
    add_scaled,
    inner,
    inside_transformation,
    is_concrete,
    norm,
    rounding_of,
)


class Symmetry(abc.ABC):
    """A transformation `ψ(θ, α)` that may leave a loss unchanged: `f(ψ(θ, α)) = f(θ)`.

    With one α per unit it is as many symmetries at once; whatever is said of a unit is then an
    array over units. Everything but the transformation itself is found by differentiation at the
    identity: the generator `G(θ) = ∂ψ/∂α` and the charge `θ·G(θ)`. Gradient flow without weight
    decay conserves the charge if `θ·((∇f·∇)G) = 0`, as for translation, scale and rescale. (For a
    rotation, `θ·G` vanishes by itself.)
    """

    @property
    @abc.abstractmethod
    def charge_degree(self) -> int | None:
        """The degree of the charge as a polynomial in θ, 1 or 2; `None` if it is neither."""

    @abc.abstractmethod
    def identity(self, params: PyTree) -> Float[Array, "*units"]:
        """The α, one per unit, whose transformation changes nothing."""

    @abc.abstractmethod
    def transform(self, params: PyTree, alpha: Any) -> PyTree:
        """The transformed params `ψ(θ, α)`, for one α or one per unit."""

    def generator(self, params: PyTree) -> PyTree:
        """The generator `G(θ) = ∂ψ/∂α` at the identity, shaped like `params`.

        Of several units, the sum of their generators.
        """
        identity = self.identity(params)
        moved = jax.jvp(
            lambda alpha: self.transform(params, alpha), (identity,), (jnp.ones_like(identity),)
        )
        return moved[1]

    def along_generator(self, params: PyTree, vector: PyTree) -> Float[Array, "*units"]:
        """`v·G(θ)` for each unit, of a vector shaped like `params`."""
        return jax.grad(lambda alpha: inner(vector, self.transform(params, alpha)))(
            self.identity(params)
        )

    def charge(self, params: PyTree) -> Float[Array, "*units"]:
        """The charge `θ·G(θ)` of each unit."""
        return self.along_generator(params, params)

    def generator_change(self, params: PyTree, vector: PyTree) -> Float[Array, "*units"]:
        """`θ·((v·∇)G(θ))` for each unit: the charge's change by that of the generator alone."""
        return jax.jvp(lambda point: self.along_generator(point, params), (params,), (vector,))[1]

    def residual(self, problem: Problem, params: PyTree) -> float:
        """How far the loss is from invariant at `params`, from the function itself.

        The largest `|f(ψ(θ, α)) − f(θ)|` over a few α around the identity, over what the same move
        could change: `‖ψ(θ, α) − θ‖` times the norm of the gradient over the parameters moved. It
        is about 1e-16 to 1e-10 for a symmetry, and of order one otherwise. Changes of the loss in
        its last digits are rounding: `√ε|f|`, with the dtype's ε, is added below.

        For a problem given by a vector field g, the largest `|g·G|` at such points, over `‖g‖‖G‖`
        of the parameters that the generator moves.
        """
        if not is_concrete((problem, params)) or inside_transformation():
            raise TypeError(
                "`residual` looks at values and cannot be traced: call it outside `jit`"
            )
        params = at_the_door(problem, params)
        random = np.random.default_rng(0)
        trials = [trial_residual(self, problem, params, random) for _ in range(_TRIALS)]
        return float(np.max(trials))  # not a number if one of them is not

    def assumption(self, problem: Problem, params: PyTree) -> float:
        """How far the assumption of Theorem B.1, `θ·((∇f·∇)G) = 0`, is from being met.

        The left side, at its largest over the units, over `‖θ‖‖∇f‖`. It is met by translation,
        scale and rescale, whose generators change with θ by a symmetric matrix or not at all.
        """
        return float(_assumption(self, problem, at_the_door(problem, params)))


_TRIALS = 3


def trial_residual(
    symmetry: Symmetry, problem: Problem, params: PyTree, random: np.random.Generator
) -> float:
    """The residual of one transformation with random α."""
    there = random_transform(symmetry, params, random)
    if problem.has_loss:
        return residual_of(problem, params, there)
    field, generator = problem.loss_gradient(there), symmetry.generator(there)
    along = float(jnp.max(jnp.abs(symmetry.along_generator(there, field))))
    could = float(norm(_where_moved(field, generator)) * norm(generator))
    return 0.0 if along == 0 else along / could


def random_transform(
    symmetry: Symmetry, params: PyTree, random: np.random.Generator, width: float = 1.0
) -> PyTree:
    """The params transformed with random α, within half the width around the identity."""
    identity = symmetry.identity(params)
    shift = width * random.uniform(-0.5, 0.5, identity.shape)
    return symmetry.transform(params, identity + jnp.asarray(shift, identity.dtype))


def residual_of(problem: Problem, params: PyTree, there: PyTree) -> float:
    """How far the loss is from being the same at two params, as `Symmetry.residual` has it."""
    # Compiled once for all symmetries of a problem, which enter as the params they lead to.
    return float(_loss_residual(problem, params, there))


@eqx.filter_jit
def _loss_residual(problem: Problem, params: PyTree, there: PyTree) -> Array:
    move = add_scaled(there, -1, params)
    loss, gradient = problem.loss(params), problem.loss_gradient(params)
    could = norm(move) * norm(_where_moved(gradient, move))
    rounding = rounding_of(params) ** 0.5 * jnp.abs(loss)
    change = jnp.abs(problem.loss(there) - loss)
    # What is not a number is no symmetry.
    return jnp.where(change == 0, 0, change / jnp.where(change == 0, 1, could + rounding))


def _where_moved(tree: PyTree, move: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(b != 0, a, 0), tree, move)


@eqx.filter_jit
def _assumption(symmetry: Symmetry, problem: Problem, params: PyTree) -> Array:
    gradient = problem.loss_gradient(params)
    left = jnp.max(jnp.abs(symmetry.generator_change(params, gradient)))
    size = norm(params) * norm(gradient)
    return jnp.where(left == 0, 0, left / jnp.where(left == 0, 1, size))


def broadcast(alpha: Any, identity: Float[Array, "*units"]) -> Float[Array, "*units"]:
    """One α for all units, or one per unit, as an array over units."""
    if jnp.shape(alpha) not in ((), identity.shape):
        raise ValueError(
            f"`alpha` must be one number or one per unit, an array of shape {identity.shape}, got "
            f"shape {jnp.shape(alpha)}: `identity(params)` has the right shape"
        )
    return jnp.broadcast_to(jnp.asarray(alpha, identity.dtype), identity.shape)


def require_positive(alpha: Array) -> None:
    """Raises if an α that is at hand is not positive."""
    if is_concrete(alpha) and not np.all(np.asarray(alpha) > 0):
        raise ValueError(f"`alpha` must be positive, got {alpha}: 1 changes nothing")
