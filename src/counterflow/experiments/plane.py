"""Paths of descent and of its flows in a plane, for figures that can be looked at whole."""

import warnings
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..dynamics.equation_of_motion import EquationOfMotion
from ..dynamics.gradient_descent import GradientDescent
from ..problem.problem import Problem
from ..solvers.solve import solve

# How many points of a flow are kept per step of descent.
_POINTS_PER_STEP = 8


def paths(
    problem: Problem,
    start: tuple[float, float],
    learning_rate: float,
    steps: int,
    orders: tuple[int, ...],
) -> dict[str, Any]:
    """The points of descent, one per step, and those of the flow of every order, in JSON values.

    With them the learning rate and how many points of a flow there are per step.

    Args:
        problem: A problem of two parameters.
        start: Where all of them start.
        learning_rate: The learning rate η.
        steps: The steps of descent.
        orders: The orders γ of the flows.
    """
    params = jnp.array(start)
    every = learning_rate * np.arange(steps + 1)
    between = learning_rate * np.arange(_POINTS_PER_STEP * steps + 1) / _POINTS_PER_STEP
    descent = solve(GradientDescent(problem, learning_rate), params, every)
    found: dict[str, Any] = {
        "learning_rate": learning_rate,
        "points_per_step": _POINTS_PER_STEP,
        "descent": np.asarray(descent.params).tolist(),
    }
    with warnings.catch_warnings():
        # A picture may well begin where the series does not converge.
        warnings.simplefilter("ignore", UserWarning)
        for order in orders:
            flow = EquationOfMotion(problem, learning_rate, order)
            path = solve(flow, params, between, rtol=1e-10).params  # raises if it ends early
            found[f"order {order}"] = np.asarray(path).tolist()
    return found


@dataclass(frozen=True, eq=False)
class Paths:
    """What `paths` found, read back.

    Attributes:
        learning_rate: The learning rate η.
        descent: The points of descent, one per step.
        flows: Those of the flow of every order.
        points_per_step: How many of these there are per step.
    """

    learning_rate: float
    descent: np.ndarray
    flows: dict[int, np.ndarray]
    points_per_step: int

    @property
    def times(self) -> np.ndarray:
        """The times of the steps of descent."""
        return self.learning_rate * np.arange(len(self.descent))

    @property
    def flow_times(self) -> np.ndarray:
        """The times of the points of the flows."""
        count = (len(self.descent) - 1) * self.points_per_step + 1
        return self.learning_rate * np.arange(count) / self.points_per_step

    def at_steps(self, order: int) -> np.ndarray:
        """The points of a flow at the times of the steps of descent."""
        return self.flows[order][:: self.points_per_step]


def read_paths(stored: dict[str, Any]) -> Paths:
    """The paths that were stored as JSON values."""
    flows = {
        int(name.removeprefix("order ")): np.array(path)
        for name, path in stored.items()
        if name.startswith("order ")
    }
    return Paths(
        stored["learning_rate"], np.array(stored["descent"]), flows, stored["points_per_step"]
    )
