"""What comparisons, predictions and bounds ask of their arguments, before anything is run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..problem.tree import is_finite
from ..solvers.requirements import require_steps


def require_restart(restart: Any, steps: int, predict: bool) -> int:
    """The step from which predictions start anew; raises unless it lies between first and last."""
    restart = require_steps(restart, "restart")
    if restart >= steps:
        raise ValueError(
            f"`restart` must be a step before the last, {steps}, got {restart}: from there on the "
            "error is predicted"
        )
    if not predict:
        raise ValueError("`restart` needs `predict=True`: it starts further predictions")
    return restart


def require_error(error: Any, params: PyTree) -> PyTree:
    """An error as JAX arrays; raises unless it is a finite pytree shaped like the params."""
    alike = jax.tree.structure(error) == jax.tree.structure(params) and all(
        np.shape(a) == b.shape
        for a, b in zip(jax.tree.leaves(error), jax.tree.leaves(params), strict=True)
    )
    if not alike:
        raise ValueError(
            "`initial_error` must have the structure and the shapes of `params`, "
            f"{jax.tree.map(np.shape, params)}, got {jax.tree.map(np.shape, error)}"
        )
    error = jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), error, params)
    if not bool(is_finite(error)):
        raise ValueError("`initial_error` must be finite, got NaN or infinity")
    return error


def require_tolerance(tolerance: Any) -> float:
    """The tolerated error as a `float`; raises unless it is positive and finite."""
    return _require_positive(
        tolerance, "tolerance", "it is the largest discretization error `‖e_k‖` tolerated"
    )


def require_horizon(steps: Any, time: Any) -> tuple[int | None, float | None]:
    """The number of steps or the time, whichever is given; raises unless it is one of the two."""
    if (steps is None) == (time is None):
        given = "both" if steps is not None else "neither"
        raise ValueError(
            f"`steps` or `time` must be given, one of the two, got {given}: `steps` for a run of "
            "that many steps, however long it takes, `time` for one of that length"
        )
    if steps is not None:
        return require_steps(steps), None
    return None, require_time(time)


def require_time(time: Any) -> float:
    """The time as a `float`; raises unless it is positive and finite."""
    return _require_positive(time, "time", "the horizon, `steps · learning_rate`")


def require_curvature(curvature: Any) -> tuple[float, float]:
    """The lowest and the highest curvature; raises unless they are two numbers in order."""
    try:
        lowest, highest = (float(end) for end in curvature if not isinstance(end, str))
    except (TypeError, ValueError):
        raise TypeError(
            f"`curvature` must be two numbers, the lowest and the highest, got {curvature!r}"
        ) from None
    if not (np.isfinite(lowest) and np.isfinite(highest) and lowest <= highest):
        raise ValueError(
            f"`curvature` must be the lowest and then the highest, both finite, got {curvature!r}"
        )
    return lowest, highest


def _require_positive(value: Any, name: str, meaning: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(
            f"`{name}` must be a number, got {value!r} of type {type(value).__name__}: {meaning}"
        )
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"`{name}` must be positive and finite, got {value}: {meaning}")
    return float(value)
