"""Is the series of counter terms converging? An asymptotic series is cut at its smallest term."""

import warnings
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..counter_terms import orbit
from ..counter_terms.counter_terms import SERIES_METHODS
from ..problem.problem import Problem
from ..problem.tree import norm, rounding_of

# Where the last ratio of two terms is that much above the usual one, or near to 1 and that much
# above the smallest, what was seen of the series promises nothing about what follows.
_GROWN, _NEAR_ONE, _NOTABLY = 1.5, 0.9, 1.1


@dataclass(frozen=True)
class Convergence:
    """How the series of counter terms behaves at one point.

    An equation of motion of order γ leaves out `η^{γ+1} ξ̃_γ` and what follows. So the best order is
    the one whose first omitted term is the smallest.

    Attributes:
        gradient_size: `‖g‖`.
        sizes: `η^α ‖ξ̃_α‖` for `α = 0, 1, …`; with the method `orbit`, from differences of
            gradients, which are of the same order in η only: a hint, where `taylor` is exact.
        ratios: Each term of the velocity over the one before: `η‖ξ̃_0‖/‖g‖`, then
            `η‖ξ̃_α‖/‖ξ̃_{α−1}‖`.
        best_order: The order at which to stop; where `converging`, at least this.
        converging: Whether the terms shrink as far as they were computed, or down to rounding.
        rounding_order: The first order whose own counter term is below rounding, if any.
        epsilon: The relative rounding error of the params' dtype.
    """

    gradient_size: float
    sizes: tuple[float, ...]
    ratios: tuple[float, ...]
    best_order: int
    converging: bool
    rounding_order: int | None
    epsilon: float

    @property
    def verdict(self) -> str:
        """What it means, in one sentence."""
        if self.gradient_size == 0:
            return "at rest: the gradient vanishes, and with it every counter term"
        if not any(self.sizes):
            return "exact: every counter term vanishes, gradient flow is gradient descent here"
        if self.converging:
            return self._how_it_converges()
        if self.best_order == 0:
            return (
                "not converging here: the counter terms grow from the first on, so an equation of "
                "motion may be no better than gradient flow; use a smaller learning rate"
            )
        return (
            f"not converging here: the terms shrink up to order {self.best_order} and grow beyond, "
            "so higher orders are not to be trusted; stop there or use a smaller learning rate"
        )

    def _how_it_converges(self) -> str:
        # A term at the level of rounding says nothing, so neither does its ratio.
        last = None if self.rounding_order is None else max(self.rounding_order - 1, 1)
        ratios = self.ratios[:last]
        usual, lowest, latest = float(np.median(ratios)), min(ratios), ratios[-1]
        if latest > _GROWN * usual or latest > max(_NEAR_ONE, _NOTABLY * lowest):
            return (
                f"converging up to order {self.best_order}, but the ratios of terms grow from "
                f"{lowest:.2g} to {latest:.2g}: the series may diverge beyond"
            )
        return (
            f"converging: each term is about {usual:.2g} times the one before, "
            f"up to order {self.best_order} at least"
        )

    def __str__(self) -> str:
        rows = [f"{'α':>3}  {'η^α |ξ̃_α|':>12}  {'ratio':>8}"]
        for alpha, (size, ratio) in enumerate(zip(self.sizes, self.ratios, strict=True)):
            rows.append(f"{alpha:>3}  {size:>11.3e}  {ratio:>8.3g}")
        return "\n".join([*rows, self.verdict])

    def warn_beyond(self, order: int, caller: int = 3) -> None:
        """Warns if `order` is beyond the best one, or below what the dtype can resolve.

        `caller` says how many calls up the warning points to.
        """
        if not self.converging and order > self.best_order:
            warnings.warn(
                f"order {order} was asked for, but the series is {self.verdict}", stacklevel=caller
            )
        single = float(np.finfo(np.float32).eps)
        if self.epsilon >= single and self.rounding_order and order >= self.rounding_order:
            warnings.warn(
                f"order {order} was asked for in single precision, where the counter term of "
                f"order {self.rounding_order} is already below rounding ({self.epsilon:.1g} of "
                "the gradient): enable double precision with "
                '`jax.config.update("jax_enable_x64", True)` before making the params',
                stacklevel=caller,
            )


def measure_convergence(
    problem: Problem, params: PyTree, learning_rate: Any, terms: int, method: str
) -> Convergence:
    """The behaviour of the first `terms` counter terms at `params`, which are checked already."""
    sizes = np.asarray(_velocity_terms(problem, params, learning_rate, terms, method), float)
    epsilon = rounding_of(params)
    # Differences of m + 1 gradients add up their rounding errors; exact terms do not.
    amplified = 2.0 ** np.arange(terms + 1) if method == "orbit" else np.ones(terms + 1)
    return _judge(sizes, 4 * epsilon * sizes[0] * amplified, float(learning_rate), epsilon)


@eqx.filter_jit
def _velocity_terms(
    problem: Problem, params: PyTree, learning_rate: Any, terms: int, method: str
) -> Array:
    """The sizes `‖g‖, η‖ξ̃_0‖, η²‖ξ̃_1‖, …` of the terms of the velocity."""
    if method == "orbit":
        return orbit.difference_sizes(problem.gradient, params, learning_rate, terms)
    series = SERIES_METHODS[method](problem.gradient, params, terms)
    return jnp.stack([learning_rate**power * norm(term) for power, term in enumerate(series)])


def _judge(
    terms: np.ndarray, rounding: np.ndarray, learning_rate: float, epsilon: float
) -> Convergence:
    below = np.flatnonzero(terms[1:] <= rounding[1:]) + 1
    finite = np.where(np.isfinite(terms), terms, np.inf)
    # Terms at the level of rounding say nothing: the series has converged before them.
    last = int(below[0]) if len(below) else len(terms) - 1
    smallest = 1 + int(np.argmin(finite[1 : last + 1]))
    shrinks = bool(finite[1] < finite[0] or terms[0] == 0)
    converging = smallest == last and shrinks
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(terms[1:] / terms[:-1], nan=0.0)
    return Convergence(
        gradient_size=float(terms[0]),
        sizes=tuple(float(t) / learning_rate for t in terms[1:]),
        ratios=tuple(float(r) for r in ratios),
        best_order=smallest - 1,
        converging=converging,
        rounding_order=int(below[0]) if len(below) else None,
        epsilon=epsilon,
    )
