"""Gradient descent and its flows in lock step: how wrong each flow is, and was said to be."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from ..counter_terms import orbit
from ..dynamics.equation_of_motion import EquationOfMotion
from ..dynamics.gradient_descent import GradientDescent
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import rounding_of
from ..solvers.interruption import RunInterrupted
from ..solvers.requirements import (
    require_max_steps,
    require_one_dtype,
    require_orders,
    require_progress,
    require_records,
    require_steps,
    require_tolerances,
)
from ..solvers.trajectory import Status
from .comparison import Comparison
from .lock_step import LockStep
from .requirements import require_restart


def compare(
    problem: Problem,
    params: PyTree,
    learning_rate: Any,
    steps: int,
    orders: Any = (0, 1),
    *,
    records: Any = None,
    predict: bool = True,
    restart: int | None = None,
    method: str = "taylor",
    rtol: float | None = None,
    atol: float | None = None,
    solver: diffrax.AbstractSolver | None = None,
    max_steps: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """The discretization error of every order's flow, measured beside what theory predicts.

    Descent and every flow start from the same params and advance in lock step from record to
    record. No trajectory is stored: memory is a fixed number of parameter vectors.

    Args:
        problem: The problem, with its weight decay.
        params: The params at step 0: any pytree of float arrays.
        learning_rate: The learning rate η.
        steps: The number of steps of gradient descent.
        orders: The orders γ of the flows: 0 is gradient flow, 1 the paper's equation of motion.
        records: At which steps to compare: a list of step numbers, or how many evenly spaced ones
            after the start; by default 100.
        predict: Whether to compute what theory predicts for the error, with `predict_error`'s own
            solver and tolerances.
        restart: A step from which further predictions start, from the error measured there (the
            paper's green curve, Figure 2).
        method: How the flows compute their velocities, as for `EquationOfMotion`.
        rtol: Relative tolerance of the flows' solver; by default for each order far below what
            its first omitted term amounts to, from 1e-8 down to 1e-13.
        atol: Absolute tolerance, by default as in `solve`.
        solver: Any diffrax solver. By default as in `solve`, with a smaller share of the
            tolerance for a step of `StabilizedAdams`.
        max_steps: How many steps each flow's solver may try, by default a million.
        progress: Called with the number of records done and to do, after each record.

    Returns:
        A `Comparison`. Descent that diverges ends it with a status, the records before are kept; a
        flow that fails leaves NaN from there on. An interruption from the keyboard raises
        `RunInterrupted`, whose `result` is the comparison so far.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4)
        >>> cf.compare(problem, jnp.array([1.0]), learning_rate=0.01, steps=100, orders=(0, 1))
        Comparison at η = 0.01, λ = 0, 101 records; gradient descent completed
        at step 100, t = 1:
        order     error  relative  solver     local  off by  propagated  off by
            0    0.0016    0.0028   1e-08   0.00404   153 %     0.00159   0.6 %
            1  2.24e-05   3.9e-05   5e-09  6.48e-05   189 %    2.23e-05  0.62 %
    """
    descent = GradientDescent(problem, learning_rate)
    orders = require_orders(orders)
    flows = [EquationOfMotion(problem, learning_rate, order, method) for order in orders]
    steps = require_steps(steps)
    kept = require_records(records, steps, default=100)
    if restart is not None:
        restart = require_restart(restart, steps, predict)
        kept = np.unique([*kept, restart])
    require_progress(progress)
    max_steps = require_max_steps(max_steps)
    params = at_the_door(problem, params)
    require_one_dtype(params)
    tolerances = flow_tolerances(flows, params, rtol, atol)
    predicted = orders if predict else ()
    run = LockStep(descent, flows, params, kept, tolerances, solver, max_steps, predicted, restart)
    interruption = None
    try:
        for index in range(len(kept)):
            if not run.advance(index):
                break
            if progress is not None:
                progress(index + 1, len(kept))
    except KeyboardInterrupt as error:
        run.status, interruption = Status.INTERRUPTED, error
    result = run.result()
    if interruption is not None:
        raise RunInterrupted(f"{run.status}: {run.status.remedy}", result) from interruption
    return result


def flow_tolerances(
    flows: list[EquationOfMotion],
    params: PyTree,
    rtol: float | None,
    atol: float | None,
    share: float = 1e-5,
    coarsest: float = 1e-8,
) -> list[tuple[float, float]]:
    """The tolerances for each flow, by default far below the error that is to be measured.

    Args:
        flows: The flows.
        params: Where they start.
        rtol: The relative tolerance of all of them, if it is given.
        atol: The absolute one.
        share: By default, the relative one is this part of what the first omitted term amounts to,
        coarsest: but not more than this, in double precision.
    """
    if rtol is not None:
        return [require_tolerances(rtol, atol, params)] * len(flows)
    problem, learning_rate = flows[0].problem, flows[0].learning_rate
    most = max(flow.order for flow in flows) + 1
    terms = np.asarray(_difference_sizes(problem, params, learning_rate, most), float)
    with np.errstate(divide="ignore", invalid="ignore"):
        omitted = np.nan_to_num(terms / terms[0], nan=1.0)
    double = rounding_of(params) < 1e-10
    finest, coarsest = (1e-13, coarsest) if double else (1e-5, 1e-4)
    chosen = [float(np.clip(share * omitted[flow.order + 1], finest, coarsest)) for flow in flows]
    return [require_tolerances(value, atol, params) for value in chosen]


@eqx.filter_jit
def _difference_sizes(problem: Problem, params: PyTree, learning_rate: Any, count: int) -> Any:
    return orbit.difference_sizes(problem.gradient, params, learning_rate, count)
