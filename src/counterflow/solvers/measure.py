"""What a step-size controller looks at."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..dynamics.dynamics import Flow
from ..problem.tree import rms


class Measure(NamedTuple):
    """What the step-size controller looks at.

    Attributes:
        view: Maps the flow, the relative tolerance and a step's old state, new state and error
            estimate to three trees of one structure, in which the error is compared with the
            states entry by entry.
        norm: The size of the errors so compared; a step is kept if it is below one.
        first: The part of a state that chooses the first step. Of what starts at zero, every step
            would seem long.
    """

    view: Callable[[Flow, Any, PyTree, PyTree, PyTree], tuple[PyTree, PyTree, PyTree]]
    norm: Callable[[PyTree], Any]
    first: Callable[[PyTree], PyTree] = lambda state: state

    def size(
        self, flow: Any, rtol: Any, atol: Any, old: PyTree, new: PyTree, error: PyTree
    ) -> Float[Array, ""]:
        """The size of an error estimate, in tolerances."""
        old, new, error = self.view(flow, rtol, old, new, error)

        def compared(old: Any, new: Any, error: Any) -> Any:
            return error / (atol + rtol * jnp.maximum(jnp.abs(old), jnp.abs(new)))

        return self.norm(jax.tree.map(compared, old, new, error))


def _everything(
    flow: Any, rtol: Any, old: PyTree, new: PyTree, error: PyTree
) -> tuple[PyTree, PyTree, PyTree]:
    del flow, rtol
    return old, new, error


EVERYTHING = Measure(_everything, rms)
