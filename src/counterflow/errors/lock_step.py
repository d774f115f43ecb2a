"""Descent and its flows in lock step, from record to record, and what is measured at each."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..dynamics.equation_of_motion import EquationOfMotion
from ..dynamics.gradient_descent import GradientDescent
from ..problem.problem import Problem
from ..problem.tree import add_scaled, distance, norm, on_device, rounding_of
from ..solvers.choice import choose_solver
from ..solvers.flow import Integrator
from ..solvers.runners import DescentRunner, FlowRunner
from ..solvers.trajectory import Statistics, Status
from .comparison import ComparedPrediction, Comparison
from .error_equation import KINDS, ErrorState, uncertainty
from .predict_error import PredictionRunner

_PARTS = tuple(field.name for field in fields(ComparedPrediction))
# The tolerance of a prediction that does not know its uncertainty: four digits and more of it.
_PLAIN_RTOL = 1e-5
# How many steps a prediction may take: some, and a multiple of those of its flow.
_FEW_STEPS, _MORE_STEPS = 200, 20


class LockStep:
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
        predict: tuple[int, ...],
        restart: int | None,
        estimate: bool = True,
    ):
        descent = on_device(descent)  # the data move once, whatever the number of flows
        self.problem, self.records, self.restart = descent.problem, records, restart
        self.learning_rate = float(flows[0].learning_rate)
        self.method = flows[0].method
        self.status = Status.COMPLETED
        self.descent = DescentRunner(descent, params, records.astype(np.int32), None)
        names = (*KINDS, *(f"restarted_{kind}" for kind in KINDS if restart is not None))
        self.lanes = [
            _Lane(
                EquationOfMotion(self.problem, descent.learning_rate, flow.order, flow.method),
                params,
                records * self.learning_rate,
                tolerance,
                solver,
                max_steps,
                names if flow.order in predict else (),
                estimate,
            )
            for flow, tolerance in zip(flows, tolerances, strict=True)
        ]
        self.losses: list[float] = []

    @property
    def processes(self) -> dict[str, PyTree]:
        """The params of descent and of every flow that is still running, by name."""
        flows = {lane.name: lane for lane in self.lanes if lane.status == Status.COMPLETED}
        return {"descent": self.descent.state.params} | {
            name: lane.at_record for name, lane in flows.items()
        }

    @property
    def latest(self) -> dict[str, dict[str, float]]:
        """What was measured at the last record, by process and quantity."""
        return {"descent": {"loss": self.losses[-1]}} | {
            lane.name: lane.rows[-1] for lane in self.lanes if lane.rows[-1]
        }

    @property
    def statistics(self) -> dict[str, Statistics]:
        """What every part cost, by name."""
        found = {"descent": self.descent.statistics()}
        for lane in self.lanes:
            found |= lane.statistics()
        return found

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

    @property
    def state(self) -> PyTree:
        """Where everything stands: with it and `ended`, another lock step goes on from here."""
        return {
            "descent": self.descent.state,
            "lanes": {lane.name: lane.state for lane in self.lanes},
        }

    @property
    def ended(self) -> dict[str, dict[str, str]]:
        """How flows and predictions ended that did not get here, and which predictions restarted.

        By flow; of JSON values, for keeping beside the state.
        """
        return {lane.name: lane.ended for lane in self.lanes}

    def resume(self, ended: dict[str, dict[str, str]], fill: Callable[[PyTree], PyTree]) -> None:
        """Goes on where another lock step with the same arguments stood.

        Args:
            ended: What the other's `ended` was.
            fill: Called with a state of the right structure, returns the other's `state`.
        """
        for lane in self.lanes:
            lane.resume(ended[lane.name], self.restart, self.records)
        state = fill(self.state)
        self.descent.state = state["descent"]
        for lane in self.lanes:
            lane.state = state["lanes"][lane.name]

    def result(self) -> Comparison:
        """What was measured so far."""
        count = len(self.losses)

        def series(name: str) -> np.ndarray:
            rows = [[row.get(name, np.nan) for row in lane.rows[:count]] for lane in self.lanes]
            return np.array(rows, dtype=float).reshape(len(self.lanes), count)

        kinds = next((lane.kinds for lane in self.lanes if lane.kinds), ())
        predictions = {
            kind: ComparedPrediction(*(series(f"{kind}_{part}") for part in _PARTS))
            for kind in kinds
        }
        error, solver_error = series("error"), series("solver_error")
        floor = np.maximum(solver_error, series("rounding"))
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
            statistics=self.statistics,
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
        estimate: bool,
    ):
        self.name, self.estimate = f"flow {flow.order}", estimate
        self.flow, self.times, self.max_steps, self.kinds = flow, times, max_steps, kinds
        self.rtol, atol = tolerances
        self.status = Status.COMPLETED
        self.rows: list[dict[str, float]] = []
        dtype = jnp.result_type(*jax.tree.leaves(params))
        chosen = choose_solver(solver, flow, params, self.rtol, float(times[-1]), len(times))
        solver, known = chosen.solver, (chosen.velocity, chosen.estimate)
        # Where records cut every step short, a looser tolerance alone would change nothing: the
        # flow itself also stops halfway between them.
        midpoints = (times[1:] + times[:-1]) / 2
        halved = np.sort([*times, *midpoints])
        self.runner = FlowRunner(
            flow,
            params,
            halved,
            Integrator(solver, self.rtol, atol, dtype),
            max_steps,
            chosen.evaluations,
            *known,
        )
        coarser = Integrator(solver, 10 * self.rtol, 10 * atol, dtype)
        self.coarse = FlowRunner(flow, params, times, coarser, max_steps, 0, *known)
        # By prefix, with the record at which each starts.
        self.predictions: dict[str, tuple[PredictionRunner, int]] = {}
        self.failed: dict[str, Status] = {}
        if kinds:
            self.predictions[""] = (self._prediction(params, times), 0)
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
        if self.status != Status.COMPLETED or not self.kinds:
            return {}
        error = add_scaled(self.at_record, -1, descent)
        restarted = self._prediction(self.at_record, self._since(index), error)
        restarted.advance(0)
        self.predictions["restarted_"] = (restarted, index)
        unknown = 0.0 if self.estimate else float("nan")
        start = dict(zip(_PARTS, (float(norm(error)), 0.0, unknown), strict=True))
        return {f"restarted_{kind}_{part}": start[part] for kind in KINDS for part in _PARTS}

    @property
    def state(self) -> PyTree:
        """Where the flow, its coarse twin and its predictions stand."""
        return {
            "flow": self.runner.state,
            "coarse": self.coarse.state,
            "predictions": {
                prefix: prediction.runner.state
                for prefix, (prediction, _) in self.predictions.items()
            },
            "at_record": self.at_record,
        }

    @state.setter
    def state(self, state: PyTree) -> None:
        self.runner.state, self.coarse.state = state["flow"], state["coarse"]
        for prefix, (prediction, _) in self.predictions.items():
            prediction.runner.state = state["predictions"][prefix]
        self.at_record = state["at_record"]

    @property
    def ended(self) -> dict[str, str]:
        """How the flow stands, and every prediction by its prefix."""
        predictions = {
            prefix: self.failed.get(prefix, Status.COMPLETED).name for prefix in self.predictions
        }
        return {"flow": self.status.name} | {f"prediction {p}": s for p, s in predictions.items()}

    def resume(self, ended: dict[str, str], restart: int | None, records: np.ndarray) -> None:
        """Makes the lane what it was when it stood as given, except for its state."""
        self.status = Status[ended["flow"]]
        self.predictions.pop("restarted_", None)  # of a later state, which could not be read
        if restart is not None and "prediction restarted_" in ended:
            index = int(np.searchsorted(records, restart))
            self.predictions["restarted_"] = (
                self._prediction(self.at_record, self._since(index)),
                index,
            )
        statuses = {prefix: Status[ended[f"prediction {prefix}"]] for prefix in self.predictions}
        self.failed = {p: status for p, status in statuses.items() if status != Status.COMPLETED}

    def _since(self, index: int) -> np.ndarray:
        """The times from a record on, counted from there."""
        return self.times[index:] - self.times[index]

    def _prediction(
        self, params: PyTree, times: np.ndarray, error: PyTree | None = None
    ) -> PredictionRunner:
        """Predictions at times after a start from params whose error is known."""
        return PredictionRunner(
            self.flow,
            params,
            times,
            error,
            rtol=None if self.estimate else _PLAIN_RTOL,
            # One that starts later takes the solver of the first: chosen where it starts, it could
            # be another one after a resumption, which knows only where all began.
            solver=self.predictions[""][0].solver if self.predictions else None,
            max_steps=self.max_steps,
            estimate=self.estimate,
        )

    def statistics(self) -> dict[str, Statistics]:
        """What each part cost, by name."""
        order = self.flow.order
        found = {
            self.name: self.runner.statistics(),
            f"coarse {self.name}": self.coarse.statistics(),
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
        for kind in KINDS:
            vector = getattr(errors, kind)
            values = (
                norm(vector),
                distance(vector, error) / norm(error),
                uncertainty(vector, errors),
            )
            found |= {f"{prefix}{kind}_{part}": v for part, v in zip(_PARTS, values, strict=True)}
    return found
