"""A flow from record to record: the stepping loop around a diffrax solver and its controller.

The solver and the step-size controller are diffrax's. The loop is ours because it has to stop at
records and go on from there: it keeps the solver's own next step when a record cuts a step short,
and everything it needs to go on is in one state.
"""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..dynamics.dynamics import Flow
from ..problem.tree import is_finite, norm, rms
from .measure import EVERYTHING, Measure
from .rock4 import ROCK4, after_rejection, longest_step
from .spectral_radius import Estimate
from .stabilized_adams import StabilizedAdams, adams_after_rejection
from .trajectory import divergence_bound

# Solvers whose dense output is as accurate as their steps (measured in tests/solvers). Where
# records are denser than steps it saves up to two thirds of the work; Dopri8's would lose digits.
DENSE_SOLVERS = (diffrax.Tsit5, ROCK4, StabilizedAdams)

#: Solvers that know the spectral radius, and count their evaluations.
STABILIZED_SOLVERS = (ROCK4, StabilizedAdams)

# The length of a step times the spectral radius, up to which this holds for ROCK4: beyond, records
# between its steps were up to twenty times less accurate. They are stopped at instead.
_STIFFEST_DENSE = 10

RUNNING, DIVERGED, NON_FINITE, STEP_VANISHED, TOO_MANY_STEPS = range(5)


class FlowState(eqx.Module):
    """Where a flow stands: everything needed to go on.

    The last step went from `step_start` to `time`; `dense_info` interpolates it. `step_size` is the
    step that the controller wants next, whatever records stand in the way.
    """

    time: Float[Array, ""]
    params: PyTree
    step_start: Float[Array, ""]
    dense_info: PyTree
    step_size: Float[Array, ""]
    solver_state: PyTree
    controller_state: PyTree
    made_jump: Bool[Array, ""]
    accepted: Int[Array, ""]
    rejected: Int[Array, ""]
    restarts: Int[Array, ""]  # attempts that had to evaluate the velocity at their start
    code: Int[Array, ""]
    bound: Float[Array, ""]


class Integrator(eqx.Module):
    """A diffrax solver with a controller: how a flow is stepped."""

    solver: diffrax.AbstractSolver
    controller: diffrax.PIDController
    measure: Measure = eqx.field(static=True)
    dense: bool = eqx.field(static=True)

    def __init__(
        self,
        solver: diffrax.AbstractSolver,
        rtol: float,
        atol: float,
        dtype: Any,
        measure: Measure = EVERYTHING,
    ):
        self.measure = measure
        # Proportional-integral control, which rejects fewer steps than the integral control that
        # is diffrax's default.
        # Tolerances are arrays so that another one does not compile anew.
        self.controller = diffrax.PIDController(
            rtol=jnp.asarray(rtol, dtype),
            atol=jnp.asarray(atol, dtype),
            pcoeff=0.3,
            icoeff=0.4,
            norm=measure.norm,
        )
        self.dense = isinstance(solver, DENSE_SOLVERS)
        if not isinstance(solver, diffrax.AbstractAdaptiveSolver):
            solver = diffrax.HalfSolver(solver)
        if isinstance(solver, diffrax.AbstractImplicitSolver):
            solver = _with_tolerances(solver, self.controller)
        if getattr(solver, "scan_kind", "lax") is None:
            # The default keeps what reverse mode would need.
            solver = eqx.tree_at(lambda s: s.scan_kind, solver, "lax", is_leaf=lambda x: x is None)
        if isinstance(solver, StabilizedAdams):
            solver = solver.judged(measure, self.controller.rtol, self.controller.atol)
        self.solver = solver


def _velocity(time: Any, params: PyTree, flow: Flow) -> PyTree:
    del time
    return flow.velocity(params)


TERM = diffrax.ODETerm(_velocity)


