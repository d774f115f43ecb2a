"""Does most of the discretization error arise in the first 100 steps, as the paper says?

And how far is the paper's finite difference for `(H + λI)g` from the exact product?
"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, PyTree

from ..dynamics.gradient_flow import GradientFlow
from ..errors.compare import compare
from ..problem.problem import Problem
from ..problem.tree import add_scaled, distance, norm, scaled
from ..solvers.solve import solve
from .cases import Progress, Verdict, results_of, silent
from .setting import digits_network


@dataclass(frozen=True)
class FirstSteps:
    """The settings of the paper's Figure 2, for a network on scikit-learn's digits.

    Attributes:
        learning_rate: The learning rate η.
        steps: The steps of the run.
        first: How many steps count as the first.
        epsilon: The ε of the paper's finite difference.
        weight_decay: The weight decay λ.
        hidden_widths: The widths of the two hidden layers.
        seed: The seed of the initial weights.
    """

    learning_rate: float = 1e-2
    steps: int = 5000
    first: int = 100
    epsilon: float = 1e-7
    weight_decay: float = 1e-2
    hidden_widths: tuple[int, int] = (32, 32)
    seed: int = 7


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured for gradient flow, and whether the paper's statements hold.

    Attributes:
        settings: The settings.
        local_share: The paper's sum after the first steps, over its value at the end.
        measured_share: The measured error after the first steps, over its largest value.
        end_share: The measured error at the end, over its largest value.
        gap_share: The distance of the paper's sum from the measured error after the first steps,
            over that at the end.
        restarted_gap: The distance at the end if the sum starts from the error measured after the
            first steps (the paper's green curve), over that of the whole sum.
        difference_errors: The relative error of the paper's finite difference along the flow.
    """

    settings: FirstSteps
    local_share: float
    measured_share: float
    end_share: float
    gap_share: float
    restarted_gap: float
    difference_errors: tuple[float, ...]

    @property
    def claims(self) -> dict[str, bool]:
        return {
            "most of the predicted error arises in the first steps": self.local_share > 0.5,
            "most of the measured error arises in the first steps": self.measured_share > 0.5,
            "most of the gap between them arises in the first steps": self.gap_share > 0.5,
            "started after the first steps, the gap is less than half": self.restarted_gap < 0.5,
            "the finite difference is right to 1e-6": max(self.difference_errors) < 1e-6,
        }


def run(settings: FirstSteps, folder: Path, progress: Progress = silent) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `first_steps.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many cases are done and to do.
    """
    cases = {
        "shares": partial(_shares, settings),
        "finite difference": partial(_difference_errors, settings),
    }
    found = results_of(folder / "first_steps.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: FirstSteps, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    difference_errors = tuple(found["finite difference"])
    return Result(settings, **found["shares"], difference_errors=difference_errors)


def _network(settings: FirstSteps) -> tuple[Problem, PyTree]:
    return digits_network(settings.hidden_widths, settings.weight_decay, settings.seed)


def _shares(settings: FirstSteps) -> dict[str, float]:
    problem, params = _network(settings)
    run = compare(
        problem,
        params,
        settings.learning_rate,
        settings.steps,
        (0,),
        restart=settings.first,
        records=100,
    )
    early = int(np.flatnonzero(run.steps == settings.first)[0])
    error, local = run.error[0], run.predictions["local"]
    gap = local.mismatch[0] * error
    restarted = run.predictions["restarted_local"].mismatch[0] * error
    return {
        "local_share": float(local.prediction[0, early] / local.prediction[0, -1]),
        "measured_share": float(error[early] / np.max(error)),
        "end_share": float(error[-1] / np.max(error)),
        "gap_share": float(gap[early] / gap[-1]),
        "restarted_gap": float(restarted[-1] / gap[-1]),
    }


def _difference_errors(settings: FirstSteps) -> list[float]:
    problem, params = _network(settings)
    horizon = settings.first * settings.learning_rate
    flow = solve(GradientFlow(problem), params, np.linspace(0, horizon, 6))
    points = [flow.at(record) for record in range(6)]
    return [float(_difference_error(problem, point, settings.epsilon)) for point in points]


@eqx.filter_jit
def _difference_error(problem: Problem, params: PyTree, epsilon: Any) -> Array:
    gradient = problem.gradient(params)
    exact = problem.hessian_vector_product(params, gradient)
    ahead, behind = (
        problem.gradient(add_scaled(params, sign * epsilon, gradient)) for sign in (1, -1)
    )
    difference = scaled(1 / (2 * epsilon), add_scaled(ahead, -1, behind))
    return distance(difference, exact) / norm(exact)
