"""Where gradient flow says that the norm of a scale-invariant layer collapses: what descent does.

A long run of the paper's network on the digits, put to the averaged law and to the equilibrium that
Corollaries 5.1 and 5.2 assume.
"""

import os
from dataclasses import asdict, dataclass
from functools import partial
from math import exp
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..dynamics.equation_of_motion import EquationOfMotion
from ..problem.problem import Problem
from ..solvers.solve import solve
from ..solvers.trajectory import Status
from ..symmetries.equilibrium import Equilibrium, equilibrium
from ..symmetries.scale import Scale
from .cases import Progress, Verdict, results_of, silent, with_tuples
from .setting import digits_network


@dataclass(frozen=True)
class LimitingDynamics:
    """The settings: the paper's network on scikit-learn's digits, for long.

    Attributes:
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ.
        steps: The steps of the long run.
        parts: In how many parts it is run; after each it can be interrupted without a loss.
        flow_time: The time to which the flows of the network are solved.
        hidden_widths: The widths of the two hidden layers.
        seed: The seed of the initial weights.
    """

    learning_rate: float = 1e-1
    weight_decay: float = 1e-2
    steps: int = 1_000_000
    parts: int = 20
    flow_time: float = 200.0
    hidden_widths: tuple[int, int] = (32, 32)
    seed: int = 7


@dataclass(frozen=True)
class LongRun:
    """What a long run of descent did, over windows of one intrinsic time `1/(ηλ)`.

    Attributes:
        steps: The step number at the end of each window.
        radius: The mean of `r_A` in each window.
        radius_deviation: Its standard deviation there.
        gradient: The mean of `c = ‖∇_A f(θ̂_A + θ_{A^c})‖`.
        gradient_deviation: Its standard deviation.
        radius_squared: The mean of `r_A²`.
        force_squared: The mean of `c²/r_A²`.
        angle: The mean angular update Δ.
    """

    steps: tuple[int, ...]
    radius: tuple[float, ...]
    radius_deviation: tuple[float, ...]
    gradient: tuple[float, ...]
    gradient_deviation: tuple[float, ...]
    radius_squared: tuple[float, ...]
    force_squared: tuple[float, ...]
    angle: tuple[float, ...]


@dataclass(frozen=True)
class FlowRun:
    """The norm of the layer along a flow.

    Attributes:
        order: The order γ.
        times: The times reached.
        radius: `r_A` there.
        status: How the flow ended.
    """

    order: int
    times: tuple[float, ...]
    radius: tuple[float, ...]
    status: str


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold."""

    settings: LimitingDynamics
    run: LongRun
    flows: tuple[FlowRun, ...]

    @property
    def averaged_law(self) -> tuple[float, float]:
        """Both sides, `(2λ − ηλ²)⟨r²⟩` and `η⟨c²/r²⟩`, over the run without its first tenth."""
        rate, decay = self.settings.learning_rate, self.settings.weight_decay
        late = slice(len(self.run.steps) // 10, None)
        left = (2 * decay - rate * decay**2) * float(np.mean(self.run.radius_squared[late]))
        return left, rate * float(np.mean(self.run.force_squared[late]))

    @property
    def radius_fluctuation(self) -> float:
        """The standard deviation of r within an intrinsic time over its mean, on average."""
        return float(np.mean(np.divide(self.run.radius_deviation, self.run.radius)))

    @property
    def gradient_fluctuation(self) -> float:
        """The standard deviation of c within an intrinsic time over its mean, on average."""
        return float(np.mean(np.divide(self.run.gradient_deviation, self.run.gradient)))

    @property
    def radius_drift(self) -> float:
        """How much the mean of r changes from one intrinsic time to the next, on average."""
        return _drift(self.run.radius)

    @property
    def gradient_drift(self) -> float:
        """How much the mean of c changes from one intrinsic time to the next, on average."""
        return _drift(self.run.gradient)

    @property
    def angle(self) -> float:
        """The mean angular update over the run without its first tenth."""
        return float(np.mean(self.run.angle[len(self.run.angle) // 10 :]))

    @property
    def claims(self) -> dict[str, bool]:
        left, right = self.averaged_law
        time = self.run.steps[-1] * self.settings.learning_rate
        start, least = self.flows[0].radius[0], min(self.run.radius)
        return {
            "descent: the norm does not collapse, as gradient flow says": (
                exp(-self.settings.weight_decay * time) < 1e-6 < 1e-2 < least / start
            ),
            "descent: the two sides of the averaged law agree within 2 %": abs(left / right - 1)
            < 0.02,
            "descent: there is no equilibrium, c varies by more than half its mean": (
                self.gradient_fluctuation > 0.5
            ),
        }


def _drift(means: tuple[float, ...]) -> float:
    return float(np.mean(np.abs(np.diff(means)) / np.array(means[1:])))


def run(settings: LimitingDynamics, folder: Path, progress: Progress = silent) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `limiting_dynamics.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many cases are done and to do.
    """
    state = _State(folder, settings)
    cases: dict[str, Any] = {
        f"part {part + 1}": partial(_part, settings, part, state) for part in range(settings.parts)
    }
    for order in (0, 1):
        cases[f"order {order}"] = partial(_flow, settings, order)
    found = results_of(folder / "limiting_dynamics.json", asdict(settings), cases, progress)
    state.remove()
    return result_of(settings, found)


