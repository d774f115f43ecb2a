"""Records between the ends of steps, from the values and slopes that two steps have anyway."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..problem.tree import add_scaled, weighted_sum


class TwoStepHermite(diffrax.AbstractLocalInterpolation):
    """The polynomial of degree 5 through three points with their slopes.

    The points are the two ends of a step and the start of the step before it.
    """

    t0: Float[Array, ""]  # pyright: ignore[reportIncompatibleVariableOverride]
    t1: Float[Array, ""]  # pyright: ignore[reportIncompatibleVariableOverride]
    before: Float[Array, ""]
    values: tuple[PyTree, PyTree, PyTree]
    slopes: tuple[PyTree, PyTree, PyTree]

    def evaluate(self, t0: Any, t1: Any = None, left: bool | Bool[Array, ""] = True) -> PyTree:
        """The value at a time, or the difference of the values at two."""
        if t1 is not None:
            return add_scaled(self.evaluate(t1), -1, self.evaluate(t0))
        del left
        nodes = (self.before, self.t0, self.t1)
        on_values, on_slopes = zip(*(_weights(nodes, i, t0) for i in range(3)), strict=True)
        return weighted_sum((*on_values, *on_slopes), (*self.values, *self.slopes))


def _weights(nodes: tuple[Any, Any, Any], index: int, time: Any) -> tuple[Any, Any]:
    """The weights of the value and of the slope at one node."""
    here = nodes[index]
    others = [node for i, node in enumerate(nodes) if i != index]
    lagrange, tilt = 1.0, 0.0
    for node in others:
        lagrange = lagrange * (time - node) / (here - node)
        tilt = tilt + 1 / (here - node)
    return (1 - 2 * tilt * (time - here)) * lagrange**2, (time - here) * lagrange**2


Point = tuple[Any, PyTree, PyTree]


def point_before(before: Point, start: Point, end: Point) -> Point:
    """Time, value and slope where the step before a step started.

    Before the first step, `before` being no earlier than `start`, that is a point of the polynomial
    of degree 3 through the two ends of the step, which then is what is read off.
    """
    time, value, slope = before
    t0, y0, v0 = start
    t1, y1, v1 = end
    length = t1 - t0
    first = time >= t0
    cubic = weighted_sum((-4, -4 * length, 5, -2 * length), (y0, v0, y1, v1))
    tilt = weighted_sum((12 / length, 8, -12 / length, 5), (y0, v0, y1, v1))

    def chosen(new: PyTree, old: PyTree) -> PyTree:
        return jax.tree.map(lambda a, b: jnp.where(first, a, b), new, old)

    return jnp.where(first, t0 - length, time), chosen(cubic, value), chosen(tilt, slope)
