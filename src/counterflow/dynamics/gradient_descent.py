"""Gradient descent, the discrete dynamics that the flows are to predict."""

from typing import Any

from jaxtyping import PyTree

from ..counter_terms.update_rule import descend
from ..problem.noun import noun, set_fields
from ..problem.numbers import require_learning_rate
from ..problem.problem import Problem
from ..problem.requirements import require_problem
from .dynamics import Dynamics


@noun
class GradientDescent(Dynamics):
    """Gradient descent, `θ_{k+1} = θ_k − η g(θ_k)`; step `k` is at time `t = kη`.

    Args:
        problem: The problem, with its weight decay.
        learning_rate: The η > 0.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> descent = cf.GradientDescent(cf.Problem(lambda theta: theta**2), learning_rate=0.1)
        >>> descent.step(jnp.array(1.0))
        Array(0.8, dtype=float64)
    """

    problem: Problem
    learning_rate: Any

    def __init__(self, problem: Problem, learning_rate: Any):
        set_fields(
            self,
            problem=require_problem(problem),
            learning_rate=require_learning_rate(learning_rate),
        )

    @property
    def gradient_evaluations(self) -> int:
        return 1

    def step(self, params: PyTree) -> PyTree:
        """The params after one step, shaped like `params`."""
        return descend(params, self.problem.gradient(params), self.learning_rate)
