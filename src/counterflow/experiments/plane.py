"""Paths of descent and of its flows in a plane, for figures that can be looked at whole."""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..dynamics.equation_of_motion import EquationOfMotion
from ..dynamics.gradient_descent import GradientDescent
from ..problem.problem import Problem
from ..solvers.solve import solve

#: How many points of a flow are kept per step of descent.
POINTS_PER_STEP = 8


def paths(
    problem: Problem,
    start: tuple[float, float],
    learning_rate: float,
    steps: int,
    orders: tuple[int, ...],
) -> dict[str, Any]:
    """The points of descent, one per step, and those of the flow of every order, in JSON values.

    Args:
        problem: A problem of two parameters.
        start: Where all of them start.
        learning_rate: The learning rate η.
        steps: The steps of descent.
        orders: The orders γ of the flows.
    """
    params = jnp.array(start)
    every = learning_rate * np.arange(steps + 1)
    between = learning_rate * np.arange(POINTS_PER_STEP * steps + 1) / POINTS_PER_STEP
    descent = solve(GradientDescent(problem, learning_rate), params, every)
    found = {"descent": np.asarray(descent.params).tolist()}
    with warnings.catch_warnings():
        # A picture may well begin where the series does not converge.
        warnings.simplefilter("ignore", UserWarning)
        for order in orders:
            flow = EquationOfMotion(problem, learning_rate, order)
            path = solve(flow, params, between, rtol=1e-10).params
            found[f"order {order}"] = np.asarray(path).tolist()
    return found
