"""What runs ask of their arguments, before anything is run."""

from collections.abc import Iterable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..problem.numbers import require_order
from ..problem.tree import is_concrete, rounding_of

MOST_STEPS = np.iinfo(np.int32).max - 1


def require_steps(steps: Any, name: str = "steps") -> int:
    """The number of steps as an `int`; raises unless it is an integer of at least 1."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer):
        raise TypeError(
            f"`{name}` must be an integer, got {steps!r} of type {type(steps).__name__}: it counts "
            "steps of gradient descent; a time t is t / learning_rate steps"
        )
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(
            f"`{name}` must be from 1 to {MOST_STEPS}, got {steps}: it counts steps of gradient "
            "descent, of which there must be one to look at"
        )
    return int(steps)


def require_records(records: Any, steps: int, default: int) -> np.ndarray:
    """The step numbers at which to look: as given, or that many evenly spaced, the last included.

    An integer asks for the start and that many records after it.
    """
    if records is None:
        records = default
    if isinstance(records, int | np.integer) and not isinstance(records, bool):
        if records < 1:
            raise ValueError(f"`records` must be at least 1 or a list of steps, got {records}")
        return np.unique(np.rint(np.linspace(0, steps, min(int(records), steps) + 1))).astype(int)
    try:
        given = np.asarray(records)
    except ValueError:
        given = np.empty((0, 0))
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
        raise TypeError(
            "`records` must be a number of records or a list of step numbers (integers), got "
            f"{records!r}"
        )
    if np.any(np.diff(given.astype(int)) <= 0) or given[0] < 0 or given[-1] > steps:
        raise ValueError(
            f"`records` must be increasing step numbers from 0 to {steps}, the number of steps, "
            f"got {np.array2string(given, threshold=6)}"
        )
    return given.astype(int)


def require_times(times: Any) -> np.ndarray:
    """The times as an array; raises unless they are increasing numbers from 0 on."""
    try:
        times = np.asarray(times, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"`times` must be a list of numbers, got {times!r}") from None
    if times.ndim != 1 or times.size == 0:
        raise ValueError(
            f"`times` must be a list of at least one time, got an array of shape {times.shape}"
        )
    if not np.all(np.isfinite(times)) or np.any(np.diff(times) <= 0) or times[0] < 0:
        raise ValueError(
            "`times` must be finite, increasing and at least 0, where the params given are those "
            f"at time 0, got {np.array2string(times, threshold=6)}"
        )
    return times


def require_orders(orders: Any) -> tuple[int, ...]:
    """The orders as a tuple; raises unless they are integers of at least 0, none twice."""
    if isinstance(orders, np.ndarray | jax.Array):
        orders = orders.tolist()
    if isinstance(orders, str | bytes) or not isinstance(orders, Iterable):
        raise TypeError(
            f"`orders` must be a list of orders, got {orders!r}: for one order γ write `(γ,)`"
        )
    checked = tuple(
        require_order(order, "orders", "0 is gradient flow, 1 the paper's equation of motion")
        for order in orders
    )
    if not checked:
        raise ValueError("`orders` must name at least one order, got none: 0 is gradient flow")
    if len(set(checked)) < len(checked):
        raise ValueError(f"`orders` must name each order once, got {checked}")
    return tuple(sorted(checked))


def require_max_steps(max_steps: Any) -> int | None:
    """The number of steps allowed; raises unless it is a positive integer or `None`."""
    if max_steps is None:
        return None
    if isinstance(max_steps, bool) or not isinstance(max_steps, int | np.integer) or max_steps < 1:
        raise ValueError(f"`max_steps` must be an integer of at least 1, got {max_steps!r}")
    return min(int(max_steps), np.iinfo(np.int32).max)


def require_progress(progress: Any, of: str = "records done and to do") -> None:
    """Raises unless it is a function, or `None`."""
    if progress is not None and not callable(progress):
        raise TypeError(f"`progress` must be a function of the {of}, got {progress!r}")


def require_tolerances(
    rtol: float | None, atol: float | None, params: PyTree
) -> tuple[float, float]:
    """`rtol` and `atol`, or their defaults; raises unless the params' dtype can resolve them."""
    epsilon = rounding_of(params)
    single = epsilon > 1e-10
    if rtol is None:
        rtol = max(1e-4, 8 * epsilon) if single else 1e-8
    rtol = _require_number(rtol, "rtol")
    if not np.isfinite(rtol) or rtol < 4 * epsilon:
        raise ValueError(
            f"`rtol` must be at least {4 * epsilon:.1e}, what the dtype of the params can resolve, "
            f"got {rtol}" + (": enable double precision in JAX for a tighter one" if single else "")
        )
    if atol is None:
        atol = rtol / 100 * _smallness(params)
    atol = _require_number(atol, "atol")
    if not np.isfinite(atol) or atol <= 0:
        raise ValueError(
            f"`atol` must be positive and finite, got {atol}: it is the tolerance where params "
            "are near zero"
        )
    return rtol, atol


def _smallness(params: PyTree) -> float:
    """1 for params of a usual size; for tiny ones less, or they would be below any tolerance."""
    leaves = [leaf for leaf in jax.tree.leaves(params) if leaf.size]
    if not leaves or not is_concrete(leaves):
        return 1.0
    largest = max(float(jnp.max(jnp.abs(leaf))) for leaf in leaves)
    # Not so small that the dtype has no number for it.
    least = max(float(jnp.finfo(leaf.dtype).tiny) for leaf in leaves) * 1e20
    return min(1.0, 100 * max(largest, least)) if largest > 0 else 1.0


def _require_number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"`{name}` must be a number, got {value!r} of type {type(value).__name__}")
    return float(value)


def require_one_dtype(params: PyTree) -> None:
    """Raises unless all params have the same dtype."""
    dtypes = sorted({leaf.dtype.name for leaf in jax.tree.leaves(params)})
    if len(dtypes) > 1:
        raise TypeError(
            f"a flow needs params of one dtype, got {' and '.join(dtypes)}: convert them, for "
            "example with `jax.tree.map(lambda leaf: leaf.astype(float), params)`"
        )


def require_solver(solver: Any) -> diffrax.AbstractSolver:
    """The solver; raises unless it is one that fits a flow."""
    if isinstance(solver, type) and issubclass(solver, diffrax.AbstractSolver):
        raise TypeError(
            f"`solver` must be an instance, got the class: write `diffrax.{solver.__name__}()`"
        )
    if not isinstance(solver, diffrax.AbstractSolver):
        raise TypeError(
            f"`solver` must be a diffrax solver, got {type(solver).__name__}: "
            "for example `diffrax.Dopri8()`"
        )
    if isinstance(solver, diffrax.LeapfrogMidpoint):
        raise TypeError(
            "`solver` must allow steps of varying size, got LeapfrogMidpoint, which does not: for "
            "example `diffrax.Dopri8()`"
        )
    if solver.term_structure not in (diffrax.AbstractTerm, diffrax.ODETerm):
        raise TypeError(
            "`solver` must be one for ordinary differential equations with a single term, got "
            f"{type(solver).__name__}: for example `diffrax.Dopri8()`"
        )
    return solver
