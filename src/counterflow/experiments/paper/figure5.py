"""Figure 5, computed: the plane of a translation-invariant layer with two weights."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...problem.problem import Problem
from ...runs.run import Run
from ..curves import TIME, flow_name, order_role, scientific
from ..experiment import Experiment
from ..finding import Claim, Curve, Finding, Panel
from ..plane import paths, read_paths
from .setting import PaperSetting

LEARNING_RATE, WEIGHT_DECAY, STEPS, START, ORDERS = 1.0, 0.25, 12, (0.5, 3.0), (0, 1, 2)


def loss(weights: Array) -> Array:
    """The cross-entropy of a softmax over two weights with the probabilities 0.8 and 0.2."""
    return -jnp.array([0.8, 0.2]) @ jax.nn.log_softmax(weights)


def compute(setting: PaperSetting) -> dict[str, Any]:
    """The paths of descent and of the flows."""
    del setting
    problem = Problem(loss, weight_decay=WEIGHT_DECAY)
    found = paths(problem, START, LEARNING_RATE, STEPS, ORDERS)
    return found | {"weight_decay": WEIGHT_DECAY}


def perpendicular(path: np.ndarray) -> np.ndarray:
    """`‖θ_⊥‖`: how far the points are from the line where the weights sum to zero."""
    return np.abs(path.sum(axis=1)) / np.sqrt(2)


def _finding(run: Run) -> Finding:
    found = read_paths(run.results["figure5"])
    rate, decay = found.learning_rate, run.results["figure5"]["weight_decay"]
    size = perpendicular(found.descent)
    exact = size[0] * (1 - rate * decay) ** np.arange(len(size))
    off = float(np.max(np.abs(size / exact - 1)))
    ends = {order: float(perpendicular(path)[-1]) for order, path in found.flows.items()}
    reach = np.array([-1.2, 1.2])
    plane = [Curve("θ_⊥ = 0", "background", reach, -reach)]
    plane.append(Curve("gradient descent", "descent", *found.descent.T, points=True))
    plane += [
        Curve(flow_name(order), order_role(order), *path.T) for order, path in found.flows.items()
    ]
    sizes = [Curve("gradient descent", "descent", found.times, size, points=True)]
    sizes += [
        Curve(flow_name(order), order_role(order), found.flow_times, perpendicular(path))
        for order, path in found.flows.items()
    ]
    sizes.append(Curve("exact, (1 − ηλ)^k", "exact", found.times, exact))
    return Finding(
        "figure5",
        "Figure 5: dynamics of a translation-invariant layer",
        f"Two weights in front of a softmax, η = {rate:g}, λ = {decay:g}. The loss "
        "does not see their sum, so θ_⊥ decays by weight decay alone, and motion ends on the line "
        "where the weights sum to zero. Descent gets there faster than gradient flow. In the paper "
        "this is a sketch; here it is computed.",
        (
            Claim(
                "θ_⊥ of descent is (1 − ηλ)^k times that at the start, to 1e-12",
                f"off by at most {scientific(off)}",
                off < 1e-12,
            ),
            Claim(
                "θ_⊥ of descent decays faster than gradient flow's, and each order comes closer",
                f"at the end: descent {scientific(float(size[-1]))}; γ = "
                f"{', '.join(map(str, ends))}: {', '.join(map(scientific, ends.values()))}",
                all(a > b for a, b in pairwise([*ends.values(), float(size[-1])])),
            ),
        ),
        (
            Panel("the plane of both weights", "θ₁", "θ₂", tuple(plane), plane=True),
            Panel("‖θ_⊥‖ over time", TIME, "‖θ_⊥‖", tuple(sizes), y_scale="log"),
        ),
    )


EXPERIMENT = Experiment("figure5", _finding, results={"figure5": compute})
