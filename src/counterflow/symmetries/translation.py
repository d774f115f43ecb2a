"""Translation: adding the same number to all weights, as before a softmax."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .selection import Axis, Paths, Selection
from .symmetry import Symmetry, broadcast


@dataclass(frozen=True, repr=False)
class Translation(Symmetry):
    """The translation `ψ(θ, α) = θ + α 1_A`; its charge is the sum of weights, `1_A·θ`.

    A linear layer with weights of shape (inputs, outputs) before a softmax or a layer normalization
    is translation-invariant per input unit: `axis=0`.

    Args:
        paths: The leaf A by its path, or a group of paths; a path to several leaves takes all.
        axis: One translation per unit along this axis, by default one for all of A. For a group
            with different axes, a dictionary by path.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> params = {"hidden": jnp.ones((2, 2)), "readout": jnp.array([[1.0, 2.0], [3.0, 4.0]])}
        >>> cf.Translation("readout").charge(params)
        Array(10., dtype=float64)
        >>> cf.Translation("readout", axis=0).charge(params)
        Array([3., 7.], dtype=float64)
        >>> cf.Translation("readout").transform(params, 0.5)["readout"]
        Array([[1.5, 2.5],
               [3.5, 4.5]], dtype=float64)
    """

    selection: Selection

    def __init__(self, paths: Paths, axis: Axis = None):
        object.__setattr__(self, "selection", Selection(paths, axis))

    def __repr__(self) -> str:
        return f"Translation({self.selection!r})"

    @property
    def charge_degree(self) -> int:
        return 1

    def identity(self, params: PyTree) -> Float[Array, "*units"]:
        return jnp.zeros_like(self.selection.sum(params))

    def transform(self, params: PyTree, alpha: Any) -> PyTree:
        alpha = broadcast(alpha, self.identity(params))
        return self.selection.apply(jnp.add, params, alpha)

    def perpendicular(self, params: PyTree) -> PyTree:
        """`θ_{A⊥} = Pθ_A`: each unit's mean at all its entries, zero outside of A."""
        selection = self.selection
        mean = selection.sum(params) / selection.sizes(params)
        return selection.spread(mean, params)

    def parallel(self, params: PyTree) -> PyTree:
        """`θ_{A∥} = θ_A − θ_{A⊥}`, zero outside of A."""
        inside = self.selection.restrict(params)
        return jax.tree.map(jnp.subtract, inside, self.perpendicular(params))
