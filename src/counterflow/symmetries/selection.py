"""Which parameters a symmetry moves: leaves by their path, whole or one unit at a time."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..problem.tree import named_leaves

Paths = str | tuple[str, ...] | list[str]
Axis = int | Mapping[str, int] | None

# What a leaf that is not selected has in place of an axis.
_OUTSIDE = "outside"


@dataclass(frozen=True)
class Selection:
    """Leaves of a pytree by path, as one whole or as units along an axis of each.

    Args:
        paths: A path as JAX writes it (`"['layers'][0].weight"`) or in short (`"layers/0/weight"`,
            `"layers.0.weight"`), or a group of paths. A path that leads to more than one leaf
            selects them all; the empty path selects everything.
        axis: `None` for one unit, the whole selection; or the axis of every leaf along which its
            units are numbered, one axis for all leaves or by path.
    """

    paths: tuple[str, ...]
    axis: int | tuple[tuple[str, int], ...] | None

    def __init__(self, paths: Paths, axis: Axis = None):
        object.__setattr__(self, "paths", as_group(paths))
        object.__setattr__(self, "axis", _as_axis(axis))

    def __repr__(self) -> str:
        paths = repr(self.paths[0]) if len(self.paths) == 1 else repr(self.paths)
        if self.axis is None:
            return paths
        return f"{paths}, axis={dict(self.axis) if isinstance(self.axis, tuple) else self.axis}"

    def units(self, params: PyTree) -> tuple[int, ...]:
        """The shape of a number per unit: `()` for the whole, `(n,)` for n units."""
        lengths = {
            path: leaf.shape[axis]
            for path, leaf, axis in self._chosen(params)
            if isinstance(axis, int)
        }
        if not lengths:
            return ()
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{n} of {path}" for path, n in lengths.items())
            raise ValueError(
                f"the leaves of a symmetry must have the same number of units, got {listed}: give "
                "the axis of each leaf by its path, `axis={path: axis, …}`"
            )
        return (next(iter(lengths.values())),)

    def sizes(self, params: PyTree) -> Float[Array, "*units"]:
        """How many parameters each unit has."""
        return self.sum(jax.tree.map(jnp.ones_like, params))

    def sum(self, tree: PyTree) -> Float[Array, "*units"]:
        """The sum over the entries of each unit."""
        total = None
        for _, leaf, axis in self._chosen(tree):
            others = tuple(i for i in range(leaf.ndim) if i != axis)
            part = jnp.sum(leaf, axis=others)
            total = part if total is None else total + part
        assert total is not None
        return total

    def spread(self, values: Float[Array, "*units"], tree: PyTree) -> PyTree:
        """Each unit's value at all of its entries, zero outside; shaped like `tree`."""
        zeros = jax.tree.map(jnp.zeros_like, tree)
        return self.apply(jnp.add, zeros, values)

    def apply(
        self,
        operation: Callable[[Array, Array], Array],
        tree: PyTree,
        values: Float[Array, "*units"],
    ) -> PyTree:
        """The tree with an operation applied to each unit's entries and its value."""

        def at(leaf: Any, axis: Any) -> Any:
            if axis == _OUTSIDE:
                return leaf
            leaf = jnp.asarray(leaf)
            shape = [1] * leaf.ndim
            if isinstance(axis, int):
                shape[axis] = leaf.shape[axis]
            spread = jnp.broadcast_to(jnp.reshape(values, shape), leaf.shape)
            return operation(leaf, spread.astype(leaf.dtype))

        leaves, structure = jax.tree.flatten(tree)
        axes = self._axes(tree)
        return structure.unflatten(at(leaf, axis) for leaf, axis in zip(leaves, axes, strict=True))

    def restrict(self, tree: PyTree) -> PyTree:
        """`θ_A`: the tree, zero outside of the selection."""
        leaves, structure = jax.tree.flatten(tree)
        axes = self._axes(tree)
        return structure.unflatten(
            jnp.zeros_like(leaf) if axis == _OUTSIDE else leaf
            for leaf, axis in zip(leaves, axes, strict=True)
        )

    def overlaps(self, other: "Selection", params: PyTree) -> bool:
        """Whether two selections share a leaf."""
        pairs = zip(self._axes(params), other._axes(params), strict=True)
        return any(_OUTSIDE not in pair for pair in pairs)

    def _chosen(self, tree: PyTree) -> list[tuple[str, Any, int | None]]:
        named = named_leaves(tree).items()
        return [
            (path, jnp.asarray(leaf), axis)  # pyright: ignore[reportReturnType]
            for (path, leaf), axis in zip(named, self._axes(tree), strict=True)
            if axis != _OUTSIDE
        ]

    def _axes(self, tree: PyTree) -> list[int | str | None]:
        """For every leaf the axis of its units, `None` if it is in one unit, or outside."""
        named = named_leaves(tree)
        keys = spellings(tree)
        axes: dict[str, int | str | None] = dict.fromkeys(named, _OUTSIDE)
        for path in self.paths:
            for found in _leaves_at(path, keys):
                axes[found] = None
        if self.axis is None:
            return list(axes.values())
        given = dict.fromkeys(self.paths, self.axis) if isinstance(self.axis, int) else self.axis
        for path, axis in dict(given).items():
            for found in _leaves_at(path, keys):
                if axes[found] == _OUTSIDE:
                    raise ValueError(f"`axis` names the leaf {found}, which is not selected")
                axes[found] = _require_axis(axis, np.ndim(named[found]), found)
        without = [path for path, axis in axes.items() if axis is None]
        if without:
            raise ValueError(f"`axis` must be given for every leaf selected, but not for {without}")
        return list(axes.values())