@eqx.filter_jit
def start_flow(
    flow: Flow,
    integrator: Integrator,
    params: PyTree,
    velocity: PyTree = None,
    estimate: Estimate | None = None,
) -> FlowState:
    """The state before the first step, with a first step size from one evaluation.

    Args:
        flow: The flow.
        integrator: How it is stepped.
        params: Where it starts.
        velocity: The velocity there, if it is known.
        estimate: The spectral radius there, if it is known.
    """
    solver, controller = integrator.solver, integrator.controller
    zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(params)))
    if velocity is None:
        velocity = flow.velocity(params)
    step_size = _first_step_size(integrator, params, velocity).astype(zero.dtype)
    step_end, controller_state = controller.init(
        TERM, zero, zero, params, step_size, flow, solver.func, _error_order(solver)
    )
    # Arrays from the start: a plain `False` in here would have everything compiled twice.
    controller_state = jax.tree.map(jnp.asarray, controller_state)
    if isinstance(solver, STABILIZED_SOLVERS):
        solver_state = solver.begin(TERM, zero, params, flow, velocity, estimate)
    else:
        solver_state = solver.init(TERM, zero, step_end, params, flow)
    dense_info = None
    if integrator.dense:
        shapes = jax.eval_shape(
            lambda s: solver.step(TERM, zero, step_end, params, flow, s, jnp.array(False))[2],
            solver_state,
        )
        dense_info = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    count = jnp.zeros((), jnp.int32)
    return FlowState(
        time=zero,
        params=params,
        step_start=zero,
        dense_info=dense_info,
        step_size=step_size,
        solver_state=solver_state,
        controller_state=controller_state,
        made_jump=jnp.array(False),
        accepted=count,
        rejected=count,
        restarts=count,
        code=count,
        bound=divergence_bound(params),
    )


def _first_step_size(integrator: Integrator, params: PyTree, velocity: PyTree) -> Float[Array, ""]:
    """A cautious first step: the params change by at most a hundredth, the error stays small.

    After Hairer, Nørsett & Wanner, *Solving Ordinary Differential Equations I*, section II.4,
    without the second evaluation, which would cost another compilation of the velocity.
    """
    controller = integrator.controller

    def size(tree: PyTree) -> Any:
        seen, here = integrator.measure.first(tree), integrator.measure.first(params)
        scaled = jax.tree.map(
            lambda a, b: a / (controller.atol + jnp.abs(b) * controller.rtol), seen, here
        )
        return rms(scaled)

    speed, length = size(velocity), size(params)
    # A multistep method begins with the order one.
    adams = isinstance(integrator.solver, StabilizedAdams)
    accurate = (0.01 / speed) ** (1 / (2 if adams else _error_order(integrator.solver)))
    smooth = jnp.where(length > 0, length / speed, jnp.inf)
    # Not a number where the velocity is not: the first attempt then ends the run.
    return jnp.where(speed == 0, 1.0, jnp.minimum(accurate, smooth))


@eqx.filter_jit
def flow_to(
    flow: Flow,
    integrator: Integrator,
    state: FlowState,
    record: Float[Array, ""],
    horizon: Float[Array, ""],
    max_steps: Int[Array, ""],
) -> tuple[FlowState, PyTree]:
    """The state after reaching a record, and the params at the record.

    With dense output, steps are cut at the horizon only (those of `ROCK4` also at records, where
    the flow is stiff), and the record is read off the last step.
    """
    shortest = 16 * jnp.finfo(state.time.dtype).eps * horizon

    def unfinished(state):
        return (state.time < record) & (state.code == RUNNING)

    def body(state):
        goal = horizon if integrator.dense else record
        if isinstance(integrator.solver, ROCK4):
            longest = longest_step(state.solver_state)
            state = eqx.tree_at(lambda s: s.step_size, state, jnp.minimum(state.step_size, longest))
            # Its dense output takes two steps, and none in which much decays: what is left of that
            # at the ends is small, but its slopes are not.
            stiff = state.step_size * state.solver_state.radius > _STIFFEST_DENSE
            goal = jnp.where((state.accepted == 0) | stiff, record, goal)
        # A step that would end just short of its goal is stretched, not followed by a tiny one.
        cut = state.time + 1.001 * state.step_size >= goal
        end = jnp.where(cut, goal, state.time + state.step_size)
        return _attempt(flow, integrator, state, end, cut, shortest, max_steps)

    state = jax.lax.while_loop(unfinished, body, state)
    if not integrator.dense:
        return state, state.params
    interpolation = integrator.solver.interpolation_cls(
        t0=state.step_start, t1=state.time, **state.dense_info
    )
    between = state.time > record
    read_off = interpolation.evaluate(jnp.where(between, record, state.time))
    params = jax.tree.map(lambda a, b: jnp.where(between, a, b), read_off, state.params)
    return state, params


