"""The equation of motion: gradient flow with counter terms."""

from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from ..counter_terms import lie, orbit, taylor
from ..counter_terms.counter_terms import SERIES_METHODS
from ..problem.noun import noun, set_fields, static
from ..problem.numbers import require_learning_rate, require_order
from ..problem.problem import Problem
from ..problem.requirements import at_the_door, require_problem
from ..problem.tree import add_scaled, scaled, weighted_sum, zeros_like
from .convergence import Convergence, measure_convergence
from .dynamics import Flow

METHODS = (*SERIES_METHODS, "orbit")


@noun
class EquationOfMotion(Flow):
    """The equation of motion `dθ/dt = −g − η Σ_{α<γ} η^α ξ̃_α` of order γ (Equation 4 of the paper).

    Order 0 is gradient flow, order 1 the paper's equation of motion. At a fixed time its distance
    from gradient descent is `O(η^{γ+1})`.

    Args:
        problem: The problem, with its weight decay.
        learning_rate: The η > 0 of the gradient descent to be predicted.
        order: The number γ ≥ 0 of counter terms.
        method: `"taylor"` or `"lie"` for the exact truncation, or `"orbit"`, which needs γ + 1
            gradients and no derivatives, and agrees with it up to `O(η^{γ+1})`.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: theta**2)
        >>> flow = cf.EquationOfMotion(problem, learning_rate=0.1, order=1)
        >>> flow.velocity(jnp.array(1.0))
        Array(-2.2, dtype=float64)
    """

    problem: Problem
    learning_rate: Any
    order: int = static()
    method: str = static()

    def __init__(
        self, problem: Problem, learning_rate: Any, order: int = 1, method: str = "taylor"
    ):
        order = require_order(
            order, "order", "0 is gradient flow, 1 the paper's equation of motion"
        )
        if method not in METHODS:
            raise ValueError(
                f"`method` must be one of {', '.join(map(repr, METHODS))}, got {method!r}: "
                "'taylor' is the default, 'orbit' needs gradients only"
            )
        learning_rate = require_learning_rate(learning_rate)
        set_fields(
            self,
            problem=require_problem(problem),
            learning_rate=learning_rate,
            order=order,
            method=method,
        )

    @property
    def gradient_evaluations(self) -> int:
        if self.method == "orbit":
            return self.order + 1
        return {"taylor": taylor, "lie": lie}[self.method].gradient_evaluations(self.order)

    def velocity(self, params: PyTree) -> PyTree:
        return _velocity(self, params)

    def velocity_and_remainder(self, params: PyTree) -> tuple[PyTree, PyTree]:
        """The velocity, and by how much it exceeds the exact one, to leading order.

        The remainder drives the discretization error: `η^{γ+1} ξ̃_γ`, the first counter term left
        out; of the method `orbit`, the first difference of gradients left out.
        """
        gradient = self.problem.gradient
        if self.method == "orbit":
            return orbit.velocity_and_remainder(gradient, params, self.learning_rate, self.order)
        *kept, dropped = SERIES_METHODS[self.method](gradient, params, self.order + 1)
        velocity = weighted_sum(self._powers(), kept)
        return velocity, scaled(self.learning_rate ** (self.order + 1), dropped)

    def velocity_and_counter(self, params: PyTree) -> tuple[PyTree, PyTree]:
        """The velocity `−g − ηξ`, and `ηξ`, what its counter terms add up to."""
        gradient = self.problem.gradient
        if self.order == 0:
            return self.velocity(params), zeros_like(params)
        if self.method == "orbit":
            velocity = self.velocity(params)
            return velocity, scaled(-1, add_scaled(velocity, 1, gradient(params)))
        series = SERIES_METHODS[self.method](gradient, params, self.order)
        powers = self._powers()
        return weighted_sum(powers, series), scaled(-1, weighted_sum(powers[1:], series[1:]))

    def _powers(self) -> list[Any]:
        return [-(self.learning_rate**power) for power in range(self.order + 1)]

    def convergence(self, params: PyTree, terms: int | None = None) -> Convergence:
        """Whether the series in η is converging at `params`, and at which order to stop.

        Args:
            params: Where to look.
            terms: How many counter terms to look at, by default two more than `order` and at
                least five.

        Example:
            >>> import jax.numpy as jnp
            >>> import counterflow as cf
            >>> problem = cf.Problem(lambda theta: theta**2)
            >>> flow = cf.EquationOfMotion(problem, learning_rate=0.1, order=2)
            >>> print(flow.convergence(jnp.array(1.0)).verdict)
            converging: each term is about 0.15 times the one before, up to order 4 at least
        """
        terms = max(self.order + 2, 5) if terms is None else terms
        terms = require_order(terms, "terms", "the number of counter terms to look at")
        if terms == 0:
            raise ValueError("`terms` must be at least 1, got 0: there is no series to look at")
        params = at_the_door(self.problem, params)
        convergence = measure_convergence(
            self.problem, params, self.learning_rate, terms, self.method
        )
        convergence.warn_beyond(self.order)
        return convergence


@eqx.filter_jit  # outside of `jit`, the loop along the orbit would be compiled at every call
def _velocity(flow: EquationOfMotion, params: PyTree) -> PyTree:
    gradient = flow.problem.gradient
    if flow.method == "orbit":
        return orbit.velocity(gradient, params, flow.learning_rate, flow.order)
    series = SERIES_METHODS[flow.method](gradient, params, flow.order)
    return weighted_sum(flow._powers(), series)
