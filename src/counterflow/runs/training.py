"""A training: descent and its flows from one start, in lock step, every record kept on disk."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..dynamics.equation_of_motion import EquationOfMotion
from ..dynamics.gradient_descent import GradientDescent
from ..errors.compare import flow_tolerances
from ..errors.curvature import sharpness
from ..errors.lock_step import LockStep
from ..problem.problem import Problem
from ..problem.tree import on_device
from ..solvers.requirements import require_records
from ..solvers.trajectory import Status
from .fields import from_fields
from .shared_store import SharedStore
from .store import Store

# Sharpness takes about a hundred gradients: it is measured at so many records only.
_SHARPNESS_RECORDS = 5
_MEASURED = ("descent", "flow 0", "flow 1")
# The largest tolerance of a flow.
_COARSEST = 5e-4
# Settings that were added later, and are noted only where they are set.
_ADDED = ("predicted", "method", "share")
# A flow far beyond the reach of its series would be stiff without end.
_MAX_SOLVER_STEPS = 20_000


@dataclass(frozen=True)
class Training:
    """Descent at one learning rate and weight decay, and the flows that are to predict it.

    Attributes:
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ.
        seed: The seed of the initial weights, if there is one.
        steps: The steps of gradient descent.
        records: At how many of them it is compared and saved, after the start.
        orders: The orders γ of the flows.
        predict: Whether errors are also predicted.
        restart: The step from which they are predicted once more.
        rtol: The relative tolerance of the flows; by default far below the error of each.
        sharpness: Whether the sharpness along descent and the flows up to order 1 is measured.
        predicted: Of which orders' flows errors are predicted.
        method: How flows compute their velocity; by default the first counter term exactly, as in
            the paper, and further ones from gradients alone, which is cheaper.
        share: By default, the tolerance of a flow is this part of what its first omitted term
            amounts to.
    """

    learning_rate: float
    weight_decay: float
    seed: int | None
    steps: int
    records: int
    orders: tuple[int, ...]
    predict: bool = False
    restart: int | None = None
    rtol: float | None = None
    sharpness: bool = True
    predicted: tuple[int, ...] = (0,)
    method: str | None = None
    share: float = 1e-3

    @property
    def name(self) -> str:
        """A name that no other training of a run has."""
        # All digits: two learning rates may differ in the last.
        settings = (float(self.learning_rate), float(self.weight_decay))
        rate, decay = (repr(setting).removesuffix(".0") for setting in settings)
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"η = {rate}, λ = {decay}{seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """What is noted of it, as JSON values; of the settings added last, those that are set."""
        usual = {field.name: field.default for field in fields(self)}
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in _ADDED or value != usual[name]
        }

    @staticmethod
    def from_settings(settings: Any) -> "Training":
        """The training of which these settings were noted."""
        return from_fields(Training, settings)

    @property
    def record_steps(self) -> np.ndarray:
        """The step numbers of the records."""
        steps = require_records(self.records, self.steps, 1)
        return steps if self.restart is None else np.unique([*steps, self.restart])

    def lock_step(self, problem: Problem, params: PyTree) -> LockStep:
        """Descent and the flows at the start."""
        descent = GradientDescent(problem, self.learning_rate)
        flows = [
            EquationOfMotion(
                problem,
                self.learning_rate,
                order,
                self.method or ("taylor" if order < 2 else "orbit"),
            )
            for order in self.orders
        ]
        return LockStep(
            descent,
            flows,
            params,
            self.record_steps,
            flow_tolerances(flows, params, self.rtol, None, self.share, _COARSEST),
            None,
            _MAX_SOLVER_STEPS,
            self.predicted if self.predict else (),
            self.restart,
            estimate=False,
        )


@dataclass(frozen=True)
class Update:
    """How far a training is, for those who watch.

    Attributes:
        training: The training.
        done: How many records are done.
        total: How many there are.
        step: The step of the last.
        rows: What was measured there, by process and quantity.
        statistics: What it cost so far, by part.
        seconds: How long it took so far, earlier sittings included.
        rate: Gradient evaluations per second since the last record.
    """

    training: Training
    done: int
    total: int
    step: int
    rows: dict[str, dict[str, float]]
    statistics: dict[str, dict[str, Any]]
    seconds: float
    rate: float


class Stopped(Exception):
    """A run that was asked to stop, and did so at a record."""


def train(
    training: Training,
    problem: Problem,
    params: PyTree,
    observables: Callable[[PyTree], dict[str, float]],
    store: Store | SharedStore,
    watch: Callable[[Update], None],
    stopping: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Runs a training from where the store has it to its end.

    Args:
        training: The training.
        problem: The problem, with its weight decay.
        params: The initial weights.
        observables: What is measured of params at every record, by name.
        store: Where records are kept.
        watch: Called after each record.
        stopping: Asked after each record; if true, `Stopped` is raised.
        say: Called with what the user should know.
    """
    steps = training.record_steps
    store.begin(training.name, training.settings, steps.tolist())
    known = store.trainings()[training.name]
    if known["status"] != "running":
        return
    started, before = time.perf_counter(), known["seconds"]
    problem = on_device(problem)
    run = training.lock_step(problem, params)
    done, wrong = store.resume(training.name, run.resume)
    if wrong:
        say(f"{wrong}; going on from the state before it, at step {steps[done - 1]}")
    count = _SHARPNESS_RECORDS if training.sharpness and problem.has_loss else 0
    sharp = set(np.linspace(0, len(steps) - 1, count).astype(int).tolist())
    evaluations = _evaluations(run)
    for index in range(done, len(steps)):
        since = time.perf_counter()
        if not run.advance(index):
            break
        rows = run.latest
        direction = None
        for process, at in run.processes.items():
            rows[process] = rows.get(process, {}) | observables(at)
            if index in sharp and process in _MEASURED:
                # That of the flows is found from descent's, which they are near.
                found, direction, _ = sharpness(problem, at, direction)
                rows[process]["sharpness"] = found
        statistics = {name: asdict(part) for name, part in run.statistics.items()}
        now = time.perf_counter()
        seconds = before + now - started
        store.keep(training.name, index, rows, run.state, run.ended, statistics, seconds)
        rate = (_evaluations(run) - evaluations) / (now - since)
        evaluations = _evaluations(run)
        watch(
            Update(
                training, index + 1, len(steps), int(steps[index]), rows, statistics, seconds, rate
            )
        )
        if stopping() and index + 1 < len(steps):
            raise Stopped
    flows = {lane.name: lane.status for lane in run.lanes if lane.status != Status.COMPLETED}
    ended = [f"{name} {status}" for name, status in flows.items()]
    for lane in run.lanes:
        for prefix, status in lane.failed.items():
            ended.append(f"{prefix.replace('_', ' ')}prediction of {lane.name} {status}")
    if run.status != Status.COMPLETED:
        ended = [f"descent {run.status}", *ended]
    store.finish(training.name, "; ".join(ended) or str(Status.COMPLETED))


def _evaluations(run: LockStep) -> int:
    return sum(part.gradient_evaluations or 0 for part in run.statistics.values())
