"""How well is the discretization error predicted, by the paper's sum and by the propagated one?"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors.compare import compare
from ..problem.numbers import require_learning_rate, require_weight_decay
from .cases import Progress, Verdict, results_of, silent
from .setting import digits_network


@dataclass(frozen=True)
class ErrorPredictionStudy:
    """The settings: the paper's network on scikit-learn's digits, several times over.

    Attributes:
        learning_rates: The learning rates η.
        orders: The orders γ of the flows.
        time: The time at which predicted and measured error are compared.
        weight_decay: The weight decay λ.
        hidden_widths: The widths of the two hidden layers.
        seeds: The seeds of the initial weights.
    """

    learning_rates: tuple[float, ...] = (1e-2, 1e-3)
    orders: tuple[int, ...] = (0, 1, 2)
    time: float = 5.0
    weight_decay: float = 1e-2
    hidden_widths: tuple[int, int] = (32, 32)
    seeds: tuple[int, ...] = (7, 8, 9, 10, 11)

    def require_valid(self) -> None:
        """Raises where a setting makes no sense."""
        for learning_rate in self.learning_rates:
            require_learning_rate(learning_rate)
        require_weight_decay(self.weight_decay)
        if not (self.learning_rates and self.orders and self.seeds):
            raise ValueError("`learning_rates`, `orders` and `seeds` must name at least one each")


@dataclass(frozen=True)
class Row:
    """One flow of one network at the last step.

    Attributes:
        seed: The seed of the initial weights.
        learning_rate: The learning rate η.
        order: The order γ.
        error: The measured discretization error `‖e_k‖`.
        solver_error: How much of it may be the solver's.
        local_mismatch: The relative error of the paper's sum, as a vector.
        propagated_mismatch: The same of the propagated prediction.
        propagated_uncertainty: What the propagated prediction expected of itself.
    """

    seed: int
    learning_rate: float
    order: int
    error: float
    solver_error: float
    local_mismatch: float
    propagated_mismatch: float
    propagated_uncertainty: float


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold."""

    settings: ErrorPredictionStudy
    rows: tuple[Row, ...]

    def over_seeds(self, name: str, learning_rate: float, order: int) -> np.ndarray:
        """The values of one column for a learning rate and an order, over the seeds."""
        return np.array(
            [
                getattr(row, name)
                for row in self.rows
                if row.learning_rate == learning_rate and row.order == order
            ]
        )

    @property
    def claims(self) -> dict[str, bool]:
        return {
            "propagated: the predicted vector is right to 2η in every case": all(
                row.propagated_mismatch <= 2 * row.learning_rate for row in self.rows
            ),
            "local: the paper's sum is off by more than the error itself in every case": all(
                row.local_mismatch > 1 for row in self.rows
            ),
            "propagated: it is right to 4η in every case": all(
                row.propagated_mismatch <= 4 * row.learning_rate for row in self.rows
            ),
            "propagated: it never expects less than nine tenths of its own error": all(
                row.propagated_uncertainty >= 0.9 * row.propagated_mismatch for row in self.rows
            ),
            "the solver's error is a hundred times below the error": all(
                row.solver_error < row.error / 100 for row in self.rows
            ),
        }


def run(
    settings: ErrorPredictionStudy,
    folder: Path,
    progress: Progress = silent,
) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `error_prediction.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many runs are done and to do.
    """
    settings.require_valid()
    cases = {
        f"seed {seed}, learning rate {rate:g}": partial(_compare, settings, seed, rate)
        for seed in settings.seeds
        for rate in settings.learning_rates
    }
    found = results_of(folder / "error_prediction.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: ErrorPredictionStudy, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    return Result(settings, tuple(Row(**row) for rows in found.values() for row in rows))


def _compare(
    settings: ErrorPredictionStudy, seed: int, learning_rate: float
) -> list[dict[str, Any]]:
    problem, params = digits_network(settings.hidden_widths, settings.weight_decay, seed)
    steps = round(settings.time / learning_rate)
    run = compare(problem, params, learning_rate, steps, settings.orders, records=[steps])
    local, propagated = run.predictions["local"], run.predictions["propagated"]
    return [
        asdict(
            Row(
                seed=seed,
                learning_rate=learning_rate,
                order=order,
                error=float(run.error[i, -1]),
                solver_error=float(run.solver_error[i, -1]),
                local_mismatch=float(local.mismatch[i, -1]),
                propagated_mismatch=float(propagated.mismatch[i, -1]),
                propagated_uncertainty=float(propagated.uncertainty[i, -1]),
            )
        )
        for i, order in enumerate(run.orders)
    ]
