"""Table 1 of the paper: how fast the mean of a translation-invariant layer decays under descent."""

from dataclasses import asdict, dataclass
from functools import partial
from math import log1p
from pathlib import Path
from typing import Any

import numpy as np

from ..dynamics.gradient_descent import GradientDescent
from ..solvers.solve import solve
from ..symmetries.decay_rate import decay_rate
from .cases import Progress, Verdict, results_of, silent
from .setting import digits_network

#: The column "Experiment (GD)" of the paper's Table 1, by learning rate and weight decay.
PRINTED = {
    (1e-1, 1e-2): 1.0005003484995967e-3,
    (1e-1, 1e-3): 1.0000500182363355e-4,
    (1e-2, 1e-2): 1.0000499809795858e-4,
    (1e-2, 1e-3): 1.0000049776814671e-5,
    (1e-3, 1e-2): 1.0000050475312426e-5,
    (1e-3, 1e-3): 1.0000005475009833e-6,
}


@dataclass(frozen=True)
class DecayRates:
    """The settings: the paper's network on scikit-learn's digits.

    Attributes:
        pairs: The pairs of learning rate η and weight decay λ.
        steps: The most steps of a run.
        decay: How far `θ_⊥` may decay: a run ends at `exp(−decay)` of the start, for from there on
            its last digits are lost in those of the weights.
        records: At how many of them the layer is looked at.
        hidden_widths: The widths of the two hidden layers.
        seed: The seed of the initial weights.
    """

    pairs: tuple[tuple[float, float], ...] = tuple(PRINTED)
    steps: int = 20_000
    decay: float = 2.0
    records: int = 200
    hidden_widths: tuple[int, int] = (32, 32)
    seed: int = 7


@dataclass(frozen=True)
class Row:
    """The decay rate of `‖θ_⊥‖` per step, for one learning rate and weight decay.

    Attributes:
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ.
        measured: The rate under descent, by a least-squares fit as in the paper.
    """

    learning_rate: float
    weight_decay: float
    measured: float

    @property
    def exact(self) -> float:
        """`−log(1 − ηλ)`."""
        return decay_rate(self.learning_rate, self.weight_decay)

    def predicted(self, order: int) -> float:
        """The rate by the flow of an order: gradient flow's, the paper's, and beyond."""
        return decay_rate(self.learning_rate, self.weight_decay, order)

    @property
    def printed(self) -> float | None:
        """The rate printed in the paper, if it has this pair."""
        return PRINTED.get((self.learning_rate, self.weight_decay))

    @property
    def single_precision(self) -> float:
        """`−log(1 − float32(η) λ)`: descent with a learning rate in single precision."""
        return -log1p(-float(np.float32(self.learning_rate)) * self.weight_decay)


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold."""

    settings: DecayRates
    rows: tuple[Row, ...]

    @property
    def claims(self) -> dict[str, bool]:
        return row_claims(self.rows)


def row_claims(rows: tuple[Row, ...]) -> dict[str, bool]:
    """What is claimed of the rows of Table 1, and whether it holds."""
    return {
        "the measured rate is −log(1 − ηλ) to 1e-11": all(
            abs(row.measured / row.exact - 1) < 1e-11 for row in rows
        ),
        "each order is closer than the one before, until both are within 1e-11": all(
            abs(row.predicted(order + 1) - row.measured)
            < max(abs(row.predicted(order) - row.measured), 1e-11 * row.measured)
            for row in rows
            for order in range(3)
        ),
        "the paper's column is −log(1 − float32(η) λ) to 1e-11": all(
            row.printed is None or abs(row.printed / row.single_precision - 1) < 1e-11
            for row in rows
        ),
    }


def run(settings: DecayRates, folder: Path, progress: Progress = silent) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `decay_rates.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many runs are done and to do.
    """
    cases = {
        f"learning rate {rate}, weight decay {decay}": partial(_rate, settings, rate, decay)
        for rate, decay in settings.pairs
    }
    found = results_of(folder / "decay_rates.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: DecayRates, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    return Result(settings, tuple(Row(**row) for row in found.values()))


def _rate(settings: DecayRates, learning_rate: float, weight_decay: float) -> dict[str, Any]:
    problem, params = digits_network(settings.hidden_widths, weight_decay, settings.seed)
    length = min(settings.steps, round(settings.decay / (learning_rate * weight_decay)))
    steps = np.unique(np.rint(np.linspace(0, length, settings.records + 1)))
    run = solve(GradientDescent(problem, learning_rate), params, learning_rate * steps)
    readout = np.asarray(run.params["readout"])
    # ‖θ_⊥‖ is the sum of weights over the root of their number.
    size = np.abs(np.sum(readout, axis=(1, 2))) / np.sqrt(readout[0].size)
    slope, _ = np.polyfit(steps, np.log(size), 1)
    return asdict(Row(learning_rate, weight_decay, -float(slope)))
