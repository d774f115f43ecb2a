"""The symmetries of a loss, found by measuring it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import rounding_of
from .candidates import (
    Column,
    Powers,
    joint_scalings,
    measure,
    random_points,
    translations,
)
from .rescale import Rescale
from .scale import Scale
from .symmetry import Symmetry, trial_residual
from .translation import Translation

# More points than leaves, so that no dependence is an accident of too few.
_SPARE_POINTS = 4


@dataclass(frozen=True)
class FoundSymmetry:
    """A symmetry that holds.

    Attributes:
        symmetry: The symmetry.
        units: How many there are of it, one per unit.
        residual: Its residual at a random point, with random α for every unit.
    """

    symmetry: Symmetry
    units: int
    residual: float


@dataclass(frozen=True)
class FoundSymmetries:
    """The symmetries of a loss, with their residuals; iterates over the symmetries.

    Attributes:
        found: What holds, translations first, then scales and rescales.
        unused: The paths of leaves on which the loss does not depend.
        tolerance: The largest residual allowed.
        gradient_evaluations: What it cost, a loss counted as a gradient.
    """

    found: tuple[FoundSymmetry, ...]
    unused: tuple[str, ...]
    tolerance: float
    gradient_evaluations: int

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """The symmetries alone."""
        return tuple(item.symmetry for item in self.found)

    def __iter__(self) -> Iterator[Symmetry]:
        return iter(self.symmetries)

    def __len__(self) -> int:
        return len(self.found)

    def __repr__(self) -> str:
        shown = [repr(symmetry) for symmetry in self]
        width = max([len("symmetry"), *map(len, shown)])
        rows = [f"{'symmetry':<{width}}  units  residual"] if shown else []
        for text, item in zip(shown, self.found, strict=True):
            rows.append(f"{text:<{width}}  {item.units:>5}  {item.residual:>8.1e}")
        if not shown:
            rows.append(f"no symmetry within the tolerance {self.tolerance:g}")
        if self.unused:
            rows.append(f"the loss does not depend on {', '.join(map(repr, self.unused))}")
        return "\n".join(rows)


def find_symmetries(
    problem: Problem, params: PyTree, *, tolerance: float | None = None, seed: int = 0
) -> FoundSymmetries:
    """The translations, scales and rescales under which a loss is invariant.

    Found from the function, not from names: every leaf and every axis of it is tried, every pair of
    leaves, and every group that biases or other leaves have to join. Candidates come from one
    gradient at each of a few random points around `params`, and are confirmed there by finite
    transformations. What follows from a finer symmetry is not listed: a layer that is invariant per
    unit is also invariant as a whole.

    Args:
        problem: The problem; its weight decay, which breaks all of them, is left out.
        params: Params of the shapes and sizes in question; their values matter little.
        tolerance: The largest residual allowed (see `Symmetry.residual`), by default 1e-6, or 1e-3
            in single precision. An ε inside a normalization breaks the invariance by about ε over
            the variance.
        seed: The seed of the random points.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> def loss(params):
        ...     hidden = jax.nn.relu(jnp.sin(jnp.arange(12.0)).reshape(4, 3) @ params["first"])
        ...     log_probabilities = jax.nn.log_softmax(hidden @ params["second"])
        ...     return -jnp.mean(log_probabilities[:, 0])
        >>> params = {
        ...     "first": jnp.cos(jnp.arange(15.0)).reshape(3, 5),
        ...     "second": jnp.sin(jnp.arange(10.0)).reshape(5, 2),
        ... }
        >>> found = cf.find_symmetries(cf.Problem(loss), params)
        >>> [symmetry for symmetry in found]
        [Translation('second', axis=0), Rescale('first', 'second', axis={'first': 1, 'second': 0})]
    """
    params = at_the_door(problem, params)
    if tolerance is None:
        tolerance = 1e-6 if rounding_of(params) < 1e-10 else 1e-3
    if not 0 < tolerance < 1:
        raise ValueError(f"`tolerance` must be between 0 and 1, got {tolerance}: 1e-6 is usual")
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    shapes = [leaf.shape for _, leaf in leaves]
    points = random_points(params, len(leaves) + _SPARE_POINTS, seed)
    table = measure(problem, points)
    unused = table.unused(len(leaves))
    columns = _columns(shapes, unused)
    candidates: list[Symmetry] = []
    moved = [column for group in columns.values() for column in group]
    for leaf, axis in _finest(translations(table, moved, tolerance)):
        candidates.append(Translation(names[leaf], axis))
    scalings: list[Powers] = []
    for group in columns.values():
        biases = {column for column in group if len(shapes[column[0]]) < 2}
        scalings += joint_scalings(table, group, biases, tolerance)
    candidates += [_as_symmetry(powers, names) for powers in _without_implied(scalings)]
    random = np.random.default_rng(seed)
    found = []
    for symmetry in candidates:
        residual = trial_residual(symmetry, problem, points[0], random)
        if residual <= tolerance:
            units = int(np.size(symmetry.identity(params)))
            found.append(FoundSymmetry(symmetry, units, residual))
    return FoundSymmetries(
        found=tuple(sorted(found, key=_kind)),
        unused=tuple(names[leaf] for leaf in sorted(unused)),
        tolerance=float(tolerance),
        gradient_evaluations=len(points) + 3 * len(candidates),
    )


def _columns(shapes: list[tuple[int, ...]], unused: set[int]) -> dict[Any, list[Column]]:
    """The columns by their number of units, `None` for whole leaves."""
    grouped: dict[Any, list[Column]] = {}
    for leaf, shape in enumerate(shapes):
        if leaf in unused:
            continue
        grouped.setdefault(None, []).append((leaf, None))
        for axis, length in enumerate(shape):
            if length > 1:
                grouped.setdefault(length, []).append((leaf, axis))
    return grouped


def _finest(columns: list[Column]) -> list[Column]:
    """The columns without whole leaves that hold per unit anyway."""
    per_unit = {leaf for leaf, axis in columns if axis is not None}
    return [(leaf, axis) for leaf, axis in columns if axis is not None or leaf not in per_unit]


def _without_implied(scalings: list[Powers]) -> list[Powers]:
    """The joint scalings without those of whole leaves that hold per unit anyway."""

    def leaves(powers: Powers) -> Any:
        return tuple((column[0], power) for column, power in powers)

    def is_whole(powers: Powers) -> bool:
        return powers[0][0][1] is None

    finer = {leaves(powers) for powers in scalings if not is_whole(powers)}
    return [p for p in scalings if not (is_whole(p) and leaves(p) in finer)]


def _as_symmetry(powers: Powers, names: list[str]) -> Symmetry:
    sides = [
        [(names[leaf], axis) for (leaf, axis), power in powers if power == sign] for sign in (1, -1)
    ]
    first, second = ([name for name, _ in side] for side in sides)
    axes = {name: axis for side in sides for name, axis in side if axis is not None}
    if not second:
        axis = next(iter(axes.values())) if len(set(axes.values())) == 1 else axes or None
        return Scale(_one_or_all(first), axis)
    return Rescale(_one_or_all(first), _one_or_all(second), axes or None)


def _one_or_all(paths: list[str]) -> str | tuple[str, ...]:
    return paths[0] if len(paths) == 1 else tuple(paths)


def _kind(item: FoundSymmetry) -> int:
    return (Translation, Scale, Rescale).index(type(item.symmetry))  # pyright: ignore
