"""Which translations and scalings a loss may be invariant under, from gradients alone.

A loss that is invariant under `θ_A → αθ_A` has `θ_A·∇_A f = 0` at every point, and one that is
invariant under a joint scaling of several leaves, each by its own power c of α, has
`Σ c_A θ_A·∇_A f = 0`. So all of them follow from one table: the products `θ_A·∇_A f` for every leaf
A, whole or unit by unit, at random points; every linear dependence of its columns is a symmetry.
Likewise a column of sums of the gradient that vanishes is a translation.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..problem.problem import Problem
from ..problem.tree import rms

Column = tuple[int, int | None]  # a leaf by its number, and the axis of its units
Powers = tuple[tuple[Column, int], ...]  # a joint scaling: by which power of α each column is


@dataclass(frozen=True)
class Table:
    """What gradients at random points say of every leaf, whole and along every axis.

    Attributes:
        scales: For each column, `θ_A·∇_A f` over points and units.
        sums: For each column, `1_A·∇_A f` over points and units.
        scale_sizes: What `θ_A·∇_A f` could have been, `‖θ_A‖‖∇_A f‖`.
        sum_sizes: What `1_A·∇_A f` could have been, `√(number of entries) ‖∇_A f‖`.
    """

    scales: dict[Column, np.ndarray]
    sums: dict[Column, np.ndarray]
    scale_sizes: dict[Column, np.ndarray]
    sum_sizes: dict[Column, np.ndarray]

    def unused(self, rounding: float) -> set[int]:
        """The leaves whose gradient vanishes up to rounding at every point."""
        sizes = {leaf: np.max(v) for (leaf, axis), v in self.scale_sizes.items() if axis is None}
        return {leaf for leaf in sizes if sizes[leaf] <= 1e3 * rounding * max(sizes.values())}


def random_points(params: PyTree, count: int, seed: int) -> Iterator[PyTree]:
    """Points around the params, as far from them as the params are from zero, leaf by leaf."""
    random = np.random.default_rng(seed)
    sizes = [float(rms(leaf)) for leaf in jax.tree.leaves(params) if leaf.size]
    # A leaf of zeros says nothing of its size; it goes as far as the most cautious of the others.
    usual = min([size for size in sizes if size], default=1.0)

    def moved(leaf: Array) -> Array:
        size = float(rms(leaf)) if leaf.size else 0.0
        size = size or usual
        return leaf + jnp.asarray(size * random.standard_normal(leaf.shape), leaf.dtype)

    for _ in range(count):
        yield jax.tree.map(moved, params)


def measure(problem: Problem, points: Iterable[PyTree]) -> Table:
    """The table of a problem at some points; points where the gradient is not finite are left out.

    One gradient per point.
    """
    found, finite = 0, []
    columns: list[Column] = []
    for point in points:
        found += 1
        columns = _columns(point)
        row = dict(zip(columns, map(np.asarray, _at_point(problem, point)), strict=True))
        if all(np.all(np.isfinite(values)) for values in row.values()):
            finite.append(row)
    if len(finite) < found / 2:
        raise ValueError(
            "the gradient must be finite at most points around the params, got NaN or infinity at "
            f"{found - len(finite)} of {found} random ones as far from the params as these are "
            "from zero"
        )
    stacked = {c: np.stack([row[c] for row in finite]) for c in columns}
    parts = [{c: values[:, part] for c, values in stacked.items()} for part in range(4)]
    return Table(*parts)


def _columns(params: PyTree) -> list[Column]:
    leaves = enumerate(jax.tree.leaves(params))
    return [(number, axis) for number, leaf in leaves for axis in (None, *range(leaf.ndim))]


@eqx.filter_jit
def _at_point(problem: Problem, params: PyTree) -> list[Float[Array, "4 units"]]:
    leaves, gradients = jax.tree.leaves(params), jax.tree.leaves(problem.loss_gradient(params))
    return [_of_column(leaves[leaf], gradients[leaf], axis) for leaf, axis in _columns(params)]


def _of_column(leaf: Array, gradient: Array, axis: int | None) -> Float[Array, "4 units"]:
    others = tuple(i for i in range(leaf.ndim) if i != axis)

    def total(values: Array) -> Array:
        return jnp.reshape(jnp.sum(values, axis=others), (-1,))

    size = jnp.sqrt(total(gradient**2))
    return jnp.stack(
        [
            total(leaf * gradient),
            total(gradient),
            jnp.sqrt(total(leaf**2)) * size,
            jnp.sqrt(total(jnp.ones_like(leaf))) * size,
        ]
    )


def translations(table: Table, columns: list[Column], tolerance: float) -> dict[Column, float]:
    """The columns whose sums of the gradient vanish, with their residuals."""
    residuals = {c: _relative(table.sums[c], table.sum_sizes[c]) for c in columns}
    return {c: residual for c, residual in residuals.items() if residual <= tolerance}


def joint_scalings(
    table: Table, columns: list[Column], biases: set[Column], tolerance: float
) -> dict[Powers, float]:
    """The joint scalings of columns with equally many units, with their residuals.

    Only those that no smaller one is part of.

    A set of columns that are dependent while no part of them is has one dependence only. All those
    of two sides are found by building a largest independent set that starts with the biases and one
    other column, for each in turn: every column left over depends on that set in one way.
    """
    sizes = np.stack([_flat(table.scale_sizes[c]) for c in columns], axis=1)
    units = np.linalg.norm(sizes, axis=0)
    units = np.where(units > 0, units, 1)
    matrix = np.stack([_flat(table.scales[c]) for c in columns], axis=1) / units
    triangle = np.asarray(np.linalg.qr(matrix, mode="r"))  # the same dependences, in few rows
    found: dict[Powers, float] = {}
    for first in range(len(columns)):
        order = sorted(range(len(columns)), key=lambda i: (columns[i] not in biases, i != first, i))
        for coefficients in _dependences(triangle, order, tolerance):
            powers = _as_powers(coefficients, units, columns, tolerance)
            if powers and powers not in found:
                found[powers] = _joint_residual(table, powers)
    return {powers: residual for powers, residual in found.items() if residual <= tolerance}


def without_leaving_out(
    table: Table, scalings: dict[Powers, float], tolerance: float
) -> dict[Powers, float]:
    """The joint scalings without those that are another one but for a small part of it.

    To leave out a part that is small beside the rest does little harm, and makes no new symmetry.
    It is one if the part by itself is one, too, within the tolerance.
    """
    both_signs = [
        frozenset((column, sign * power) for column, power in powers)
        for powers in scalings
        for sign in (1, -1)
    ]

    def leaves_out(powers: Powers) -> bool:
        parts = frozenset(powers)
        return any(
            parts < whole and _joint_residual(table, tuple(whole - parts)) > tolerance
            for whole in both_signs
        )

    return {powers: r for powers, r in scalings.items() if not leaves_out(powers)}


def _dependences(matrix: np.ndarray, order: list[int], tolerance: float) -> list[np.ndarray]:
    """For every column that depends on those before it, the coefficients that make zero."""
    independent: list[int] = []
    dependent: list[int] = []
    basis = np.zeros((len(matrix), 0))
    for column in order:
        target = matrix[:, column]
        rest = target - basis @ (basis.T @ target)
        rest = rest - basis @ (basis.T @ rest)  # twice is enough for full accuracy
        size = np.linalg.norm(rest)
        if size > tolerance:  # of what the column could have been
            independent.append(column)
            basis = np.column_stack([basis, rest / size])
        else:
            dependent.append(column)
    solutions = np.linalg.lstsq(matrix[:, independent], matrix[:, dependent], rcond=None)[0]
    found = []
    for column, solution in zip(dependent, solutions.T, strict=True):
        coefficients = np.zeros(matrix.shape[1])
        coefficients[column] = 1
        coefficients[independent] = -solution
        found.append(coefficients)
    return found


def _as_powers(
    coefficients: np.ndarray, units: np.ndarray, columns: list[Column], tolerance: float
) -> Powers | None:
    """The coefficients as powers ±1, the first one +1; `None` if they are others.

    Args:
        coefficients: Of the normalized columns.
        units: What the columns were divided by.
        columns: The columns.
        tolerance: Coefficients of normalized columns below ten times this are noise.
    """
    largest = int(np.argmax(np.abs(coefficients)))
    noise = np.abs(coefficients) <= 10 * tolerance * abs(coefficients[largest])
    powers = (coefficients / units) / (coefficients[largest] / units[largest])
    present = np.abs(np.abs(powers) - 1) <= max(1e-3, 10 * tolerance)
    if np.any(~present & ~noise):
        return None
    chosen = np.flatnonzero(present)
    leaves = [columns[i][0] for i in chosen]
    if len(set(leaves)) < len(leaves):
        return None  # two axes of one leaf at once
    sign = np.sign(powers[chosen[0]])
    return tuple((columns[i], round(float(sign * powers[i]))) for i in chosen)


def _joint_residual(table: Table, powers: Powers) -> float:
    total = sum(power * table.scales[column] for column, power in powers)
    size = sum(table.scale_sizes[column] for column, _ in powers)
    return _relative(np.asarray(total), np.asarray(size))


def _relative(values: np.ndarray, sizes: np.ndarray) -> float:
    """The largest over points of the values of all units, over what they could have been."""
    values, sizes = np.linalg.norm(values, axis=1), np.linalg.norm(sizes, axis=1)
    return float(np.max(np.where(values == 0, 0, values / np.where(sizes > 0, sizes, 1))))


def _flat(values: Any) -> np.ndarray:
    return np.asarray(values, np.float64).reshape(-1)
