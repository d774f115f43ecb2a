"""Gradient flow, the limit of gradient descent for small learning rates."""

from jaxtyping import PyTree

from ..problem.noun import noun, set_fields
from ..problem.problem import Problem
from ..problem.requirements import require_problem
from ..problem.tree import scaled
from .dynamics import Flow


@noun
class GradientFlow(Flow):
    """Gradient flow, `dθ/dt = −g(θ)`: the equation of motion of order 0.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> flow = cf.GradientFlow(cf.Problem(lambda theta: theta**2))
        >>> flow.velocity(jnp.array(1.0))
        Array(-2., dtype=float64)
    """

    problem: Problem

    def __init__(self, problem: Problem):
        set_fields(self, problem=require_problem(problem))

    @property
    def gradient_evaluations(self) -> int:
        return 1

    def velocity(self, params: PyTree) -> PyTree:
        return scaled(-1, self.problem.gradient(params))
