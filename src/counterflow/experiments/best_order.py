"""At which order do more counter terms stop helping, and does the series say so beforehand?"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..dynamics.convergence import measure_convergence
from ..dynamics.gradient_descent import GradientDescent
from ..errors.compare import compare
from ..errors.comparison import useful_index
from ..solvers.solve import solve
from .cases import Progress, Verdict, results_of, silent
from .setting import digits_network


@dataclass(frozen=True)
class BestOrder:
    """The settings: the paper's network on the digits at learning rates that are too large.

    Attributes:
        learning_rates: The learning rates η.
        orders: The orders γ to try.
        time: How long to run.
        records: At how many points of the run the series is looked at.
        rtol: The relative tolerance of the flows' solver.
        weight_decay: The weight decay λ.
        hidden_widths: The widths of the two hidden layers.
        seed: The seed of the initial weights.
    """

    learning_rates: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3)
    orders: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    time: float = 4.8
    records: int = 8
    rtol: float = 1e-8
    weight_decay: float = 1e-2
    hidden_widths: tuple[int, int] = (32, 32)
    seed: int = 7


@dataclass(frozen=True)
class Row:
    """One learning rate.

    Attributes:
        learning_rate: The learning rate η.
        relative_errors: The relative error of every order at the end; NaN where the flow failed.
        best_order: The order with the smallest error.
        promised_order: The smallest best order that `convergence` names along the run.
    """

    learning_rate: float
    relative_errors: tuple[float, ...]
    best_order: int
    promised_order: int


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claim holds."""

    settings: BestOrder
    rows: tuple[Row, ...]

    def useful_order(self, row: Row) -> int:
        """The order at which more counter terms stop helping (`Comparison.useful_order`)."""
        return self.settings.orders[useful_index(row.relative_errors)]

    @property
    def claims(self) -> dict[str, bool]:
        last = max(self.settings.orders)
        return {
            "the worst verdict along the run says within one where they stop helping": all(
                abs(min(row.promised_order, last) - self.useful_order(row)) <= 1
                for row in self.rows
            ),
            "at some learning rate they stop helping before the last": any(
                self.useful_order(row) < last for row in self.rows
            ),
        }


def run(
    settings: BestOrder,
    folder: Path,
    progress: Progress = silent,
) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `best_order.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many runs are done and to do.
    """
    cases = {
        f"learning rate {rate:g}": partial(_row, settings, rate) for rate in settings.learning_rates
    }
    found = results_of(folder / "best_order.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: BestOrder, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    rows = [row | {"relative_errors": tuple(row["relative_errors"])} for row in found.values()]
    return Result(settings, tuple(Row(**row) for row in rows))


def _row(settings: BestOrder, learning_rate: float) -> dict[str, Any]:
    problem, params = digits_network(settings.hidden_widths, settings.weight_decay, settings.seed)
    steps = round(settings.time / learning_rate)
    records = np.unique(np.rint(np.linspace(0, steps, settings.records)).astype(int))
    run = compare(
        problem,
        params,
        learning_rate,
        steps,
        settings.orders,
        records=records,
        predict=False,
        rtol=settings.rtol,
    )
    descent = solve(
        GradientDescent(problem, learning_rate), params, records * learning_rate, throw=False
    )
    terms = max(settings.orders) + 2
    promised = [
        measure_convergence(
            problem,
            jax.tree.map(lambda leaf, i=i: leaf[i], descent.params),
            learning_rate,
            terms,
            "taylor",
        ).best_order
        for i in range(len(descent.times))
    ]
    row = Row(
        learning_rate=learning_rate,
        relative_errors=tuple(float(error) for error in run.relative_error[:, -1]),
        best_order=run.best_order,
        promised_order=min(promised),
    )
    return asdict(row)