def result_of(settings: LimitingDynamics, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    parts = [found[f"part {part + 1}"] for part in range(settings.parts)]
    whole = {name: tuple(v for part in parts for v in part[name]) for name in parts[0]}
    flows = [found[f"order {order}"] for order in (0, 1)]
    return Result(
        settings,
        LongRun(**whole),
        tuple(FlowRun(**with_tuples(flow)) for flow in flows),
    )


class _State:
    """The params of the long run before each of its parts, the last two of them on disk.

    Two, because a part's result is stored after the state that follows it: a run that is killed in
    between needs the one before.
    """

    def __init__(self, folder: Path, settings: LimitingDynamics):
        self.folder, self.settings = folder, settings

    def path(self, part: int) -> Path:
        return self.folder / f"limiting_dynamics.{part}.npz"

    def load(self, part: int) -> PyTree:
        """The params before a part: as stored, or by running the parts before it again."""
        _, params = _network(self.settings)
        if part == 0:
            return params
        if self.path(part).exists():
            with np.load(self.path(part)) as stored:
                if str(stored["settings"]) == repr(self.settings):
                    return {name: jnp.asarray(stored[name]) for name in params}
        return _descend(self.settings, part - 1, self.load(part - 1)).params

    def save(self, part: int, params: PyTree) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.path(part).with_suffix(".part")
        with aside.open("wb") as file:
            np.savez(file, settings=repr(self.settings), **params)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.path(part))
        self.path(part - 2).unlink(missing_ok=True)

    def remove(self) -> None:
        for part in range(self.settings.parts + 1):
            self.path(part).unlink(missing_ok=True)


_LAYER = Scale("hidden")
_MOST_FLOW_STEPS = 10_000


def _network(settings: LimitingDynamics) -> tuple[Problem, PyTree]:
    return digits_network(settings.hidden_widths, settings.weight_decay, settings.seed)


def _ends(settings: LimitingDynamics) -> np.ndarray:
    """The step numbers between the parts, from the first to the last."""
    return np.rint(np.linspace(0, settings.steps, settings.parts + 1)).astype(int)


def _descend(settings: LimitingDynamics, part: int, params: PyTree) -> Equilibrium:
    problem, _ = _network(settings)
    start, end = _ends(settings)[part : part + 2]
    run = equilibrium(problem, _LAYER, params, settings.learning_rate, int(end - start))
    if run.status is not Status.COMPLETED:
        raise RuntimeError(
            f"descent of the long run ended in its part {part + 1} with {run.status}: "
            "try a smaller learning rate"
        )
    return run


def _part(settings: LimitingDynamics, part: int, state: _State) -> dict[str, Any]:
    run = _descend(settings, part, state.load(part))
    state.save(part + 1, run.params)
    columns = LongRun(
        steps=tuple((run.steps + _ends(settings)[part]).tolist()),
        radius=tuple(run.radius_mean.tolist()),
        radius_deviation=tuple(run.radius_deviation.tolist()),
        gradient=tuple(run.gradient_mean.tolist()),
        gradient_deviation=tuple(run.gradient_deviation.tolist()),
        radius_squared=tuple(run.radius_squared.tolist()),
        force_squared=tuple(run.force_squared.tolist()),
        angle=tuple(run.angle_mean.tolist()),
    )
    return {name: [_short(value) for value in values] for name, values in asdict(columns).items()}


def _short(value: int | float) -> int | float:
    """Nine digits are enough for a file of a thousand windows."""
    return value if isinstance(value, int) else float(f"{value:.9g}")


def _flow(settings: LimitingDynamics, order: int) -> dict[str, Any]:
    problem, params = _network(settings)
    flow = EquationOfMotion(problem, settings.learning_rate, order)
    times = np.linspace(0, settings.flow_time, 101)
    # As the layer shrinks, its curvature grows like 1/r², and explicit steps shrink with it.
    run = solve(flow, params, times, rtol=1e-6, throw=False, max_steps=_MOST_FLOW_STEPS)
    radius = np.sqrt(np.sum(np.asarray(run.params["hidden"]) ** 2, axis=(1, 2)))
    found = FlowRun(order, tuple(run.times.tolist()), tuple(radius.tolist()), str(run.status))
    return asdict(found)
