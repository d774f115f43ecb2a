"""Figure 1, computed: gradient flow misses descent, the equation of motion does not."""

from typing import Any

import numpy as np
from jaxtyping import Array

from ...problem.problem import Problem
from ...runs.run import Run
from ..curves import flow_name, order_role, scientific
from ..experiment import Experiment, Setting
from ..finding import Claim, Curve, Finding, Panel
from ..plane import paths

LEARNING_RATE, STEPS, START, ORDERS = 0.4, 25, (1.0, 4.5), (0, 1, 2)
# f = (a u² + b x²)/2 with u = y − c x²/2: a curved valley, its level sets known in closed form.
STEEP, FLAT, BEND = 1.0, 0.05, 0.2


def loss(point: Array) -> Array:
    """A curved valley in two parameters."""
    x, y = point
    return (STEEP * (y - BEND * x**2 / 2) ** 2 + FLAT * x**2) / 2


def compute(setting: Setting) -> dict[str, Any]:
    """The paths of descent and of the flows."""
    del setting
    return paths(Problem(loss), START, LEARNING_RATE, STEPS, ORDERS)


def level_set(value: float) -> np.ndarray:
    """The points where the loss has a value."""
    angle = np.linspace(0, 2 * np.pi, 181)
    x = np.sqrt(2 * value / FLAT) * np.cos(angle)
    u = np.sqrt(2 * value / STEEP) * np.sin(angle)
    return np.array([x, u + BEND * x**2 / 2])


def _finding(run: Run) -> Finding:
    found = {name: np.array(path) for name, path in run.results["figure1"].items()}
    descent = found["descent"][:: len(found["descent"]) // STEPS]
    every = (len(found["order 0"]) - 1) // STEPS
    off = [
        float(np.max(np.linalg.norm(found[f"order {order}"][::every] - descent, axis=1)))
        for order in ORDERS
    ]
    # Only what lies in the part of the plane that the paths cross.
    levels = [level_set(value) for value in (0.02, 0.1, 0.3, 0.8, 1.8, 3.5, 6, 9.5)]
    shown = [
        np.where((x > -0.6) & (x < 3) & (y < 5) & (y > -0.4), (x, y), np.nan) for x, y in levels
    ]
    curves = [Curve("level sets", "background", x, y) for x, y in shown]
    curves += [
        Curve(flow_name(order), order_role(order), *found[f"order {order}"].T) for order in ORDERS
    ]
    curves.append(Curve("gradient descent", "descent", *descent.T, points=True))
    return Finding(
        "figure1",
        "Figure 1: what the counter term is for",
        f"Two parameters in a curved valley, η = {LEARNING_RATE:g}: the steps of gradient descent, "
        "gradient flow from the same start, which misses them, and the equation of motion, which "
        "does not. In the paper this is a sketch; here it is computed.",
        (
            Claim(
                "the equation of motion stays three times closer to descent than gradient flow",
                f"farthest apart: {', '.join(map(scientific, off))} for γ = 0, 1, 2",
                off[1] < off[0] / 3,
            ),
        ),
        (Panel("", "θ₁", "θ₂", tuple(curves), plane=True),),
    )


EXPERIMENT = Experiment("figure1", _finding, results={"figure1": compute})
