"""A symmetry of the user's own, from its transformation alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .symmetry import Symmetry, broadcast


@dataclass(frozen=True, repr=False)
class CustomSymmetry(Symmetry):
    """The symmetry of any transformation `ψ(θ, α)`, its generator found by differentiation.

    Nothing is presumed: `residual` says whether the loss is invariant, `assumption` whether the
    generator is as Theorem B.1 needs it, and what rests on either checks it.

    Args:
        transformation: A function of params and α, differentiable in both at the identity.
        at: The α of the identity, one number or an array of one per unit.

    Example:
        A network with a squared activation, `f(a²b)`, is invariant under `a → αa, b → b/α²`:

        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> def transformation(params, alpha):
        ...     return {"a": alpha * params["a"], "b": params["b"] / alpha**2}
        >>> symmetry = cf.CustomSymmetry(transformation, at=1.0)
        >>> params = {"a": jnp.array(3.0), "b": jnp.array(2.0)}
        >>> print(symmetry.charge(params))  # a² − 2b²
        1.0
        >>> problem = cf.Problem(lambda p: (p["a"] ** 2 * p["b"] - 1) ** 2)
        >>> symmetry.residual(problem, params) < 1e-8
        True
    """

    transformation: Callable[[PyTree, Any], PyTree]
    at: Any

    def __init__(self, transformation: Callable[[PyTree, Any], PyTree], at: Any):
        if not callable(transformation):
            raise TypeError(
                "`transformation` must be a function of params and alpha, got "
                f"{type(transformation).__name__}"
            )
        value = np.asarray(at)
        if value.ndim > 1:
            raise ValueError(f"`at` must be one number or one per unit, got shape {value.shape}")
        object.__setattr__(self, "transformation", transformation)
        object.__setattr__(self, "at", float(value) if value.ndim == 0 else tuple(value.tolist()))

    def __repr__(self) -> str:
        name = getattr(self.transformation, "__name__", "transformation")
        return f"CustomSymmetry({name}, at={self.at})"

    @property
    def charge_degree(self) -> None:
        return None

    def identity(self, params: PyTree) -> Float[Array, "*units"]:
        return jnp.asarray(self.at, jnp.result_type(*jax.tree.leaves(params)))

    def transform(self, params: PyTree, alpha: Any) -> PyTree:
        alpha = broadcast(alpha, self.identity(params))
        there = self.transformation(params, alpha)
        shapes = [jax.tree.map(jnp.shape, tree) for tree in (params, there)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"`transformation` must return params shaped as they came, {shapes[0]}, got "
                f"{shapes[1]}"
            )
        return there
