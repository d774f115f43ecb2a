"""The gap between a charge under descent and its prediction, order by order (Figures 8 and 10)."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..data.digits import digits
from ..networks.perceptron import Perceptron
from ..problem.problem import Problem
from ..symmetries.compare_charges import compare_charges
from ..symmetries.rescale import Rescale
from ..symmetries.scale import Scale
from ..symmetries.symmetry import Symmetry
from ..symmetries.translation import Translation
from .cases import Progress, Verdict, results_of, silent, with_tuples
from .setting import digits_network


@dataclass(frozen=True)
class ChargeGaps:
    """The settings: networks on scikit-learn's digits.

    Scale and translation are those of the paper's network, rescale is that of a linear network. The
    sum of weights depends on ηλ alone, which is therefore taken larger: otherwise rounding would
    hide the higher orders.

    Attributes:
        orders: The orders γ of the flows.
        learning_rates: The learning rate η for each symmetry.
        weight_decays: The weight decay λ for each symmetry.
        steps: The steps for each symmetry.
        records: At how many of them the charge is compared.
        hidden_widths: The widths of the two hidden layers of the paper's network.
        linear_widths: The widths of the linear network's hidden layers.
        seed: The seed of the initial weights.
    """

    orders: tuple[int, ...] = (0, 1, 2, 3)
    learning_rates: tuple[float, float, float] = (1e-2, 2e-2, 1e-2)
    weight_decays: tuple[float, float, float] = (1e-2, 1.0, 1e-2)
    steps: tuple[int, int, int] = (1000, 100, 500)
    records: int = 50
    hidden_widths: tuple[int, int] = (32, 32)
    linear_widths: tuple[int, ...] = (32,)
    seed: int = 7


SYMMETRIES: dict[str, Symmetry] = {
    "scale": Scale("hidden"),
    "translation": Translation("readout"),
    "rescale": Rescale("layer0", "layer1"),
}


@dataclass(frozen=True)
class Row:
    """One charge under descent, and predicted.

    Attributes:
        symmetry: Which family.
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ.
        steps: The step numbers of the records.
        measured: The charge under descent.
        law_error: How far the exact discrete law is from it at most, relatively.
        predicted: The charge along the flow of every order.
        solver_errors: The largest error of the solver, for every order.
        recorded: The charge by gradients recorded from descent (Kunin et al., 2021).
    """

    symmetry: str
    learning_rate: float
    weight_decay: float
    steps: tuple[int, ...]
    measured: tuple[float, ...]
    law_error: float
    predicted: tuple[tuple[float, ...], ...]
    solver_errors: tuple[float, ...]
    recorded: tuple[float, ...]

    @property
    def gaps(self) -> np.ndarray:
        """The gap of every order at every record."""
        return np.abs(np.array(self.predicted) - np.array(self.measured))

    @property
    def largest_gaps(self) -> np.ndarray:
        """The largest gap of every order along the run."""
        return np.max(self.gaps, axis=1)

    @property
    def recorded_gap(self) -> float:
        """The largest gap of the approximation with recorded gradients."""
        return float(np.max(np.abs(np.array(self.recorded) - np.array(self.measured))))


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold."""

    settings: ChargeGaps
    rows: tuple[Row, ...]

    @property
    def claims(self) -> dict[str, bool]:
        return {
            "each order is closer to descent than the one before": all(
                bool(np.all(np.diff(row.largest_gaps) < 0)) for row in self.rows
            ),
            "the solver's error is ten times below every gap": all(
                bool(np.all(np.array(row.solver_errors) < row.largest_gaps / 10))
                for row in self.rows
            ),
            "the exact discrete law is met to 1e-11": all(
                row.law_error < 1e-11 for row in self.rows
            ),
            "the highest order is closer than gradients recorded from descent": all(
                row.largest_gaps[-1] < row.recorded_gap for row in self.rows
            ),
        }


def run(settings: ChargeGaps, folder: Path, progress: Progress = silent) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `charge_gaps.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many runs are done and to do.
    """
    cases = {name: partial(_compare, settings, name) for name in SYMMETRIES}
    found = results_of(folder / "charge_gaps.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: ChargeGaps, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    return Result(settings, tuple(Row(**with_tuples(row)) for row in found.values()))


def _problem(settings: ChargeGaps, name: str, weight_decay: float) -> tuple[Problem, PyTree]:
    if name != "rescale":
        return digits_network(settings.hidden_widths, weight_decay, settings.seed)
    data = digits()
    widths = (data.inputs.shape[1], *settings.linear_widths, data.targets.shape[1])
    arrays = (jnp.asarray(data.inputs), jnp.asarray(data.targets))
    network = Perceptron(widths, "linear")
    problem = Problem(network, data=arrays, weight_decay=weight_decay)
    return problem, network.initial_params(settings.seed)


def _compare(settings: ChargeGaps, name: str) -> dict[str, Any]:
    index = list(SYMMETRIES).index(name)
    rate, decay = settings.learning_rates[index], settings.weight_decays[index]
    problem, params = _problem(settings, name, decay)
    run = compare_charges(
        problem,
        SYMMETRIES[name],
        params,
        rate,
        settings.steps[index],
        settings.orders,
        records=settings.records,
    )
    row = Row(
        symmetry=name,
        learning_rate=rate,
        weight_decay=decay,
        steps=tuple(run.steps.tolist()),
        measured=tuple(run.measured.tolist()),
        law_error=float(np.max(np.abs(run.exact_law / run.measured - 1))),
        predicted=tuple(map(tuple, run.predicted.tolist())),
        solver_errors=tuple(np.max(run.solver_error, axis=1).tolist()),
        recorded=tuple(run.recorded_gradients.tolist()),
    )
    return asdict(row)
