"""The symmetries of a loss, found by measuring it."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import distance, is_finite, norm, rounding_of
from .candidates import (
    Column,
    Powers,
    Table,
    joint_scalings,
    measure,
    random_points,
    translations,
    without_leaving_out,
)
from .requirements import REFUSED, exactness
from .rescale import Rescale
from .scale import Scale
from .selection import spellings
from .symmetry import Symmetry, random_transform, residual_of, trial_residual
from .translation import Translation

# More points than leaves, so that no dependence is an accident of too few.
_SPARE_POINTS = 4
# Of what a product of unrelated vectors is by chance: far below is no chance.
_BELOW_CHANCE = 0.1


@dataclass(frozen=True)
class FoundSymmetry:
    """A symmetry that holds, or nearly does.

    Attributes:
        symmetry: The symmetry.
        units: How many there are of it, one per unit.
        residual: The largest `|G·∇f|` over what it could be, `‖G_A‖‖∇_A f‖`, at random points; of
            one that nearly holds also `Symmetry.residual` of a finite transformation.
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
        nearly: What holds nearly, with a residual above the tolerance and at most 1e-2, as a
            scaling before a normalization with an ε; not among the symmetries.
    """

    found: tuple[FoundSymmetry, ...]
    unused: tuple[str, ...]
    tolerance: float
    gradient_evaluations: int
    nearly: tuple[FoundSymmetry, ...] = ()

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """The symmetries alone."""
        return tuple(item.symmetry for item in self.found)

    def __iter__(self) -> Iterator[Symmetry]:
        return iter(self.symmetries)

    def __len__(self) -> int:
        return len(self.found)

    def __repr__(self) -> str:
        shown = [(repr(item.symmetry), item) for item in self.found]
        shown += [(f"nearly {item.symmetry!r}", item) for item in self.nearly]
        rows = []
        if not self.found:
            rows.append(f"no symmetry within the tolerance {self.tolerance:g}")
        if shown:
            width = max([len("symmetry"), *(len(text) for text, _ in shown)])
            rows.append(f"{'symmetry':<{width}}  units  residual")
            for text, item in shown:
                rows.append(f"{text:<{width}}  {item.units:>5}  {item.residual:>8.1e}")
        if self.unused:
            rows.append(f"the loss does not depend on {', '.join(map(repr, self.unused))}")
        return "\n".join(rows)


def find_symmetries(
    problem: Problem, params: PyTree, *, tolerance: float | None = None, seed: int = 0
) -> FoundSymmetries:
    """The translations, scales and rescales under which a loss is invariant.

    Found from the function, not from names: every leaf and every axis of it is tried, every pair of
    leaves, and every group that biases or other leaves have to join. Candidates come from one
    gradient at each of a few random points around `params`, four more than there are leaves; they
    are confirmed by finite transformations at another point. A layer that is invariant per unit is
    also invariant as a whole, and is listed once; what follows from several taken together may be
    listed beside them.

    What holds only nearly is found from the same gradients, confirmed one by one, and kept apart,
    in `nearly`: what is off by no more than 1e-2, and by far less than unrelated vectors of as many
    entries would be by chance.

    Args:
        problem: The problem; its weight decay, which breaks all of them, is left out.
        params: Params of the shapes and sizes in question; their values matter little.
        tolerance: The largest residual allowed, by default 1e-6, or 1e-3 in single precision. An ε
            inside a normalization breaks the invariance by about ε over the variance: see `nearly`.
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
    tolerance = exactness(params) if tolerance is None else _require_tolerance(tolerance)
    names, shapes = _names(params), [leaf.shape for leaf in jax.tree.leaves(params)]
    count = len(names) + _SPARE_POINTS
    points = random_points(params, count + 2, seed)
    table = measure(problem, itertools.islice(points, count))
    elsewhere, far = points  # points that had no say in what is to be confirmed there
    if not bool(is_finite(_value(problem, elsewhere))):
        elsewhere = params
    vanishing = table.unused(rounding_of(params))
    unused = {leaf for leaf in vanishing if _is_unused(leaf, problem, elsewhere, far)}
    columns = _columns(shapes, unused)

    def described(seen: dict[Symmetry, float]) -> list[FoundSymmetry]:
        units = {symmetry: int(np.size(symmetry.identity(params))) for symmetry in seen}
        return [FoundSymmetry(symmetry, units[symmetry], seen[symmetry]) for symmetry in seen]

    # The same measurements, looked at with one tolerance after the other.
    exact, *loose = [
        {Translation(names[leaf], axis): residual for (leaf, axis), residual in shifts.items()}
        | {_as_symmetry(powers, names): residual for powers, residual in scalings.items()}
        for shifts, scalings in _looks(table, columns, shapes, tolerance)
    ]
    found, trials = _confirmed(described(exact), problem, elsewhere, tolerance, seed)
    holding = {item.symmetry for item in found}
    others = {one: loose[-1][one] for one in loose[-1] if one not in holding} if loose else {}
    nearly, further = _nearly(described(others), problem, elsewhere, seed)
    return FoundSymmetries(
        found=tuple(sorted(found, key=_kind)),
        unused=tuple(names[leaf] for leaf in sorted(unused)),
        tolerance=float(tolerance),
        gradient_evaluations=count + 1 + 2 * (trials + further) + 2 * len(vanishing),
        nearly=tuple(sorted(nearly, key=_kind)),
    )


