"""What a solved dynamics looks like: records, a status and what it cost."""

import enum
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..problem.tree import norm

#: How many times their size at the start params may reach before a run counts as diverged.
GROWTH = 1e20


class Status(enum.StrEnum):
    """How a run ended; compares equal to its text."""

    COMPLETED = "completed"
    DIVERGED = "diverged"
    NON_FINITE = "non-finite values"
    STEP_VANISHED = "step vanished"
    TOO_MANY_STEPS = "too many steps"
    INTERRUPTED = "interrupted"

    @property
    def remedy(self) -> str:
        """What to try next."""
        return _REMEDIES[self]


_LARGE = (
    "use a smaller learning rate (descent is unstable above 2/sharpness); for an equation of "
    "motion, `convergence(params)` says whether its series converges; the records before are kept"
)
_REMEDIES = {
    Status.COMPLETED: "",
    Status.DIVERGED: f"the params grew {GROWTH:.0e} times their size at the start: {_LARGE}",
    Status.NON_FINITE: f"the params or the velocity are no longer numbers: {_LARGE}",
    Status.STEP_VANISHED: (
        "the solver's step shrank to nothing, as it does where a flow blows up in finite time, is "
        "not smooth or cannot reach the tolerance in this precision: look at the last record, "
        "loosen `rtol` and `atol`, or use double precision; the records before are kept"
    ),
    Status.TOO_MANY_STEPS: (
        "raise `max_steps`; of a flow, which is stiff or asked for a tight tolerance, loosen "
        "`rtol` and `atol` or pass another `solver`; the records before are kept"
    ),
    Status.INTERRUPTED: "the records before the interruption are kept",
}


def divergence_bound(params: PyTree) -> Float[Array, ""]:
    """The size beyond which a run from `params` counts as diverged."""
    return GROWTH * (1 + norm(params))


@dataclass(frozen=True)
class Statistics:
    """What a run cost.

    Attributes:
        gradient_evaluations: Gradients computed, with directional derivatives of the gradient
            counted as two; `None` where the solver does not let itself be counted (implicit ones).
        accepted_steps: Steps of descent, or accepted steps of the solver.
        rejected_steps: Steps that the solver tried and discarded.
        solver: The solver's name.
    """

    gradient_evaluations: int | None
    accepted_steps: int
    rejected_steps: int
    solver: str


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The params at the requested times, as far as the run got.

    Attributes:
        times: The times of the records.
        params: The params there, stacked along a new first axis of every leaf.
        status: How the run ended; `Status.COMPLETED` if every requested time was reached.
        statistics: What it cost.
    """

    times: Float[np.ndarray, " records"]
    params: PyTree
    status: Status
    statistics: Statistics

    def at(self, record: int) -> PyTree:
        """The params at one record, shaped as they were given; `-1` is the last record."""
        count = len(self.times)
        if not -count <= record < count:
            raise IndexError(
                f"`record` must be from 0 to {count - 1}, or from -1 down to {-count} to count "
                f"from the last, got {record}"
                if count
                else f"there is no record to look at: the run ended with {self.status}"
            )
        return jax.tree.map(lambda leaf: leaf[record], self.params)

    def __repr__(self) -> str:
        count, stats = len(self.times), self.statistics
        span = f", t = {self.times[0]:g} … {self.times[-1]:g}" if count else ""
        cost = "uncounted" if stats.gradient_evaluations is None else stats.gradient_evaluations
        return (
            f"Trajectory({count} record{'s'[: count != 1]}{span}; {self.status}; {stats.solver}, "
            f"{cost} gradient evaluations, {stats.accepted_steps} steps accepted, "
            f"{stats.rejected_steps} rejected)"
        )


class SolveError(RuntimeError):
    """A run that ended before its last requested time; `trajectory` holds the records it made."""

    def __init__(self, message: str, trajectory: Trajectory):
        super().__init__(message)
        self.trajectory = trajectory


class SolveInterrupted(KeyboardInterrupt):
    """A run that was interrupted from the keyboard; `trajectory` holds the records it made."""

    def __init__(self, message: str, trajectory: Trajectory):
        super().__init__(message)
        self.trajectory = trajectory
