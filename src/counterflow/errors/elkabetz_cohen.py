"""The learning-rate bound of Elkabetz & Cohen (2021), with which the paper compares its own.

Let every point within the tolerance ε of gradient flow, up to a time T, have a gradient of at most
γ and a Hessian of at most β in size, and at time t no eigenvalue below −m(t). Gradient descent,
joined by straight lines, then solves gradient flow up to a defect of ηβγ, and the fundamental lemma
of numerical analysis (Hairer, Nørsett & Wanner, *Solving Ordinary Differential Equations I*,
section I.10) gives

    ‖e(t)‖ ≤ η β γ c(t),    c(t) = ∫_0^t exp(∫_s^t m) ds,

so that `η ≤ ε / (β γ max c)` suffices: a guarantee, not a leading order; but β, γ and m must hold
in a whole tube around the flow, which for a network nobody can compute.

O. Elkabetz, N. Cohen, *Continuous vs. Discrete Optimization of Deep Neural Networks*, NeurIPS 2021.
"""

import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from ..dynamics.gradient_flow import GradientFlow
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import norm
from ..solvers.requirements import require_steps
from ..solvers.solve import solve
from .curvature import extreme_curvatures
from .requirements import require_curvature, require_time, require_tolerance


@dataclass(frozen=True)
class ElkabetzCohenBound:
    """The bound of Elkabetz & Cohen (2021) for gradient flow; `float(bound)` is the learning rate.

    Attributes:
        learning_rate: `ε / (β γ c)`; unless `guaranteed`, the most that the bound can give.
        smoothness: β, the largest curvature in absolute value.
        gradient_size: γ, the largest gradient.
        growth: `max c(t)`, how far unit errors made all along the flow may have grown.
        guaranteed: Whether β, γ and m hold in the whole tube. If not, they were measured on the
            flow alone, where they can only be smaller.
    """

    learning_rate: float
    smoothness: float
    gradient_size: float
    growth: float
    guaranteed: bool

    def __float__(self) -> float:
        return self.learning_rate


def elkabetz_cohen_bound(
    problem: Problem,
    params: PyTree,
    *,
    time: float,
    tolerance: float,
    curvature: tuple[float, float] | None = None,
    records: int | None = None,
) -> ElkabetzCohenBound:
    """The learning rate up to which gradient descent provably stays near gradient flow.

    Args:
        problem: A problem given by a loss, with its weight decay.
        params: The params at time 0.
        time: The time T up to which descent is to stay near the flow.
        tolerance: The distance ε tolerated.
        curvature: The lowest and the highest eigenvalue of `H + λI` at any point within ε of the
            flow, if known (for a quadratic loss, those of its matrix): the bound is then a
            guarantee. By default they are measured on the flow alone, and the result is the most
            that the bound can give.
        records: At how many times along the flow gradients and curvatures are looked at, by
            default 20, or 200 if the curvature is given.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(theta**2) / 2)
        >>> start = jnp.ones(1)
        >>> known = cf.elkabetz_cohen_bound(
        ...     problem, start, time=2.0, tolerance=0.01, curvature=(1.0, 1.0)
        ... )
        >>> print(f"{float(known):.4f}, {known.guaranteed}")  # 0.01 / (1 · 1.01 · (1 − e⁻²))
        0.0115, True
    """
    time = require_time(time)
    if records is None:
        records = 20 if curvature is None else 200
    require_steps(records, "records")
    tolerance = require_tolerance(tolerance)
    if curvature is not None:
        curvature = require_curvature(curvature)
    params = at_the_door(problem, params)
    if not problem.has_loss:
        raise ValueError(
            "the bound of Elkabetz & Cohen is one for a loss, got a problem given by "
            "`Problem.from_gradient`, whose Jacobian need not be symmetric"
        )
    times = np.linspace(0, time, records + 1)
    flow = solve(GradientFlow(problem), params, times)
    points = [jax.tree.map(lambda leaf, i=i: leaf[i], flow.params) for i in range(len(times))]
    gradient_size = max(float(_gradient_size(problem, point)) for point in points)
    if curvature is None:
        measured = [extreme_curvatures(problem, point) for point in points]
        lowest, highest = (np.array(ends) for ends in zip(*measured, strict=True))
    else:
        lowest, highest = (np.full(len(times), end) for end in curvature)
    smoothness = float(max(np.max(highest), -np.min(lowest)))
    if curvature is not None:
        # The most that it can be between two records, and then at the edge of the tube.
        gradient_size *= math.exp(max(-lowest[0], 0.0) * time / records)
        gradient_size += smoothness * tolerance
    growth = _growth(times, -lowest)
    rate = smoothness * gradient_size * growth
    return ElkabetzCohenBound(
        learning_rate=tolerance / rate if rate > 0 else math.inf,  # at rest, or without curvature
        smoothness=smoothness,
        gradient_size=gradient_size,
        growth=growth,
        guaranteed=curvature is not None,
    )


@eqx.filter_jit
def _gradient_size(problem: Problem, params: PyTree) -> Array:
    return norm(problem.gradient(params))


def _growth(times: np.ndarray, rates: Any) -> float:
    """The largest c(t), where `ċ = 1 + m c`, `c(0) = 0`, and m is constant between times."""
    growth = [0.0]
    for i, span in enumerate(np.diff(times)):
        # Of the rates at its two ends the slower: what was measured here and there may only make
        # the bound look better than it is.
        rate = min(rates[i], rates[i + 1])
        made = span if abs(rate * span) < 1e-12 else np.expm1(rate * span) / rate
        growth.append(float(growth[-1] * np.exp(rate * span) + made))
    return max(growth)
