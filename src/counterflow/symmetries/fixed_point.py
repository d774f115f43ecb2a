"""Where a scale-invariant layer would settle: Corollaries 5.1 and 5.2 of the paper.

If `r_A` and `c = ‖∇_A f(θ̂_A + θ_{A^c})‖` become constant, one step of descent,
`r² → (1 − ηλ)² r² + η² c²/r²`, leaves r unchanged where

    r_*⁴ = η c_*² / (2λ − ηλ²),    cos Δ_* = 1 − ηλ.
"""

from math import asin, sqrt
from typing import Any, NamedTuple

from ..problem.numbers import require_learning_rate, require_weight_decay


class FixedPoint(NamedTuple):
    """A value at equilibrium, as three theories have it.

    Attributes:
        leading: To leading order in ηλ.
        equation_of_motion: By the paper's equation of motion of order 1.
        exact: By gradient descent itself.
    """

    leading: float
    equation_of_motion: float
    exact: float


def equilibrium_radius(learning_rate: Any, weight_decay: Any, gradient_norm: float) -> FixedPoint:
    """The norm `r_*` at equilibrium (Corollary 5.1). Gradient flow has none: there r collapses.

    `r_*² = c_* √(η/2λ)` to leading order, `c_* √(η/(2λ + ηλ²))` by the equation of motion of order
    1, and `c_* √(η/(2λ − ηλ²))` exactly.

    Args:
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ, positive.
        gradient_norm: `c_* = ‖∇_A f(θ̂_A + θ_{A^c})‖`.

    Example:
        >>> import counterflow as cf
        >>> cf.equilibrium_radius(0.5, 0.5, gradient_norm=1.0)
        FixedPoint(leading=0.840..., equation_of_motion=0.816..., exact=0.869...)
    """
    rate, decay = require_decay(learning_rate, weight_decay)
    if not gradient_norm >= 0:
        raise ValueError(f"`gradient_norm` must be at least 0, got {gradient_norm}")
    bases = (2 * decay, 2 * decay + rate * decay**2, 2 * decay - rate * decay**2)
    return FixedPoint(*(float((rate / base) ** 0.25 * gradient_norm**0.5) for base in bases))


def equilibrium_angle(learning_rate: Any, weight_decay: Any) -> FixedPoint:
    """The angular update `Δ_*` at equilibrium (Corollary 5.2).

    `√(2ηλ)` to leading order; `cos Δ_* = (1 − ηλ)/(1 + η²λ²/2)` by the paper's expansion to second
    order, its misprint corrected; and `cos Δ_* = 1 − ηλ` exactly.

    Args:
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ, positive.

    Example:
        >>> import counterflow as cf
        >>> cf.equilibrium_angle(0.1, 0.01)
        FixedPoint(leading=0.0447213..., equation_of_motion=0.0447362..., exact=0.0447250...)
    """
    rate, decay = require_decay(learning_rate, weight_decay)
    product = rate * decay
    # Half-angle formulas: the inverse cosine would lose half the digits of a small angle.
    second = (product + product**2 / 2) / (1 + product**2 / 2)
    return FixedPoint(sqrt(2 * product), 2 * asin(sqrt(second / 2)), 2 * asin(sqrt(product / 2)))


def require_decay(learning_rate: Any, weight_decay: Any) -> tuple[float, float]:
    """Learning rate and weight decay; raises unless an equilibrium can exist with them."""
    rate = float(require_learning_rate(learning_rate))
    decay = float(require_weight_decay(weight_decay))
    if not 0 < rate * decay < 2:
        raise ValueError(
            "at equilibrium the product of `learning_rate` and `weight_decay` must be above 0 and "
            f"below 2, got {rate * decay:g}: without weight decay the norm only grows, and beyond "
            "2 every step overshoots zero"
        )
    return rate, decay
