"""Does descent take flatter paths than gradient flow (Appendix C) or sharper ones (Appendix D)?"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..dynamics.gradient_descent import GradientDescent
from ..dynamics.gradient_flow import GradientFlow
from ..errors.curvature import extreme_curvatures
from ..solvers.solve import solve
from .cases import Progress, Verdict, results_of, silent, with_tuples
from .setting import digits_network


@dataclass(frozen=True)
class PathSharpness:
    """The settings: the paper's network on scikit-learn's digits, several times over.

    Attributes:
        learning_rates: The learning rates η of descent.
        times: The times at which the two are compared.
        weight_decay: The weight decay λ.
        hidden_widths: The widths of the two hidden layers.
        seeds: The seeds of the initial weights.
    """

    learning_rates: tuple[float, ...] = (1e-2, 5e-2)
    times: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
    weight_decay: float = 1e-2
    hidden_widths: tuple[int, int] = (32, 32)
    seeds: tuple[int, ...] = (7, 8, 9)


@dataclass(frozen=True)
class Row:
    """The largest eigenvalue of `H + λI` along one path of descent and along gradient flow's.

    Attributes:
        seed: The seed of the initial weights.
        learning_rate: The learning rate η of descent.
        descent: The sharpness along descent, at every time.
        flow: The sharpness along gradient flow.
    """

    seed: int
    learning_rate: float
    descent: tuple[float, ...]
    flow: tuple[float, ...]

    @property
    def ratios(self) -> np.ndarray:
        """Descent's sharpness over gradient flow's, at every time."""
        return np.array(self.descent) / np.array(self.flow)


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold."""

    settings: PathSharpness
    rows: tuple[Row, ...]

    @property
    def claims(self) -> dict[str, bool]:
        return {
            "descent is flatter than gradient flow at every time": all(
                bool(np.all(row.ratios < 1)) for row in self.rows
            ),
        }


def run(settings: PathSharpness, folder: Path, progress: Progress = silent) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `path_sharpness.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many runs are done and to do.
    """
    cases = {
        f"seed {seed}, learning rate {rate}": partial(_sharpness, settings, seed, rate)
        for seed in settings.seeds
        for rate in settings.learning_rates
    }
    found = results_of(folder / "path_sharpness.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: PathSharpness, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    return Result(settings, tuple(Row(**with_tuples(row)) for row in found.values()))


def _sharpness(settings: PathSharpness, seed: int, learning_rate: float) -> dict[str, Any]:
    problem, params = digits_network(settings.hidden_widths, settings.weight_decay, seed)
    paths = [
        solve(dynamics, params, np.array(settings.times))
        for dynamics in (GradientDescent(problem, learning_rate), GradientFlow(problem))
    ]
    descent, flow = (
        tuple(
            extreme_curvatures(problem, path.at(record))[1] for record in range(len(settings.times))
        )
        for path in paths
    )
    return asdict(Row(seed, learning_rate, descent, flow))