def as_group(paths: Any) -> tuple[str, ...]:
    """One path or several as a group; raises unless there is one and all are text."""
    group = (paths,) if isinstance(paths, str) else paths
    is_group = isinstance(group, tuple | list) and len(group) > 0
    if not is_group or not all(isinstance(path, str) for path in group):
        raise TypeError(
            f"a symmetry needs the path of a leaf or a group of paths, got {paths!r}: "
            "write a path as 'layers/0/weight'"
        )
    return tuple(group)


def _as_axis(axis: Any) -> Any:
    if axis is None:
        return None
    values = list(axis.values()) if isinstance(axis, Mapping) else [axis]
    if any(isinstance(v, bool) or not isinstance(v, int | np.integer) for v in values):
        raise TypeError(
            f"`axis` must be an integer, a dictionary of integers by path, or None, got {axis!r}: "
            "units are numbered along an axis, None takes the leaves as a whole"
        )
    if isinstance(axis, Mapping):
        return tuple((str(path), int(value)) for path, value in axis.items())
    return int(axis)


def _require_axis(axis: int, dimensions: int, path: str) -> int:
    if not -dimensions <= axis < dimensions:
        raise ValueError(
            f"`axis` must be from 0 to {dimensions - 1} for the leaf {path}, got {axis}"
            if dimensions
            else f"`axis` must be None for the leaf {path}, which is a single number, got {axis}"
        )
    return axis % dimensions


def spellings(tree: PyTree) -> dict[str, tuple[str, ...]]:
    """For every leaf by its path, the other ways to write that path exactly, the shortest first."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        name: tuple(jax.tree_util.keystr(path, simple=True, separator=by) for by in "/.")
        for name, (path, _) in zip(named_leaves(tree), leaves, strict=True)
    }


def _leaves_at(path: str, spelled: dict[str, tuple[str, ...]]) -> list[str]:
    """The leaf of that path, or else all leaves below it."""
    exact = [name for name, others in spelled.items() if path == name or path in others]
    if exact and path:
        return exact
    wanted = _keys(path)
    found = [name for name, (short, *_) in spelled.items() if _keys(short)[: len(wanted)] == wanted]
    if not found:
        there = ", ".join(short or "''" for short, *_ in spelled.values())
        raise ValueError(
            f"a symmetry's path must lead to a leaf of the params, got {path!r}: there are {there}"
        )
    return found


def _keys(path: str) -> tuple[str, ...]:
    """The keys along a path, whichever way it is written."""
    return tuple(re.findall(r"[^\[\]'\"./]+", path))
