"""Scale: multiplying weights by a number, as before a normalization."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .selection import Axis, Paths, Selection
from .symmetry import Symmetry, broadcast, require_positive


@dataclass(frozen=True, repr=False)
class Scale(Symmetry):
    """The scaling `ψ(θ, α) = α θ_A + θ_{A^c}`, α > 0; its charge is the squared norm `‖θ_A‖²`.

    A linear layer with weights of shape (inputs, outputs) before batch normalization is
    scale-invariant per output unit, `axis=1`; before layer normalization as a whole.

    Args:
        paths: The leaf A by its path, or a group of paths; a path to several leaves takes all.
        axis: One scale per unit along this axis, by default one for all of A. For a group with
            different axes, a dictionary by path.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> params = {"hidden": jnp.array([[3.0, 1.0], [4.0, 0.0]]), "readout": jnp.ones((2, 2))}
        >>> cf.Scale("hidden", axis=1).charge(params)
        Array([25.,  1.], dtype=float64)
        >>> cf.Scale("hidden", axis=1).radius(params)
        Array([5., 1.], dtype=float64)
        >>> cf.Scale("hidden").transform(params, 2.0)["hidden"]
        Array([[6., 2.],
               [8., 0.]], dtype=float64)
    """

    selection: Selection

    def __init__(self, paths: Paths, axis: Axis = None):
        object.__setattr__(self, "selection", Selection(paths, axis))

    def __repr__(self) -> str:
        return f"Scale({self.selection!r})"

    @property
    def charge_degree(self) -> int:
        return 2

    def identity(self, params: PyTree) -> Float[Array, "*units"]:
        return jnp.ones_like(self.selection.sum(params))

    def transform(self, params: PyTree, alpha: Any) -> PyTree:
        alpha = broadcast(alpha, self.identity(params))
        require_positive(alpha)
        return self.selection.apply(jnp.multiply, params, alpha)

    def radius(self, params: PyTree) -> Float[Array, "*units"]:
        """`r_A = ‖θ_A‖` of each unit."""
        return jnp.sqrt(self.selection.sum(jax.tree.map(jnp.square, params)))

    def direction(self, params: PyTree) -> PyTree:
        """`θ̂_A = θ_A / r_A`, zero outside of A."""
        inverse = self.selection.spread(1 / self.radius(params), params)
        return jax.tree.map(jnp.multiply, params, inverse)

    def on_sphere(self, params: PyTree) -> PyTree:
        """`θ̂_A + θ_{A^c}`: the params with every unit scaled to norm one."""
        return self.selection.apply(jnp.multiply, params, 1 / self.radius(params))
