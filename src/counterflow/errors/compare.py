"""Gradient descent and its flows in lock step: how wrong each flow is, and was said to be."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..counter_terms import orbit
from ..dynamics.equation_of_motion import EquationOfMotion
from ..dynamics.gradient_descent import GradientDescent
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import add_scaled, distance, norm, on_device, rounding_of
from ..solvers.flow import Integrator
from ..solvers.requirements import (
    require_max_steps,
    require_one_dtype,
    require_progress,
    require_solver,
    require_tolerances,
)
from ..solvers.runners import DescentRunner, FlowRunner
from ..solvers.trajectory import Statistics, Status
from .comparison import ComparedPrediction, Comparison
from .error_equation import ErrorState, uncertainty
from .interruption import RunInterrupted
from .predict_error import PredictionRunner
from .requirements import require_orders, require_records, require_restart, require_steps

_KINDS = ("local", "propagated")
_PARTS = ("prediction", "mismatch", "uncertainty")
# How many steps a prediction may take: some, and a multiple of those of its flow.
_FEW_STEPS, _MORE_STEPS = 200, 20
# Tsit5 reads many records off its own steps; Dopri8, which needs fewer, has to stop at each.
_MANY_RECORDS, _TSIT5_ABOVE = 20, 3e-13


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
        atol: Absolute tolerance, by default `rtol / 100`.
        solver: Any diffrax solver. By default Tsit5, or Dopri8 for a small `rtol` and few records.
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
    tolerances = _tolerances(flows, params, rtol, atol)
    run = _LockStep(descent, flows, params, kept, tolerances, solver, max_steps, predict, restart)
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


def _tolerances(
    flows: list[EquationOfMotion], params: PyTree, rtol: float | None, atol: float | None
) -> list[tuple[float, float]]:
    """The tolerances for each flow, by default far below the error that is to be measured."""
    if rtol is not None:
        return [require_tolerances(rtol, atol, params)] * len(flows)
    problem, learning_rate = flows[0].problem, flows[0].learning_rate
    most = max(flow.order for flow in flows) + 1
    terms = np.asarray(_difference_sizes(problem, params, learning_rate, most), float)
    with np.errstate(divide="ignore", invalid="ignore"):
        omitted = np.nan_to_num(terms / terms[0], nan=1.0)
    double = rounding_of(params) < 1e-10
    finest, coarsest = (1e-13, 1e-8) if double else (1e-5, 1e-4)
    chosen = [float(np.clip(1e-5 * omitted[flow.order + 1], finest, coarsest)) for flow in flows]
    return [require_tolerances(value, atol, params) for value in chosen]


@eqx.filter_jit
def _difference_sizes(problem: Problem, params: PyTree, learning_rate: Any, count: int) -> Any:
    return orbit.difference_sizes(problem.gradient, params, learning_rate, count)


class _LockStep:
    """Descent and all flows, where they stand, and what was measured so far."""

    def __init__(
        self,
        descent: GradientDescent,
        flows: list[EquationOfMotion],
        params: PyTree,
        records: np.ndarray,
        tolerances: list[tuple[float, float]],
        solver: diffrax.AbstractSolver | None,
        max_steps: int | None,
        predict: bool,
        restart: int | None,
    ):
        descent = on_device(descent)  # the data move once, whatever the number of flows
        self.problem, self.records, self.restart = descent.problem, records, restart
        self.learning_rate = float(flows[0].learning_rate)
        self.method = flows[0].method
        self.status = Status.COMPLETED
        self.descent = DescentRunner(descent, params, records.astype(np.int32), None)
        names = (*_KINDS, *(f"restarted_{kind}" for kind in _KINDS if restart is not None))
        self.lanes = [
            _Lane(
                EquationOfMotion(self.problem, descent.learning_rate, flow.order, flow.method),
                params,
                records * self.learning_rate,
                tolerance,
                solver,
                max_steps,
                names if predict else (),
            )
            for flow, tolerance in zip(flows, tolerances, strict=True)
        ]
        self.losses: list[float] = []

    def advance(self, index: int) -> bool:
        """Goes on to a record; returns whether descent got there."""
        self.status, params = self.descent.advance(index)
        if self.status != Status.COMPLETED:
            return False
        rows = [lane.advance(index, params) for lane in self.lanes]
        loss = float(_loss(self.problem, params))
        if self.records[index] == self.restart:
            rows = [
                row | lane.restart(index, params)
                for row, lane in zip(rows, self.lanes, strict=True)
            ]
        # Only now, so that an interruption leaves no record half measured.
        self.losses.append(loss)
        for lane, row in zip(self.lanes, rows, strict=True):
            lane.rows.append(row)
        return True

    def result(self) -> Comparison:
        count = len(self.losses)

        def series(name: str) -> np.ndarray:
            rows = [[row.get(name, np.nan) for row in lane.rows[:count]] for lane in self.lanes]
            return np.array(rows, dtype=float).reshape(len(self.lanes), count)

        kinds = self.lanes[0].kinds
        predictions = {
            kind: ComparedPrediction(*(series(f"{kind}_{part}") for part in _PARTS))
            for kind in kinds
        }
        error, solver_error = series("error"), series("solver_error")
        floor = np.maximum(solver_error, series("rounding"))
        statistics = {"descent": self.descent.statistics()}
        for lane in self.lanes:
            statistics |= lane.statistics()
        return Comparison(
            learning_rate=self.learning_rate,
            weight_decay=float(self.problem.weight_decay),
            method=self.method,
            orders=tuple(lane.flow.order for lane in self.lanes),
            steps=self.records[:count],
            error=error,
            relative_error=series("relative_error"),
            solver_error=solver_error,
            # Where nothing has moved there is no error, and nothing to flag.
            solver_limited=(error < 10 * floor) & (error > 0),
            descent_loss=np.array(self.losses, dtype=float),
            flow_loss=series("flow_loss"),
            predictions=predictions,
            restart=self.restart,
            status=self.status,
            flow_status={lane.flow.order: lane.status for lane in self.lanes},
            prediction_status={
                lane.flow.order: next(iter(lane.failed.values()), Status.COMPLETED)
                for lane in self.lanes
            },
            rtol={lane.flow.order: lane.rtol for lane in self.lanes},
            statistics=statistics,
        )


class _Lane:
    """One flow, the same flow solved more coarsely, and the predictions of its error."""

    def __init__(
        self,
        flow: EquationOfMotion,
        params: PyTree,
        times: np.ndarray,
        tolerances: tuple[float, float],
        solver: diffrax.AbstractSolver | None,
        max_steps: int | None,
        kinds: tuple[str, ...],
    ):
        self.flow, self.times, self.max_steps, self.kinds = flow, times, max_steps, kinds
        self.rtol, atol = tolerances
        self.status = Status.COMPLETED
        self.rows: list[dict[str, float]] = []
        dtype = jnp.result_type(*jax.tree.leaves(params))
        if solver is None and self.rtol >= _TSIT5_ABOVE and len(times) > _MANY_RECORDS:
            solver = diffrax.Tsit5()
        solver = require_solver(solver, self.rtol)
        # Where records cut every step short, a looser tolerance alone would change nothing: the
        # flow itself also stops halfway between them.
        midpoints = (times[1:] + times[:-1]) / 2
        halved = np.sort([*times, *midpoints])
        self.runner = FlowRunner(
            flow, params, halved, Integrator(solver, self.rtol, atol, dtype), max_steps
        )
        self.coarse = FlowRunner(
            flow, params, times, Integrator(solver, 10 * self.rtol, 10 * atol, dtype), max_steps
        )
        # By prefix, with the record at which each starts.
        self.predictions: dict[str, tuple[PredictionRunner, int]] = {}
        self.failed: dict[str, Status] = {}
        if kinds:
            start = PredictionRunner(flow, params, times, max_steps=max_steps)
            self.predictions[""] = (start, 0)
        self.at_record: PyTree = params

    def advance(self, index: int, descent: PyTree) -> dict[str, float]:
        """What is measured at a record, where descent is at the params given."""
        if self.status != Status.COMPLETED:
            return {}
        for half in range(max(2 * index - 1, 0), 2 * index + 1):
            if self.status == Status.COMPLETED:
                self.status, self.at_record = self.runner.advance(half)
        coarse: PyTree = None
        if self.status == Status.COMPLETED:
            self.status, coarse = self.coarse.advance(index)
        if self.status != Status.COMPLETED:
            return {}
        measured = _measure(self.flow.problem, descent, self.at_record, coarse)
        predicted = self._predicted(index)
        found = _measure_predictions(descent, self.at_record, predicted)
        return {name: float(value) for name, value in (measured | found).items()}

    def _predicted(self, index: int) -> dict[str, ErrorState]:
        """The predictions at a record, those that have not failed."""
        done = self.runner.statistics()
        attempts = done.accepted_steps + done.rejected_steps
        predicted: dict[str, ErrorState] = {}
        for prefix, (prediction, first) in self.predictions.items():
            if prefix in self.failed:
                continue
            if self.max_steps is None:
                # A refined prediction far beyond its reach is stiff without end.
                prediction.allow(_FEW_STEPS + _MORE_STEPS * attempts)
            status, record = prediction.advance(index - first)
            if record is None:
                self.failed[prefix] = status
            else:
                predicted[prefix] = record
        return predicted

    def restart(self, index: int, descent: PyTree) -> dict[str, float]:
        """Starts the predictions that go on from the error measured at a record; what they are."""
        if self.status != Status.COMPLETED:
            return {}
        error = add_scaled(self.at_record, -1, descent)
        times = self.times[index:] - self.times[index]
        restarted = PredictionRunner(
            self.flow, self.at_record, times, error, max_steps=self.max_steps
        )
        restarted.advance(0)
        self.predictions["restarted_"] = (restarted, index)
        start = dict(zip(_PARTS, (float(norm(error)), 0.0, 0.0), strict=True))
        return {f"restarted_{kind}_{part}": start[part] for kind in _KINDS for part in _PARTS}

    def statistics(self) -> dict[str, Statistics]:
        order = self.flow.order
        found = {
            f"flow {order}": self.runner.statistics(),
            f"coarse flow {order}": self.coarse.statistics(),
        }
        for prefix, (prediction, _) in self.predictions.items():
            name = f"{prefix.replace('_', ' ')}prediction {order}"
            found[name] = prediction.statistics()
        return found


@eqx.filter_jit
def _loss(problem: Problem, params: PyTree) -> Any:
    return problem.loss(params) if problem.has_loss else jnp.nan


@eqx.filter_jit
def _measure(problem: Problem, descent: PyTree, flow: PyTree, coarse: PyTree) -> dict[str, Any]:
    error, size = distance(flow, descent), norm(descent)
    return {
        "error": error,
        "relative_error": error / size,
        "solver_error": distance(flow, coarse),
        "rounding": rounding_of(descent) * size,
        "flow_loss": _loss(problem, flow),
    }


@eqx.filter_jit
def _measure_predictions(
    descent: PyTree, flow: PyTree, predicted: dict[str, ErrorState]
) -> dict[str, Any]:
    error = add_scaled(flow, -1, descent)
    found = {}
    for prefix, errors in predicted.items():
        for kind in _KINDS:
            vector = getattr(errors, kind)
            values = (
                norm(vector),
                distance(vector, error) / norm(error),
                uncertainty(vector, errors),
            )
            found |= {f"{prefix}{kind}_{part}": v for part, v in zip(_PARTS, values, strict=True)}
    return found
