"""The discretization error of a flow, predicted without running gradient descent."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from ..dynamics.equation_of_motion import EquationOfMotion
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import norm, on_device, rounding_of
from ..solvers.choice import choose_solver
from ..solvers.flow import STABILIZED_SOLVERS, Integrator
from ..solvers.interruption import RunInterrupted
from ..solvers.requirements import (
    require_max_steps,
    require_one_dtype,
    require_progress,
    require_records,
    require_steps,
    require_tolerances,
)
from ..solvers.runners import FlowRunner, run_records, stack
from ..solvers.trajectory import Statistics, Status
from .error_equation import MEASURE, ErrorEquation, ErrorState, uncertainty
from .percent import percent
from .requirements import require_error

# A prediction is good to a few digits at best; the flow need not be solved better than that.
_RTOL, _RTOL_SINGLE = 1e-6, 1e-4
# Where the refined prediction needs more, the learning rate is far beyond what can be predicted.
_MAX_STEPS = 20_000


@dataclass(frozen=True, eq=False)
class PredictedError:
    """One prediction of the discretization error at every record.

    Attributes:
        vectors: The predicted `e_k`, stacked along a new first axis of every leaf of the params.
        norms: `‖e_k‖` as predicted.
        uncertainty: The estimated relative error of the prediction, from the next order; it
            estimates `‖predicted − measured‖ / ‖measured‖`. Far below one, the prediction can be
            trusted; near or above one it cannot.
    """

    vectors: PyTree
    norms: Float[np.ndarray, " records"]
    uncertainty: Float[np.ndarray, " records"]


@dataclass(frozen=True, eq=False)
class ErrorPrediction:
    """The predicted discretization error of a flow, as far as the flow could be run.

    Attributes:
        learning_rate: The learning rate η.
        order: The order γ of the flow.
        steps: The step numbers of the records.
        times: Their times `kη`.
        params: The flow's params there, stacked along a new first axis of every leaf.
        local: The paper's sum, `∫ η^{γ+1} ξ̃_γ dt` (Equation 12 and Corollary 4.1).
        propagated: The leading order that holds uniformly in time,
            `ė = −(H + λI)e + η^{γ+1} ξ̃_γ`.
        status: How the run ended; `Status.COMPLETED` if every record was reached.
        statistics: What it cost.
    """

    learning_rate: float
    order: int
    steps: np.ndarray
    times: Float[np.ndarray, " records"]
    params: PyTree
    local: PredictedError
    propagated: PredictedError
    status: Status
    statistics: Statistics

    def __repr__(self) -> str:
        where = f"order {self.order}, η = {self.learning_rate:g}"
        if not len(self.steps):
            return f"ErrorPrediction({where}; {self.status} before the first record)"
        said = [
            f"{name} {predicted.norms[-1]:.3g} (± {percent(predicted.uncertainty[-1])})"
            for name, predicted in (("local", self.local), ("propagated", self.propagated))
        ]
        return (
            f"ErrorPrediction({where}; at step {self.steps[-1]}, t = {self.times[-1]:g}: "
            f"{', '.join(said)}; {self.status})"
        )


def predict_error(
    problem: Problem,
    params: PyTree,
    learning_rate: Any,
    steps: int,
    order: int = 0,
    *,
    method: str = "taylor",
    records: Any = None,
    initial_error: PyTree | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    solver: diffrax.AbstractSolver | None = None,
    max_steps: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ErrorPrediction:
    """The predicted discretization error `e_k = θ(kη) − θ_k` of a flow, without running descent.

    The predictions are extra state of the flow, integrated with it. An evaluation costs `2γ + 7`
    gradients on top of the velocity with its first omitted term; `2γ + 5` of them are for the
    estimate that each prediction carries of its own relative error.

    Args:
        problem: The problem, with its weight decay.
        params: The params at step 0.
        learning_rate: The η of gradient descent.
        steps: The number of steps to predict.
        order: The order γ of the flow: 0 is gradient flow.
        method: How the flow computes its velocity, as for `EquationOfMotion`. The source of the
            error matches: `η^{γ+1} ξ̃_γ`, or the first difference left out by `"orbit"`.
        records: At which steps to keep the prediction: a list of step numbers, or how many evenly
            spaced ones after the start; by default the last step alone. A record keeps four
            vectors.
        initial_error: The discretization error at step 0, if it is not zero: with it, a prediction
            goes on from an error that was measured; `params` are then the flow's, not descent's.
        rtol: Relative tolerance for the flow's params, by default 1e-6; the errors are solved to
            ten times that.
        atol: Absolute tolerance for the params, by default `rtol / 100`.
        solver: Any diffrax solver, by default as in `compare`.
        max_steps: How many steps the solver may try, by default 20,000.
        progress: Called with the number of records done and to do, after each record.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4)
        >>> cf.predict_error(problem, jnp.array([1.0]), learning_rate=0.01, steps=100)
        ErrorPrediction(order 0, η = 0.01; at step 100, t = 1:
        local 0.00404 (± 153 %), propagated 0.00159 (± 0.6 %); completed)

        The real error, which takes a run of descent to know:

        >>> comparison = cf.compare(problem, jnp.array([1.0]), 0.01, steps=100, orders=(0,))
        >>> print(f"{comparison.error[0, -1]:.3g}")
        0.0016
    """
    flow = EquationOfMotion(problem, learning_rate, order, method)
    steps = require_steps(steps)
    kept = np.array([steps]) if records is None else require_records(records, steps, 1)
    require_progress(progress)
    params = at_the_door(problem, params)
    if initial_error is not None:
        initial_error = require_error(initial_error, params)
    prediction = PredictionRunner(
        flow,
        params,
        kept * float(flow.learning_rate),
        initial_error,
        rtol=rtol,
        atol=atol,
        solver=solver,
        max_steps=max_steps,
    )
    found: list[ErrorState] = []
    measured: list[np.ndarray] = []

    def keep(record: ErrorState) -> None:
        measured.append(np.asarray(_sizes(record)))
        found.append(record)

    status, interruption = run_records(prediction.advance, len(kept), keep, progress)
    stacked = stack(found, ErrorState(params, params, params, params, jnp.zeros(())))
    sizes = np.array(measured).reshape(len(found), 2, 2)
    result = ErrorPrediction(
        learning_rate=float(flow.learning_rate),
        order=flow.order,
        steps=kept[: len(found)],
        times=kept[: len(found)] * float(flow.learning_rate),
        params=stacked.params,
        local=PredictedError(stacked.local, sizes[:, 0, 0], sizes[:, 0, 1]),
        propagated=PredictedError(stacked.propagated, sizes[:, 1, 0], sizes[:, 1, 1]),
        status=status,
        statistics=prediction.statistics(),
    )
    if interruption is not None:
        raise RunInterrupted(f"{status}: {status.remedy}", result) from interruption
    return result


@eqx.filter_jit
def _sizes(errors: ErrorState) -> jax.Array:
    """The norm and the uncertainty of the local and of the propagated prediction."""
    rows = [(norm(e), uncertainty(e, errors)) for e in (errors.local, errors.propagated)]
    return jnp.array(rows)


def prediction_tolerances(
    params: PyTree, rtol: float | None = None, atol: float | None = None
) -> tuple[float, float]:
    """The tolerances of the flow of a prediction, or their defaults."""
    if rtol is None:
        rtol = _RTOL if rounding_of(params) < 1e-10 else _RTOL_SINGLE
    return require_tolerances(rtol, atol, params)


class PredictionRunner:
    """The error equation of a flow from record to record."""

    def __init__(
        self,
        flow: EquationOfMotion,
        params: PyTree,
        times: np.ndarray,
        initial_error: PyTree | None = None,
        *,
        rtol: float | None = None,
        atol: float | None = None,
        solver: diffrax.AbstractSolver | None = None,
        max_steps: int | None = None,
        estimate: bool = True,
    ):
        require_one_dtype(params)
        rtol, atol = prediction_tolerances(params, rtol, atol)
        dtype = jnp.result_type(*jax.tree.leaves(params))
        self.equation: ErrorEquation = on_device(ErrorEquation(flow, estimate))
        equation = self.equation
        horizon, records = float(times[-1]), len(times)
        chosen = choose_solver(solver, equation.flow, params, rtol, horizon, records)
        # What predicts an error is driven by the params, and drives nothing.
        self.solver = chosen.solver
        if isinstance(chosen.solver, STABILIZED_SOLVERS):
            self.solver = replace(chosen.solver, part=_params_of)
        integrator = Integrator(self.solver, rtol, atol, dtype, MEASURE)
        start = _start(equation, params, initial_error)
        max_steps = require_max_steps(max_steps) or _MAX_STEPS
        known = chosen.estimate  # of the params, which the solver looks at
        self.runner = FlowRunner(equation, start, times, integrator, max_steps, estimate=known)
        self._spent = chosen.evaluations * equation.flow.gradient_evaluations

    def advance(self, index: int) -> tuple[Status, ErrorState | None]:
        """The status after going on to a record; the flow's params and predicted errors there."""
        status, state = self.runner.advance(index)
        if status != Status.COMPLETED:
            return status, None
        return status, _read(self.equation, state)

    def allow(self, attempts: int) -> None:
        """Allows the solver no more than so many steps in all."""
        self.runner.max_steps = attempts

    def statistics(self) -> Statistics:
        """What it cost so far."""
        cost, times = self.runner.statistics(), self.runner.times
        if cost.gradient_evaluations is None:
            return cost
        reads = int(np.searchsorted(times, float(self.runner.state.time), side="right"))
        further = self._spent + self.equation.reading_costs * (1 + reads)
        return replace(cost, gradient_evaluations=cost.gradient_evaluations + further)


def _params_of(state: ErrorState) -> PyTree:
    return state.params


@eqx.filter_jit
def _start(equation: ErrorEquation, params: PyTree, error: PyTree | None) -> ErrorState:
    return equation.start(params, error)


@eqx.filter_jit
def _read(equation: ErrorEquation, state: ErrorState) -> ErrorState:
    return equation.read(state)
