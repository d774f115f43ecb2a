"""Two cases in the plane where the equilibrium of Corollaries 5.1 and 5.2 is real."""

import warnings
from dataclasses import asdict, dataclass
from functools import partial
from math import acos, sin, sqrt
from pathlib import Path
from typing import Any

import diffrax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics.dynamics import Flow
from ..dynamics.equation_of_motion import EquationOfMotion
from ..problem.problem import Problem
from ..solvers.solve import solve
from ..symmetries.equilibrium import equilibrium
from ..symmetries.fixed_point import equilibrium_angle, equilibrium_radius
from ..symmetries.scale import Scale
from .cases import Progress, Verdict, results_of, silent, with_tuples


@dataclass(frozen=True)
class PlanarEquilibria:
    """The settings.

    Attributes:
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ.
        steps: The steps that descent is given to settle.
        flow_time: The time to which the flows are solved.
    """

    learning_rate: float = 0.5
    weight_decay: float = 0.5
    steps: int = 2000
    flow_time: float = 8.0


@dataclass(frozen=True)
class Row:
    """A case in the plane, where the equilibrium is real.

    Attributes:
        name: What it is.
        radius: The norm under descent at the end.
        radius_exact: `r_*` in closed form.
        angle: The angular update under descent at the end.
        angle_exact: `arccos(1 − ηλ)`.
        radius_paper: `r_*` by the paper's equation of motion of order 1.
        radius_flows: The norm at the end of the flows of order 0, 1, 2, 3.
    """

    name: str
    radius: float
    radius_exact: float
    angle: float
    angle_exact: float
    radius_paper: float
    radius_flows: tuple[float, ...]


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold."""

    settings: PlanarEquilibria
    rows: tuple[Row, ...]

    @property
    def claims(self) -> dict[str, bool]:
        return {
            "norm and angle are at the exact fixed point to 1e-10": all(
                abs(case.radius / case.radius_exact - 1) < 1e-10
                and abs(case.angle / case.angle_exact - 1) < 1e-10
                for case in self.rows
            ),
        }


def run(settings: PlanarEquilibria, folder: Path, progress: Progress = silent) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `planar_equilibria.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many cases are done and to do.
    """
    cases = {
        "two-cycle": partial(_two_cycle, settings),
        "rotation": partial(_rotation, settings),
    }
    found = results_of(folder / "planar_equilibria.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: PlanarEquilibria, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    return Result(settings, tuple(Row(**with_tuples(row)) for row in found.values()))


_PLANE = Scale("")


def three_valleys(point: Float[Array, "2"]) -> Float[Array, ""]:
    """`f = −cos(3φ)/3` of the angle φ, without regard to the radius."""
    x, y = point / jnp.sqrt(jnp.sum(point**2))
    return -(x**3 - 3 * x * y**2) / 3


def rotation(point: Float[Array, "2"]) -> Float[Array, "2"]:
    """The field `Jθ/‖θ‖²`, which goes round with `c = 1`."""
    return jnp.stack([-point[1], point[0]]) / jnp.sum(point**2)


def _two_cycle(settings: PlanarEquilibria) -> dict[str, Any]:
    """Descent jumps across a valley and back: `φ = ±Δ_*/2`, where `c = |sin 3φ|`."""
    decay, rate = settings.weight_decay, settings.learning_rate
    problem = Problem(three_valleys, weight_decay=decay)
    gradient_norm = abs(sin(1.5 * acos(1 - rate * decay)))
    return _equilibrium(settings, "two-cycle", problem, gradient_norm)


def _rotation(settings: PlanarEquilibria) -> dict[str, Any]:
    problem = Problem.from_gradient(rotation, weight_decay=settings.weight_decay)
    return _equilibrium(settings, "rotation", problem, 1.0)


def _equilibrium(
    settings: PlanarEquilibria, name: str, problem: Problem, gradient_norm: float
) -> dict[str, Any]:
    rate, decay = settings.learning_rate, settings.weight_decay
    radii = equilibrium_radius(rate, decay, gradient_norm)
    angles = equilibrium_angle(rate, decay)
    # Near the fixed point but not at it: a two-cycle attracts what is close.
    half = angles.exact / 2 + 0.02
    start = 1.05 * radii.exact * jnp.array([np.cos(half), np.sin(half)])
    settled = equilibrium(problem, _PLANE, start, rate, settings.steps)
    run = equilibrium(problem, _PLANE, settled.params, rate, 100, windows=1)
    time = settings.flow_time
    flows = [EquationOfMotion(problem, rate, order) for order in range(4)]
    row = Row(
        name=name,
        radius=float(run.radius_mean[-1]),
        radius_exact=radii.exact,
        angle=float(run.angle_mean[-1]),
        angle_exact=angles.exact,
        radius_paper=radii.equation_of_motion,
        radius_flows=tuple(_radius_at(flow, start, time) for flow in flows),
    )
    return asdict(row)


def _radius_at(flow: Flow, start: Float[Array, "2"], time: float) -> float:
    """The norm at a time; near the origin the curvature grows without bound, so implicitly."""
    with warnings.catch_warnings():
        # That the series does not converge here is what the case is about.
        warnings.simplefilter("ignore", UserWarning)
        run = solve(flow, start, np.array([time]), rtol=1e-7, solver=diffrax.Kvaerno5())
    return sqrt(float(jnp.sum(run.params[-1] ** 2)))
