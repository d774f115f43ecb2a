"""Records between the ends of steps, from the values and slopes that two steps have anyway."""

from typing import Any

import diffrax
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
