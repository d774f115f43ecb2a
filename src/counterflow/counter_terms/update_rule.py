"""The update rule, gradient descent, wherever it enters: in numbers and as a formal power series.

A series in the learning rate η is a tuple of its coefficients, each shaped like the params.
"""

from typing import Any

from jaxtyping import PyTree

from ..problem.tree import add_scaled


def descend(params: PyTree, gradient: PyTree, learning_rate: Any) -> PyTree:
    """One step of gradient descent, `θ − η g`."""
    return add_scaled(params, -learning_rate, gradient)


def descend_series(point: tuple[PyTree, ...], gradient: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
    """One step on a formal series, `θ(η) − η g(θ(η))`, to the degree of `point`."""
    moved = [add_scaled(a, -1, b) for a, b in zip(point[1:], gradient[:-1], strict=True)]
    return (point[0], *moved)


def ascend_coefficient(coefficient: PyTree, gradient_before: PyTree) -> PyTree:
    """The next coefficient of the step undone, `θ₋₁ = θ + η g(θ₋₁)`: `θ_d + g(θ₋₁)_{d−1}`."""
    return add_scaled(coefficient, 1, gradient_before)
