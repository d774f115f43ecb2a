"""Rescale: multiplying one layer and dividing another, as in linear and ReLU networks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .selection import Axis, Paths, Selection, as_group
from .symmetry import Symmetry, broadcast, require_positive


@dataclass(frozen=True, repr=False)
class Rescale(Symmetry):
    """The rescaling `θ_{A1} → α θ_{A1}, θ_{A2} → θ_{A2} / α`, α > 0.

    Its charge is the difference of squared norms, `‖θ_{A1}‖² − ‖θ_{A2}‖²`. It holds between any two
    layers of a linear or ReLU network, and per hidden unit between neighbours: a unit's incoming
    weights and its bias against its outgoing weights.

    Args:
        first: The leaf A1 by its path, or a group of paths.
        second: The leaf A2 by its path, or a group of paths.
        axis: By default one α for all. For one per unit, the axis of each leaf along which its
            units are numbered, by path: `axis={"first": 1, "second": 0}`; or one axis for all.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> params = {"first": jnp.array([[3.0, 1.0]]), "second": jnp.array([[2.0], [1.0]])}
        >>> cf.Rescale("first", "second").charge(params)
        Array(5., dtype=float64)
        >>> cf.Rescale("first", "second", axis={"first": 1, "second": 0}).charge(params)
        Array([5., 0.], dtype=float64)
    """

    first: Selection
    second: Selection

    def __init__(self, first: Paths, second: Paths, axis: Axis = None):
        if isinstance(axis, Mapping):
            _require_same_paths(first, second, axis)
        for name, paths in (("first", first), ("second", second)):
            object.__setattr__(self, name, Selection(paths, _axis_of(paths, axis)))

    def __repr__(self) -> str:
        first, second = (Selection(side.paths) for side in (self.first, self.second))
        if self.first.axis is None or self.second.axis is None:
            return f"Rescale({first!r}, {second!r})"
        if self.first.axis == self.second.axis:
            return f"Rescale({first!r}, {self.second!r})"
        axes = [side.axis for side in (self.first, self.second)]
        by_path = {path: axis for side in axes for path, axis in side}  # pyright: ignore
        return f"Rescale({first!r}, {second!r}, axis={by_path})"

    @property
    def charge_degree(self) -> int:
        return 2

    def identity(self, params: PyTree) -> Float[Array, "*units"]:
        if self.first.overlaps(self.second, params):
            raise ValueError(
                "the two sides of a rescaling must not share a leaf, got "
                f"{self.first!r} and {self.second!r}"
            )
        first, second = self.first.sum(params), self.second.sum(params)
        if first.shape != second.shape:
            raise ValueError(
                "the two sides of a rescaling must have the same number of units, got "
                f"{first.shape} and {second.shape}: give the axis of each leaf by its path"
            )
        return jnp.ones_like(first)

    def transform(self, params: PyTree, alpha: Any) -> PyTree:
        alpha = broadcast(alpha, self.identity(params))
        require_positive(alpha)
        params = self.first.apply(jnp.multiply, params, alpha)
        return self.second.apply(jnp.divide, params, alpha)


def _require_same_paths(first: Paths, second: Paths, axis: Mapping[str, int]) -> None:
    given = (*as_group(first), *as_group(second))
    missing = [path for path in given if path not in axis]
    if missing:
        raise ValueError(
            f"`axis` must name every path given, but {missing} are missing from {dict(axis)}"
        )
    unknown = [path for path in axis if path not in given]
    if unknown:
        raise ValueError(
            f"`axis` must name only the paths given, {list(given)}, got {unknown} besides"
        )


def _axis_of(paths: Paths, axis: Axis) -> Axis:
    """The part of the axes that concerns one side."""
    return {path: axis[path] for path in as_group(paths)} if isinstance(axis, Mapping) else axis
