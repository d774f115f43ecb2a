"""Counter terms by nested Lie derivatives: Theorem 3.3 of the paper, word for word.

`ξ̃_α = Σ_{i=2}^{α+2} Σ_{k_1+…+k_i=α−i+2} (−1)^i/i! D_{k_1} … D_{k_{i−1}} Ξ_{k_i}` with `Ξ_0 = g`,
`Ξ_k = ξ̃_{k−1}` and the directional derivatives `D_k = Ξ_k · ∇`. The cost grows exponentially with
α: this is the reference for the other methods, and right for α ≤ 2.
"""

from collections.abc import Callable
from math import factorial

import jax
from jaxtyping import PyTree

from ..problem.tree import weighted_sum

Field = Callable[[PyTree], PyTree]


def counter_terms(gradient: Field, params: PyTree, count: int) -> tuple[PyTree, ...]:
    """The series of the equation of motion, `(g, ξ̃_0, …, ξ̃_{count−1})`."""
    fields: list[Field] = [gradient]
    for alpha in range(count):
        fields.append(_next_field(tuple(fields), alpha))
    return tuple(field(params) for field in fields)


def _next_field(fields: tuple[Field, ...], alpha: int) -> Field:
    def field(params: PyTree) -> PyTree:
        orders = range(2, alpha + 3)
        signs = [(-1) ** i / factorial(i) for i in orders]
        return weighted_sum(signs, [_derivatives(fields, i, alpha - i + 2)(params) for i in orders])

    return field


def _derivatives(fields: tuple[Field, ...], length: int, total: int) -> Field:
    """`Σ_{k_1+…+k_length=total} D_{k_1} … D_{k_{length−1}} Ξ_{k_length}` as a vector field."""
    if length == 1:
        return fields[total]

    def field(params: PyTree) -> PyTree:
        terms = [
            jax.jvp(_derivatives(fields, length - 1, total - k), (params,), (fields[k](params),))[1]
            for k in range(total + 1)
        ]
        return weighted_sum([1] * len(terms), terms)

    return field


def gradient_evaluations(count: int) -> int:
    """The cost of `count` counter terms in gradients, each directional derivative counted as two.

    >>> [gradient_evaluations(count) for count in range(4)]
    [1, 4, 23, 141]
    """
    costs = [1]

    def cost(length: int, total: int) -> int:
        if length == 1:
            return costs[total]
        return sum(2 * cost(length - 1, total - k) + costs[k] for k in range(total + 1))

    for alpha in range(count):
        costs.append(sum(cost(i, alpha - i + 2) for i in range(2, alpha + 3)))
    return sum(costs)
