"""How smooth a problem is, by measurement along lines through the params.

Two measurements. A *kink* is hunted by fourth differences of the loss, of the gradient and of its
derivatives along a line: where they are largest, the line is looked at more closely, again and
again. Where a function is smooth the differences fall 16-fold with every halving; where it jumps
they stay. And the *remainder* of the gradient's Taylor series of degree p must fall like `h^{p+1}`,
which says that the derivatives JAX computes are those of the gradient.
"""

from dataclasses import dataclass
from math import comb

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...problem.problem import Problem
from ...problem.tree import add_scaled, inner, norm, rounding_of, scaled
from ..taylor_mode import TaylorMode

_SPAN = 1.37  # beyond 1, so that a line through zero is crossed; no round number, to miss ties
_CELLS = 32
_BATCH = 4  # points per call: what one halving adds
_SKETCHES = 4
_STENCIL = np.array([(-1) ** i * comb(4, i) for i in range(5)], dtype=float)


@dataclass(frozen=True)
class Kink:
    """A jump in the loss or in a derivative of it, at a distance from the params.

    Attributes:
        order: To which order the loss is smooth there: −1 if it jumps itself, 0 if its gradient
            does, `p` if derivative `p` of the gradient does.
        distance: How far from the params, in multiples of the size of the params.
    """

    order: int
    distance: float


def size_of(tree: PyTree) -> float:
    """The Euclidean norm of a tree, as a number."""
    return float(_norm(tree))


_norm = jax.jit(norm)  # compiled once, instead of operation by operation


def random_direction(params: PyTree, seed: int, unit: bool = False) -> PyTree:
    """A random direction as large as the params, leaf by leaf: a step of 1 along it is large.

    With `unit`, standard normal numbers instead. NumPy draws them, which compiles nothing.
    """
    generator = np.random.default_rng(seed)
    leaves, structure = jax.tree.flatten(params)
    overall = size_of(params) / sum(leaf.size for leaf in leaves) ** 0.5 or 1.0

    def direction(leaf: Array) -> Array:
        draw = generator.standard_normal(leaf.shape)
        if not unit and leaf.size:
            # A leaf that vanishes, as biases do at the start, moves as the others do.
            scale = size_of(leaf) / leaf.size**0.5 or overall
            draw = draw * scale / np.sqrt(np.mean(draw**2))
        return jnp.asarray(draw, leaf.dtype)

    return jax.tree.unflatten(structure, [direction(leaf) for leaf in leaves])


def gradient_direction(params: PyTree, gradient: PyTree) -> PyTree:
    """The direction of the gradient, as large as the params; zero where the gradient is."""
    size, length = size_of(params) or 1.0, size_of(gradient)
    return scaled(size / length if length else 0.0, gradient)


@eqx.filter_jit
def _sketch(
    problem: Problem,
    params: PyTree,
    direction: PyTree,
    probes: list[PyTree],
    steps: Float[Array, " steps"],
    degree: int,
) -> Float[Array, "steps rows sketches"]:
    """Loss, gradient and the gradient's Taylor coefficients along a line, in a few numbers each.

    A vector is told by its inner products with a few random ones: a jump shows in all of them.
    """

    def numbers(tree: PyTree) -> Array:
        return jnp.stack([inner(probe, tree) for probe in probes])

    def at(step: Array) -> Array:
        point = add_scaled(params, step, direction)
        rows = [jnp.full(len(probes), problem.loss(point))] if problem.has_loss else []
        if degree == 0:
            return jnp.stack([*rows, numbers(problem.gradient(point))])
        mode = TaylorMode(problem.gradient, point)
        series = mode.begin()
        rows.append(numbers(mode.value))
        for k in range(1, degree + 1):
            rows.append(numbers(series.extend(scaled(1.0 if k == 1 else 0.0, direction))))
        return jnp.stack(rows)

    return jax.lax.map(at, steps)


