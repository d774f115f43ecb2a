"""One way to run every dynamics: `solve`."""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..dynamics.convergence import measure_convergence
from ..dynamics.dynamics import Dynamics, Flow
from ..dynamics.equation_of_motion import EquationOfMotion
from ..dynamics.gradient_descent import GradientDescent
from ..problem.requirements import at_the_door
from ..problem.tree import on_device
from . import descent, flow
from .choice import choose_solver
from .requirements import (
    require_max_steps,
    require_one_dtype,
    require_progress,
    require_times,
    require_tolerances,
)
from .runners import DescentRunner, FlowRunner, Runner, run_records, stack
from .trajectory import SolveError, SolveInterrupted, Status, Trajectory


def solve(
    dynamics: Dynamics,
    params: PyTree,
    times: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    solver: diffrax.AbstractSolver | None = None,
    max_steps: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    throw: bool = True,
) -> Trajectory:
    """The trajectory of a dynamics from `params` at time 0 through the requested times.

    Nothing is kept between records, so memory does not grow with the number of steps.

    Args:
        dynamics: `GradientDescent`, `GradientFlow` or `EquationOfMotion`.
        params: The params at time 0: any pytree of float arrays.
        times: Increasing times from 0 on, at which to record the params; for gradient descent,
            multiples of the learning rate.
        rtol: Relative tolerance of the flow's solver, by default 1e-8 in double precision and 1e-4
            in single.
        atol: Absolute tolerance, by default `rtol / 100`; less where all params are below 0.01.
        solver: Any diffrax solver for ordinary differential equations. By default, for a flow
            whose spectral radius, measured at the start, times the horizon exceeds 20,
            `StabilizedAdams`, or `ROCK4` where it is very stiff; else Tsit5, or Dopri8 for an
            `rtol` below 1e-7. The statistics say which. A solver without an error estimate is run
            with step doubling.
        max_steps: How many steps a flow's solver may try, by default a million; for gradient
            descent, how many steps may be taken, by default as many as `times` ask for.
        progress: Called with the number of records done and to do, after each record.
        throw: Whether a run that cannot be completed raises `SolveError` (which carries the
            trajectory so far) or returns that trajectory, with its status. An interruption from
            the keyboard always raises `SolveInterrupted`, which carries it too.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(theta**2) / 2)
        >>> times = 0.1 * np.arange(0, 101, 50)
        >>> descent = cf.solve(cf.GradientDescent(problem, 0.1), jnp.ones(1), times)
        >>> flow = cf.solve(cf.EquationOfMotion(problem, 0.1, order=3), jnp.ones(1), times)
        >>> descent
        Trajectory(3 records, t = 0 … 10; completed; gradient descent, 100 gradient evaluations,
        100 steps accepted, 0 rejected)
        >>> [f"{error:.0e}" for error in abs(flow.params - descent.params)[:, 0]]
        ['0e+00', '6e-07', '6e-09']
    """
    if not isinstance(dynamics, Dynamics):
        raise TypeError(
            "`dynamics` must be a GradientDescent, GradientFlow or EquationOfMotion, got "
            f"{type(dynamics).__name__}"
        )
    times = require_times(times)
    max_steps = require_max_steps(max_steps)
    require_progress(progress)
    params = at_the_door(dynamics.problem, params)
    runner: Runner
    if isinstance(dynamics, GradientDescent):
        if not (rtol is None and atol is None and solver is None):
            raise TypeError(
                "`rtol`, `atol` and `solver` are for flows: gradient descent takes its own steps"
            )
        # On the host the learning rate is in double precision, even where JAX has none.
        steps = descent.steps_at(times, dynamics.learning_rate)
        runner = DescentRunner(on_device(dynamics), params, steps, max_steps)
    elif isinstance(dynamics, Flow):
        require_one_dtype(params)
        rtol, atol = require_tolerances(rtol, atol, params)
        dtype = jnp.result_type(*jax.tree.leaves(params))
        moved: Flow = on_device(dynamics)
        horizon, looks = float(times[-1]), len(times)
        chosen = choose_solver(solver, moved, params, rtol, horizon, looks, careful=False)
        integrator = flow.Integrator(chosen.solver, rtol, atol, dtype)
        _warn_beyond(dynamics, params)
        found = chosen.evaluations, chosen.velocity, chosen.estimate
        runner = FlowRunner(moved, params, times, integrator, max_steps, *found)
    else:
        raise TypeError(f"`dynamics` must have steps or a velocity, got {type(dynamics).__name__}")

    records: list[PyTree] = []
    status, interruption = run_records(runner.advance, len(times), records.append, progress)
    trajectory = Trajectory(
        times[: len(records)], stack(records, params), status, runner.statistics()
    )
    message = f"{status} {runner.where()}: {status.remedy}"
    if interruption is not None:
        raise SolveInterrupted(message, trajectory) from interruption
    if throw and status != Status.COMPLETED:
        raise SolveError(message, trajectory)
    return trajectory


def _warn_beyond(dynamics: Flow, params: PyTree) -> None:
    """Warns where an equation of motion is asked for an order that its series does not support."""
    if isinstance(dynamics, EquationOfMotion) and dynamics.order > 0:
        measured = measure_convergence(
            dynamics.problem, params, dynamics.learning_rate, dynamics.order, dynamics.method
        )
        measured.warn_beyond(dynamics.order, caller=4)
