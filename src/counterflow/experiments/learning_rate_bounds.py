"""Do the learning-rate bounds hold? The paper's and the propagated one, each put to a real run."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from ..errors.elkabetz_cohen import elkabetz_cohen_bound
from ..errors.error_equation import KINDS
from ..errors.learning_rate_bound import learning_rate_bound
from ..problem.problem import Problem
from .cases import Progress, Verdict, results_of, silent
from .setting import digits_network


def curved_saddle(params: Any) -> Any:
    """A saddle whose stable manifold is the parabola `x = y²`."""
    x, y = params
    u = x - y**2
    return -(u**2) / 2 + u**4 / 4 + 2 * y**2


def quadratic_saddle(params: Any) -> Any:
    """A saddle whose stable manifold is a line."""
    x, y = params
    return -(x**2) / 2 + 2 * y**2


# Near the stable manifold, so that the flow passes the saddle closely.
NEAR_CURVED, NEAR_STRAIGHT = (0.09343725222527155, 1.0), (0.1, 1.0)


@dataclass(frozen=True)
class Case:
    """A problem, a horizon and a tolerance; `curvature` is that of a whole tube where known."""

    name: str
    time: float
    tolerance: float
    curvature: tuple[float, float] | None = None

    def problem(self) -> tuple[Problem, PyTree]:
        """The problem and its initial params."""
        return PROBLEMS[self.name]()


PROBLEMS: dict[str, Callable[[], tuple[Problem, PyTree]]] = {
    "digits network": digits_network,
    "curved saddle": lambda: (Problem(curved_saddle), jnp.array(NEAR_CURVED)),
    "quadratic saddle": lambda: (Problem(quadratic_saddle), jnp.array(NEAR_STRAIGHT)),
}


@dataclass(frozen=True)
class LearningRateBounds:
    """The settings: which problems, and which orders.

    Attributes:
        cases: The problems with their horizons and tolerances.
        orders: The orders γ.
    """

    cases: tuple[Case, ...] = (
        Case("curved saddle", 8.0, 1e-2),
        Case("curved saddle", 10.0, 1e-2),
        Case("quadratic saddle", 8.0, 1e-2, (-1.0, 4.0)),
        Case("digits network", 5.0, 1e-2),
    )
    orders: tuple[int, ...] = (0, 1)


@dataclass(frozen=True)
class Row:
    """A bound, and what a real run at it made of the tolerance.

    Attributes:
        problem: The problem's name.
        time: The horizon.
        order: The order γ.
        kind: `local`, `propagated` or `Elkabetz & Cohen`.
        learning_rate: The bound.
        slack: The largest measured error over the tolerance, where a run was made.
        note: What limits the bound's meaning.
    """

    problem: str
    time: float
    order: int
    kind: str
    learning_rate: float
    slack: float | None
    note: str = ""


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold."""

    settings: LearningRateBounds
    rows: tuple[Row, ...]

    def slacks(self, problem: str, kind: str) -> list[float]:
        """The slacks of a kind of bound on a problem."""
        return [
            row.slack
            for row in self.rows
            if row.problem == problem and row.kind == kind and row.slack is not None
        ]

    @property
    def claims(self) -> dict[str, bool]:
        problems = sorted({row.problem for row in self.rows})
        return {
            "the paper's bound is broken by a real run near a curved stable manifold": max(
                self.slacks("curved saddle", "local"), default=0
            )
            > 1.5,
            "and it holds near a straight one": max(
                self.slacks("quadratic saddle", "local"), default=2
            )
            <= 1,
            "the propagated bound holds everywhere, and leaves less than 40 % to spare": all(
                0.6 < slack <= 1
                for problem in problems
                for slack in self.slacks(problem, "propagated")
            ),
        }


def run(
    settings: LearningRateBounds,
    folder: Path,
    progress: Progress = silent,
) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `learning_rate_bounds.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many bounds are done and to do.
    """
    cases = {
        f"{case.name}, t = {case.time:g}, order {order}, {kind}": partial(_bound, case, order, kind)
        for case in settings.cases
        for order in settings.orders
        for kind in (*KINDS, *(("Elkabetz & Cohen",) if order == 0 else ()))
    }
    found = results_of(folder / "learning_rate_bounds.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: LearningRateBounds, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    return Result(settings, tuple(Row(**row) for row in found.values()))


def _bound(case: Case, order: int, kind: str) -> dict[str, Any]:
    problem, params = case.problem()
    options: dict[str, Any] = {"time": case.time, "tolerance": case.tolerance}
    if kind in KINDS:
        bound = learning_rate_bound(problem, params, order=order, kind=kind, verify=True, **options)
        return asdict(Row(case.name, case.time, order, kind, float(bound), bound.slack))
    other = elkabetz_cohen_bound(problem, params, curvature=case.curvature, **options)
    note = "" if other.guaranteed else "at most: constants on the flow alone"
    return asdict(Row(case.name, case.time, order, kind, float(other), None, note))