class Line:
    """A problem along a line `θ + s v`: loss, gradient and its Taylor coefficients at each `s`."""

    def __init__(self, problem: Problem, params: PyTree, direction: PyTree, degree: int):
        probes = [random_direction(params, seed, unit=True) for seed in range(_SKETCHES)]
        self._arguments = problem, params, direction, probes
        self._dtype = jax.tree.leaves(params)[0].dtype
        self.degree = degree
        self.epsilon = rounding_of(params)
        self.has_loss = problem.has_loss

    def values(self, steps: np.ndarray) -> np.ndarray:
        """A few numbers per step and row: (steps, rows, sketches)."""
        padded = np.resize(steps, -(-len(steps) // _BATCH) * _BATCH)
        batches = [
            np.asarray(_sketch(*self._arguments, jnp.asarray(batch, self._dtype), self.degree))
            for batch in padded.reshape(-1, _BATCH)
        ]
        return np.concatenate(batches)[: len(steps)].astype(float)


def find_kink(line: Line, order: int) -> Kink | None:
    """The kink of lowest order met on a line through the params, if any is below `order`."""
    first = -1 if line.has_loss else 0
    span = _SPAN
    for _ in range(4):
        steps, values = _finite_part(line, span)
        if len(steps) >= 9:
            break
        span /= 16  # the function ends close by, as a logarithm does: look closer
    else:
        return None
    # How much the values scatter by rounding alone, from points so close that nothing else varies.
    close = np.arange(-4, 4) * line.epsilon**0.5 / 30
    noise = np.max(_roughness(line.values(close)), axis=0)
    for kink_order in range(first, order):
        row = kink_order - first
        where = _hunt(line, steps, values, row, noise[row])
        if where is not None:
            return Kink(kink_order, abs(where))
    return None


def _finite_part(line: Line, span: float) -> tuple[np.ndarray, np.ndarray]:
    """The stretch around the params on which everything is finite."""
    steps = np.linspace(-span, span, _CELLS + 1)
    values = line.values(steps)
    broken = np.flatnonzero(~np.isfinite(values).all(axis=(1, 2)))
    middle = _CELLS // 2
    start = max((i + 1 for i in broken if i <= middle), default=0)
    stop = min((i for i in broken if i > middle), default=len(steps))
    return steps[start:stop], values[start:stop]


def _roughness(values: np.ndarray) -> np.ndarray:
    """The size of the fourth difference over each five neighbours: (positions, rows)."""
    windows = np.lib.stride_tricks.sliding_window_view(values, 5, axis=0)
    return np.linalg.norm(windows @ _STENCIL, axis=-1)


def _hunt(
    line: Line, steps: np.ndarray, values: np.ndarray, row: int, noise: float
) -> float | None:
    """Where a row of values jumps, or `None` if it falls silent when looked at closely."""
    bounded_rows = range(1 + line.has_loss)
    floor = 1e-8 if line.epsilon < 1e-10 else 2e-3
    reference = max(np.linalg.norm(values, axis=2).max(axis=0)[row] * 1e-3, 1e-300)
    size_here = np.linalg.norm(values[len(values) // 2, row])
    # Relative to the values nearby: far out they may be many orders of magnitude larger.
    norms = np.linalg.norm(values[:, row], axis=1)
    nearby = np.lib.stride_tricks.sliding_window_view(norms, 5).max(axis=1)
    start = int(np.argmax(_roughness(values)[:, row] / np.maximum(nearby, size_here + 1e-300)))
    steps, values = steps[start : start + 5], values[start : start + 5]
    history = []
    while True:
        sizes = np.linalg.norm(values, axis=2).max(axis=0)
        rough = float(_roughness(values)[0, row])
        # Rounding grows with the values, which may be far larger here than at the params.
        scatter = 100 * noise * max(1.0, sizes[row] / max(size_here, reference))
        if not np.isfinite(rough) or rough <= max(floor * sizes[row], scatter):
            return None
        history.append((rough, *sizes))
        if len(history) > 25 or steps[4] - steps[0] < 200 * line.epsilon:
            break
        middles = (steps[1:] + steps[:-1]) / 2
        steps = np.sort(np.concatenate([steps, middles]))
        merged = np.empty((9, *values.shape[1:]))
        merged[0::2], merged[1::2] = values, line.values(middles)
        start = int(np.argmax(_roughness(merged)[:, row]))
        steps, values = steps[start : start + 5], merged[start : start + 5]
    record = np.array(history[-7:])
    stays = record[-1, 0] > 0.3 * record[0, 0]
    # A pole is no kink: there the loss or the gradient grows without bound, as 1/θ at zero.
    growth = [record[-1, 1 + row] / max(record[0, 1 + row], 1e-300) for row in bounded_rows]
    if not stays or max(growth) >= 3:
        return None
    # Scattered by rounding, a function is as rough beside that place as it is there.
    width = steps[4] - steps[0]
    beside = (steps[0] - width * np.arange(16, 0, -2), steps[4] + width * np.arange(2, 18, 2))
    quiet = [np.max(_roughness(line.values(side))[:, row]) < 0.2 * rough for side in beside]
    return float(steps[2]) if all(quiet) else None


def wrong_derivative(line: Line) -> tuple[int, float] | None:
    """The first derivative of the gradient that does not describe it, with the slope measured.

    The remainder after degree `p` must fall like `h^{p+1}`; `None` says that all of them do.
    """
    single = line.epsilon > 1e-10
    steps = 0.5 ** np.arange(1, 12 if single else 24)
    close = line.epsilon**0.5 / 30
    here, *values = line.values(np.array([0.0, close, *steps]))[:, int(line.has_loss) :]
    steps = np.array([close, *steps])
    rest = np.array([value[0] for value in values])
    rounding = 4 * line.epsilon * np.linalg.norm(rest, axis=1)
    sizes = []
    for k, coefficient in enumerate(here):
        rest = rest - steps[:, None] ** k * coefficient
        sizes.append(np.linalg.norm(rest, axis=1))
    if line.degree == 0:
        return None
    # At the closest step nothing but rounding is left of the remainder.
    noise = (30 if single else 100) * np.maximum(rounding, sizes[1][0])[1:]
    for p in range(1, line.degree + 1):
        known, finite = sizes[p][1:], np.isfinite(sizes[p][1:])
        silent = np.flatnonzero((known <= noise)[finite])
        # From the largest step down to where rounding takes over: its end is closest to h → 0.
        known = known[finite][: silent[0]] if len(silent) else known[finite]
        if len(known) < 4:
            continue
        slope = float(np.median(np.log2(known[:-1] / known[1:])[-3:]))
        if slope < p + 0.5:
            return p, slope
    return None