def _looks(
    table: Table,
    columns: dict[Any, list[Column]],
    shapes: list[tuple[int, ...]],
    tolerance: float,
) -> Iterator[tuple[dict[Column, float], dict[Powers, float]]]:
    """The translations and joint scalings that are seen with the tolerance, and then with more.

    Up to the largest that is of use. What is seen with a smaller one stays.
    """
    everything = [column for group in columns.values() for column in group]
    scalings: dict[Powers, float] = {}
    while True:
        for group in columns.values():
            biases = {column for column in group if len(shapes[column[0]]) < 2}
            scalings |= joint_scalings(table, group, biases, tolerance)
        scalings = without_leaving_out(table, scalings, tolerance)
        yield _finest(translations(table, everything, tolerance)), _without_implied(scalings)
        if tolerance >= REFUSED:
            return
        # The less a symmetry is off, the clearer it is which leaves take part.
        tolerance = 100 * tolerance if 1000 * tolerance < REFUSED else REFUSED


def _confirmed(
    candidates: list[FoundSymmetry], problem: Problem, params: PyTree, tolerance: float, seed: int
) -> tuple[list[FoundSymmetry], int]:
    """The candidates that finite transformations confirm, and how many it took.

    All are put to the test at once, by one transformation after the other on the same params; only
    where that changes the loss, or there is none, each by itself.
    """
    random = np.random.default_rng(seed)
    if not candidates:
        return [], 0
    if problem.has_loss:
        there, width = params, len(candidates) ** -0.5
        for item in candidates:
            there = random_transform(item.symmetry, there, random, width)
        if residual_of(problem, params, there) <= tolerance:
            return candidates, 1
    trials = [trial_residual(item.symmetry, problem, params, random) for item in candidates]
    kept = [c for c, trial in zip(candidates, trials, strict=True) if trial <= tolerance]
    return kept, 1 + len(candidates)


def _nearly(
    candidates: list[FoundSymmetry], problem: Problem, params: PyTree, seed: int
) -> tuple[list[FoundSymmetry], int]:
    """The candidates that a finite transformation of each says hold nearly, and how many it took.

    Each by itself: among many, one that does not hold would be lost to sight.
    """
    random = np.random.default_rng(seed)
    kept: list[FoundSymmetry] = []
    trials = 0
    for item in candidates:
        limit = _limit(item, params)
        if item.residual <= limit:
            trials += 1
            trial = trial_residual(item.symmetry, problem, params, random)
            residual = float(np.max([item.residual, trial]))  # not a number if the trial is not
            kept += [replace(item, residual=residual)] if residual <= limit else []
    return kept, trials


def _limit(item: FoundSymmetry, params: PyTree) -> float:
    """The residual up to which a symmetry is taken to hold nearly.

    Vectors of n entries that have nothing to do with each other have a product of `n^(-1/2)` of
    what it could be: large leaves seem symmetric if that is not kept in mind.
    """
    moved = jax.tree.map(lambda leaf: leaf != 0, item.symmetry.generator(params))
    entries = sum(int(jnp.sum(leaf)) for leaf in jax.tree.leaves(moved))
    return min(REFUSED, _BELOW_CHANCE * (entries / item.units) ** -0.5)


def _is_unused(leaf: int, problem: Problem, params: PyTree, far: PyTree) -> bool:
    """Whether the loss, or the field, is the same with other values of a leaf.

    A gradient that vanishes is not enough: that of a sign does too.
    """
    values, structure = jax.tree.flatten(params)
    values[leaf] = jax.tree.leaves(far)[leaf]
    before, after = (_value(problem, at) for at in (params, structure.unflatten(values)))
    return bool(distance(before, after) <= 1e3 * rounding_of(params) * norm(before))


@eqx.filter_jit
def _value(problem: Problem, params: PyTree) -> PyTree:
    """The loss, or the field where there is none."""
    return problem.loss(params) if problem.has_loss else problem.loss_gradient(params)


def _names(params: PyTree) -> list[str]:
    """The path of every leaf, in short where that is not mistaken for another."""
    spelled = spellings(params)
    short = [others[0] for others in spelled.values()]
    every = [one for others in spelled.values() for one in set(others)]
    return [
        name if every.count(brief) > 1 or (not brief and len(short) > 1) else brief
        for name, brief in zip(spelled, short, strict=True)
    ]


def _require_tolerance(tolerance: Any) -> float:
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | np.number):
        raise TypeError(f"`tolerance` must be a number, got {tolerance!r}")
    if not 0 < tolerance < 1:
        raise ValueError(f"`tolerance` must be between 0 and 1, got {tolerance}: 1e-6 is usual")
    return float(tolerance)


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


def _finest(columns: dict[Column, float]) -> dict[Column, float]:
    """The columns without whole leaves that hold per unit anyway."""
    per_unit = {leaf for leaf, axis in columns if axis is not None}
    return {c: r for c, r in columns.items() if c[1] is not None or c[0] not in per_unit}


def _without_implied(scalings: dict[Powers, float]) -> dict[Powers, float]:
    """The joint scalings without those of whole leaves that hold per unit anyway."""

    def leaves(powers: Powers) -> Any:
        return tuple((column[0], power) for column, power in powers)

    def is_whole(powers: Powers) -> bool:
        return powers[0][0][1] is None

    finer = {leaves(powers) for powers in scalings if not is_whole(powers)}
    return {p: r for p, r in scalings.items() if not (is_whole(p) and leaves(p) in finer)}


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