def _attempt(
    flow: Flow,
    integrator: Integrator,
    state: FlowState,
    end: Float[Array, ""],
    cut: Bool[Array, ""],
    shortest: Float[Array, ""],
    max_steps: Int[Array, ""],
) -> FlowState:
    """The state after one attempted step to `end`."""
    solver, controller = integrator.solver, integrator.controller
    params, error, dense_info, solver_state, _ = solver.step(
        TERM, state.time, end, state.params, flow, state.solver_state, state.made_jump
    )
    old, new, seen = integrator.measure.view(flow, controller.rtol, state.params, params, error)
    keep, next_start, next_end, made_jump, controller_state, _ = controller.adapt_step_size(
        state.time,
        end,
        old,
        new,
        flow,
        seen,
        _error_order(solver),
        state.controller_state,
    )
    finite = is_finite(params)
    keep = keep & finite
    proposed = next_end - next_start
    if isinstance(solver, StabilizedAdams):
        proposed = solver_state.proposal
    # An error that is not a number leaves the controller without a proposal.
    usable = jnp.isfinite(proposed) & finite
    proposed = jnp.where(usable, proposed, 0.2 * (end - state.time))
    kept_step = jnp.where(cut, jnp.maximum(proposed, state.step_size), proposed)
    step_size = jnp.where(keep, kept_step, jnp.minimum(proposed, 0.9 * (end - state.time)))

    def chosen(new, old):
        return jax.tree.map(lambda a, b: jnp.where(keep, a, b), new, old)

    next_solver_state = chosen(solver_state, state.solver_state)
    if isinstance(solver, STABILIZED_SOLVERS):
        retried = after_rejection if isinstance(solver, ROCK4) else adams_after_rejection
        retry = retried(state.solver_state, solver_state)
        next_solver_state = jax.tree.map(
            lambda a, b: jnp.where(keep, a, b), next_solver_state, retry
        )
    accepted = state.accepted + keep
    rejected = state.rejected + ~keep
    vanished = ~keep & ~(step_size >= shortest)  # also a step that is not a number
    code = jnp.select(
        [
            vanished & finite,
            vanished,
            keep & (norm(params) > state.bound),
            accepted + rejected >= max_steps,
        ],
        [STEP_VANISHED, NON_FINITE, DIVERGED, TOO_MANY_STEPS],
        RUNNING,
    )
    return FlowState(
        time=jnp.where(keep, end, state.time),
        params=chosen(params, state.params),
        step_start=jnp.where(keep, state.time, state.step_start),
        dense_info=chosen(dense_info, state.dense_info) if integrator.dense else None,
        step_size=step_size,
        solver_state=next_solver_state,
        # A step that a record cut short says nothing about the error of the next one.
        controller_state=jax.tree.map(
            lambda a, b: jnp.where(keep & ~cut, a, b), controller_state, state.controller_state
        ),
        made_jump=jnp.where(keep, made_jump, state.made_jump),
        accepted=accepted,
        rejected=rejected,
        restarts=state.restarts + (state.accepted == 0),
        code=code.astype(jnp.int32),
        bound=state.bound,
    )


def _error_order(solver: diffrax.AbstractSolver) -> Any:
    order = solver.error_order(TERM)
    if order is None:
        raise TypeError(
            f"`solver` must be one for ordinary differential equations, got "
            f"{type(solver).__name__}, whose order is unknown for them"
        )
    return order


def velocity_evaluations(solver: diffrax.AbstractSolver, state: FlowState) -> int | None:
    """How often the velocity was evaluated to reach a state; `None` for implicit solvers."""
    at_start = 1  # for the first step size
    if isinstance(solver, STABILIZED_SOLVERS):
        return at_start + int(state.solver_state.evaluations)
    attempts = int(state.accepted) + int(state.rejected)
    per_attempt = _per_attempt(solver)
    if per_attempt is None:
        return None
    stages, reuses_last = per_attempt
    if reuses_last:
        return at_start + attempts * (stages - 1) + int(state.restarts)
    return at_start + attempts * stages


def _per_attempt(solver: diffrax.AbstractSolver) -> tuple[int, bool] | None:
    """The stages of one attempt, and whether the first is taken over from the step before."""
    if isinstance(solver, diffrax.HalfSolver):
        inner = _per_attempt(solver.solver)
        # The full step starts where the first half step does, but evaluates there on its own.
        return None if inner is None or inner[1] else (3 * inner[0], False)
    if isinstance(solver, diffrax.Euler):
        return 1, False
    if isinstance(solver, diffrax.AbstractERK):
        tableau = solver.tableau
        if isinstance(tableau, diffrax.ButcherTableau):
            return tableau.num_stages, tableau.fsal
    return None


def _with_tolerances(solver: Any, controller: diffrax.PIDController) -> Any:
    """An implicit solver whose root finder takes unset tolerances from the controller."""
    names = ("rtol", "atol", "norm")
    unset = [n for n in names if not isinstance(getattr(solver.root_finder, n), int | float)]
    unset = [n for n in unset if not callable(getattr(solver.root_finder, n))]
    return eqx.tree_at(
        lambda s: [getattr(s.root_finder, n) for n in unset],
        solver,
        [getattr(controller, n) for n in unset],
    )
