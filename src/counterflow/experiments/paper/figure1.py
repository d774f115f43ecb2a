"""Figure 1, computed: gradient flow misses descent, the equation of motion does not."""

from typing import Any

import numpy as np
from jaxtyping import Array

from ...problem.problem import Problem
from ...runs.run import Run
from ..curves import TIME, flow_name, order_role, scientific
from ..experiment import Experiment
from ..finding import Claim, Curve, Finding, Panel
from ..plane import paths, read_paths
from .setting import PaperSetting

LEARNING_RATE, STEPS, START, ORDERS = 0.1, 90, (0.091, 1.0), (0, 1, 2)
#: The part of the plane that is shown.
_LEFT, _RIGHT, _BOTTOM, _TOP = -1.4, 1.4, -0.35, 1.1


def loss(point: Array) -> Array:
    """Two valleys, at `u = x − y² = ±1`, with a curved ridge between them."""
    x, y = point
    u = x - y**2
    return u**4 / 4 - u**2 / 2 + 2 * y**2


def level_set(value: float) -> list[np.ndarray]:
    """The closed lines on which the loss has a value, as far as they are shown."""
    root = np.sqrt(1 + 4 * value)
    inner, outer = np.sqrt(np.maximum(1 - root, 0)), np.sqrt(1 + root)
    # Below the ridge there is a line around each valley, above it one around both.
    ranges = [(-outer, outer)] if value >= 0 else [(inner, outer), (-outer, -inner)]
    angle = np.linspace(0, 2 * np.pi, 241)
    lines = []
    for low, high in ranges:
        u = (low + high) / 2 - (high - low) / 2 * np.cos(angle)
        y = np.sign(np.sin(angle)) * np.sqrt(np.maximum(value + u**2 / 2 - u**4 / 4, 0) / 2)
        x = u + y**2
        shown = (x > _LEFT) & (x < _RIGHT) & (y > _BOTTOM) & (y < _TOP)
        lines.append(np.where(shown, [x, y], np.nan))
    return lines


def compute(setting: PaperSetting) -> dict[str, Any]:
    """The paths of descent and of the flows."""
    del setting
    return paths(Problem(loss), START, LEARNING_RATE, STEPS, ORDERS)


def _finding(run: Run) -> Finding:
    found = read_paths(run.results["figure1"])
    away = {
        order: np.linalg.norm(found.at_steps(order) - found.descent, axis=1)
        for order in found.flows
    }
    lines = [line for value in (-0.2, -0.1, 0.0, 0.2, 0.6, 1.2, 2.0) for line in level_set(value)]
    plane = [Curve("level sets", "background", *line) for line in lines]
    plane.append(Curve("gradient descent", "descent", *found.descent.T))
    # Beyond order 1 the paths could not be told from one another.
    plane += [
        Curve(flow_name(order), order_role(order), *path.T)
        for order, path in found.flows.items()
        if order < 2
    ]
    errors = [
        Curve(flow_name(order), order_role(order), found.times, error)
        for order, error in away.items()
    ]
    ends = [float(error[-1]) for error in away.values()]
    said = ", ".join(map(scientific, ends))
    return Finding(
        "figure1",
        "Figure 1: what the counter term is for",
        f"Two parameters on a ridge between two valleys, η = {found.learning_rate:g}. Gradient "
        "flow ends in another valley than the steps of gradient descent that it stands for; the "
        "equation of motion ends where they do. A sketch in the paper, computed here.",
        (
            Claim(
                "gradient flow ends in another valley than descent, the equation of motion in the "
                "same",
                f"distance from descent at the end: {said} for γ = {', '.join(map(str, away))}",
                ends[0] > 1 and all(end < 0.1 for end in ends[1:]),
            ),
        ),
        (
            Panel("the plane of both parameters", "θ₁", "θ₂", tuple(plane), plane=True),
            Panel("distance from descent", TIME, "error ‖e_k‖", tuple(errors), y_scale="log"),
        ),
    )


EXPERIMENT = Experiment("figure1", _finding, results={"figure1": compute})
