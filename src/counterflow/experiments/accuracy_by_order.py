"""How close each order of the equation of motion comes to gradient descent."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from ..dynamics.equation_of_motion import EquationOfMotion
from ..dynamics.gradient_descent import GradientDescent
from ..problem.numbers import require_learning_rate, require_order, require_weight_decay
from ..problem.tree import add_scaled, norm
from ..solvers.solve import solve
from .cases import Progress, Verdict, results_of, silent
from .setting import digits_network


@dataclass(frozen=True)
class AccuracyByOrder:
    """The settings: the paper's network on scikit-learn's digits, and which orders to try.

    Attributes:
        learning_rate: The learning rate η.
        steps: The steps of gradient descent to predict.
        weight_decay: The weight decay λ.
        hidden_widths: The widths of the two hidden layers.
        seed: The seed of the initial weights.
        taylor_orders: Orders of the exact truncation to try.
        orbit_orders: Orders of the method that uses gradients alone to try.
        tolerance: Relative and absolute tolerance of the flows' solver.
    """

    learning_rate: float = 1e-2
    steps: int = 1000
    weight_decay: float = 1e-2
    hidden_widths: tuple[int, int] = (32, 32)
    seed: int = 7
    taylor_orders: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    orbit_orders: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)
    tolerance: float = 1e-12

    def require_valid(self) -> None:
        """Raises where a setting makes no sense."""
        require_learning_rate(self.learning_rate)
        require_weight_decay(self.weight_decay)
        for name in ("taylor_orders", "orbit_orders"):
            orders = getattr(self, name)
            for order in orders:
                require_order(order, name, "0 is gradient flow")
            if not orders or list(orders) != sorted(set(orders)):
                raise ValueError(f"`{name}` must be at least one, increasing, got {orders}")
        if self.steps < 1 or min(self.hidden_widths) < 1:
            raise ValueError(
                "`steps` and `hidden_widths` must be at least 1, got "
                f"{self.steps} and {self.hidden_widths}"
            )
        if not 1e-13 <= self.tolerance <= 1e-2:
            raise ValueError(f"`tolerance` must be from 1e-13 to 1e-2, got {self.tolerance}")

    def cases(self) -> list[tuple[str, int]]:
        """Every method and order, the cheap ones first."""
        cases = [("taylor", order) for order in self.taylor_orders]
        cases += [("orbit", order) for order in self.orbit_orders]
        return sorted(cases, key=lambda case: (case[1], case[0]))


@dataclass(frozen=True)
class Row:
    """One flow against gradient descent.

    Attributes:
        method: `taylor` or `orbit`.
        order: The order γ.
        relative_error: `‖θ(t) − θ_k‖ / ‖θ_k‖` at the last step.
        gradient_evaluations: What the flow cost.
    """

    method: str
    order: int
    relative_error: float
    gradient_evaluations: int | None


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold.

    Attributes:
        settings: The settings.
        rows: One row per method and order.
        solver_error: What the solver itself contributes: the relative distance between the
            `orbit` flow of the highest order and the same flow at a tenth of the tolerance.
    """

    settings: AccuracyByOrder
    rows: tuple[Row, ...]
    solver_error: float

    def errors(self, method: str) -> list[float]:
        """The relative errors of a method, by increasing order."""
        return [row.relative_error for row in self.rows if row.method == method]

    @property
    def claims(self) -> dict[str, bool]:
        taylor, orbit = self.errors("taylor"), self.errors("orbit")
        gains = [before >= 10 * after for before, after in pairwise(taylor) if before > 1e-11]
        smallest = min([*taylor, *orbit], default=0.0)
        return {
            "taylor: each order is at least ten times better, down to 1e-11": bool(gains)
            and all(gains)
            and taylor[-1] < 1e-11,
            "orbit: below 1e-9 at the highest order": bool(orbit) and orbit[-1] < 1e-9,
            "the solver's error is ten times below the smallest error": self.solver_error
            < smallest / 10,
        }


def run(
    settings: AccuracyByOrder,
    folder: Path,
    progress: Progress = silent,
) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `accuracy_by_order.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many flows are done and to do.
    """
    settings.require_valid()
    setting = cache(lambda: _Setting(settings))
    cases: dict[str, Callable[[], Any]] = {
        f"{method} {order}": partial(lambda *case: asdict(setting().compare(*case)), method, order)
        for method, order in settings.cases()
    }
    cases["solver error"] = lambda: setting().solver_error()
    path = folder / "accuracy_by_order.json"
    found = results_of(path, asdict(settings), cases, progress)
    solver_error = found.pop("solver error")
    return Result(settings, tuple(Row(**row) for row in found.values()), solver_error)


class _Setting:
    """The problem, and where descent ends."""

    def __init__(self, settings: AccuracyByOrder):
        self.settings = settings
        self.problem, self.params = digits_network(
            settings.hidden_widths, settings.weight_decay, settings.seed
        )
        self.times = [settings.steps * settings.learning_rate]
        self.descent = self.end(GradientDescent(self.problem, settings.learning_rate))[0]

    def end(self, dynamics: Any, **options: Any) -> tuple[PyTree, int | None]:
        trajectory = solve(dynamics, self.params, self.times, **options)
        last = trajectory.at(-1)
        return last, trajectory.statistics.gradient_evaluations

    def flow(self, method: str, order: int, tolerance: float) -> tuple[PyTree, int | None]:
        dynamics = EquationOfMotion(self.problem, self.settings.learning_rate, order, method)
        return self.end(dynamics, rtol=tolerance, atol=tolerance)

    def distance(self, params: PyTree, reference: PyTree) -> float:
        return float(norm(add_scaled(params, -1, reference)) / norm(reference))

    def compare(self, method: str, order: int) -> Row:
        params, cost = self.flow(method, order, self.settings.tolerance)
        return Row(method, order, self.distance(params, self.descent), cost)

    def solver_error(self) -> float:
        order, tolerance = max(self.settings.orbit_orders, default=0), self.settings.tolerance
        as_used, _ = self.flow("orbit", order, tolerance)
        finer, _ = self.flow("orbit", order, tolerance / 10)
        return self.distance(as_used, finer)
