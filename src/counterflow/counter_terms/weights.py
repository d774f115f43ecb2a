"""The exact weights that turn an orbit into its velocity: the logarithm of one step.

If `θ(τ)` interpolates an orbit, `θ(τ + 1) = θ(τ) − η g(θ(τ))`, then the Euler–Maclaurin formula
gives its velocity from the gradients along it, `dθ/dτ = −η Σ_k (B_k / k!) (d/dτ)^k g(θ(τ))` with
Bernoulli numbers `B_k` (`B_1 = −1/2`). Gradients at `n + 1` nodes determine the polynomial of
degree `n` through them, and with it the sum. For the nodes `0, 1, …, n` this is the logarithm
`log(1 + Δ) = Δ − Δ²/2 + Δ³/3 − …` of the forward difference.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import comb


@cache
def bernoulli(n: int) -> Fraction:
    """The Bernoulli number `B_n`, with `B_1 = −1/2`.

    >>> [str(bernoulli(n)) for n in range(5)]
    ['1', '-1/2', '1/6', '0', '-1/30']
    """
    if n == 0:
        return Fraction(1)
    return -sum((comb(n + 1, k) * bernoulli(k) for k in range(n)), Fraction(0)) / (n + 1)


def lagrange_polynomial(nodes: Sequence[int], index: int) -> list[Fraction]:
    """The coefficients of the polynomial that is one at a node and zero at the others."""
    coefficients = [Fraction(1)]
    for other, node in enumerate(nodes):
        if other == index:
            continue
        scale = Fraction(1, nodes[index] - node)
        raised = [Fraction(0), *coefficients]
        lowered = [*coefficients, Fraction(0)]
        coefficients = [scale * (a - node * b) for a, b in zip(raised, lowered, strict=True)]
    return coefficients


@cache
def velocity_weights(nodes: tuple[int, ...]) -> tuple[Fraction, ...]:
    """The weights `w_j` with `dθ/dt = −Σ_j w_j g(θ_j)`, exact for polynomials through the nodes.

    Two forward nodes give `g + ½ η (g·∇)g`, the paper's counter term, up to higher orders:

    >>> [str(w) for w in velocity_weights((0, 1))]
    ['3/2', '-1/2']
    """
    return tuple(
        sum(
            (bernoulli(k) * c for k, c in enumerate(lagrange_polynomial(nodes, index))),
            Fraction(0),
        )
        for index in range(len(nodes))
    )
