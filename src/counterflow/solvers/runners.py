"""Dynamics that are run from record to record, on the host, one compiled chunk at a time."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..dynamics.dynamics import Flow
from ..dynamics.gradient_descent import GradientDescent
from . import descent, flow
from .spectral_radius import Estimate
from .trajectory import Statistics, Status

_STATUS = {
    flow.RUNNING: Status.COMPLETED,
    flow.DIVERGED: Status.DIVERGED,
    flow.NON_FINITE: Status.NON_FINITE,
    flow.STEP_VANISHED: Status.STEP_VANISHED,
    flow.TOO_MANY_STEPS: Status.TOO_MANY_STEPS,
}


class Runner(Protocol):
    """A dynamics that is run from record to record; everything it needs is in its state."""

    def advance(self, index: int) -> tuple[Status, PyTree]:
        """The status after going on to a record, and the params there if it was reached."""
        ...

    def statistics(self) -> Statistics:
        """What it cost so far."""
        ...

    def where(self) -> str:
        """How far it got, in words."""
        ...


class DescentRunner:
    """Gradient descent from record to record."""

    def __init__(
        self, dynamics: GradientDescent, params: PyTree, steps: np.ndarray, max_steps: int | None
    ):
        self.dynamics, self.steps, self.max_steps = dynamics, steps, max_steps
        self.state = descent.start_descent(params)

    def advance(self, index: int) -> tuple[Status, PyTree]:
        if self.max_steps is not None and self.steps[index] > self.max_steps:
            return Status.TOO_MANY_STEPS, None
        self.state = descent.descend_to(self.dynamics, self.state, jnp.asarray(self.steps[index]))
        size = float(self.state.size)
        if size <= float(self.state.bound):
            return Status.COMPLETED, self.state.params
        return (Status.DIVERGED if np.isfinite(size) else Status.NON_FINITE), None

    def statistics(self) -> Statistics:
        steps = int(self.state.step)
        return Statistics(steps * self.dynamics.gradient_evaluations, steps, 0, "gradient descent")

    def where(self) -> str:
        return f"at step {int(self.state.step)}"


class FlowRunner:
    """A flow from record to record.

    `spent` evaluations went into the choice of its solver, which found out the velocity and the
    spectral radius at the start.
    """

    def __init__(
        self,
        dynamics: Flow,
        params: PyTree,
        times: np.ndarray,
        integrator: flow.Integrator,
        max_steps: int | None,
        spent: int = 0,
        velocity: PyTree = None,
        estimate: Estimate | None = None,
    ):
        self.dynamics, self.integrator, self.times = dynamics, integrator, times
        # A velocity that is known need not be evaluated.
        self.spent = spent - (velocity is not None)
        self.max_steps = 1_000_000 if max_steps is None else max_steps
        self.state = flow.start_flow(dynamics, integrator, params, velocity, estimate)

    def advance(self, index: int) -> tuple[Status, PyTree]:
        dtype = self.state.time.dtype
        self.state, record = flow.flow_to(
            self.dynamics,
            self.integrator,
            self.state,
            jnp.asarray(self.times[index], dtype),
            jnp.asarray(self.times[-1], dtype),
            jnp.asarray(self.max_steps, jnp.int32),
        )
        code = int(self.state.code)
        reached = bool(self.state.time >= jnp.asarray(self.times[index], dtype))
        # A record that was reached with the last step allowed is a record all the same.
        completed = reached and code != flow.DIVERGED
        return (Status.COMPLETED if completed else _STATUS[code]), record

    def statistics(self) -> Statistics:
        evaluations = flow.velocity_evaluations(self.integrator.solver, self.state)
        cost = self.dynamics.gradient_evaluations
        return Statistics(
            gradient_evaluations=None if evaluations is None else (evaluations + self.spent) * cost,
            accepted_steps=int(self.state.accepted),
            rejected_steps=int(self.state.rejected),
            solver=_solver_name(self.integrator.solver),
        )

    def where(self) -> str:
        return f"at time {float(self.state.time):g}"


def _solver_name(solver: diffrax.AbstractSolver) -> str:
    inner = f"({_solver_name(solver.solver)})" if isinstance(solver, diffrax.HalfSolver) else ""
    return type(solver).__name__ + inner


def run_records(
    advance: Callable[[int], tuple[Status, Any]],
    count: int,
    keep: Callable[[Any], None],
    progress: Callable[[int, int], None] | None,
) -> tuple[Status, KeyboardInterrupt | None]:
    """How a run over `count` records ended, and what interrupted it, if anything did.

    Args:
        advance: Goes on to a record; returns the status and the record.
        count: The number of records.
        keep: Called with every record that was reached.
        progress: Called after that with the number of records done and to do.
    """
    status = Status.COMPLETED
    try:
        for index in range(count):
            status, record = advance(index)
            if status != Status.COMPLETED:
                break
            keep(record)
            if progress is not None:
                progress(index + 1, count)
    except KeyboardInterrupt as error:
        return Status.INTERRUPTED, error
    return status, None


def stack(records: Sequence[PyTree], like: PyTree) -> PyTree:
    """The records, each shaped like `like`, along a new first axis of every leaf."""
    if not records:
        return jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape), leaf.dtype), like)
    # By NumPy: JAX would compile a program for every number of records.
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *records)
