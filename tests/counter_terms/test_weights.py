"""The exact weights of the velocity: Bernoulli numbers, interpolation, log(1 + Δ)."""

from fractions import Fraction
from math import comb

import pytest

from counterflow.counter_terms.weights import bernoulli, lagrange_polynomial, velocity_weights

# Abramowitz & Stegun, Table 23.2.
BERNOULLI = ("1 -1/2 1/6 0 -1/30 0 1/42 0 -1/30 0 5/66 0 -691/2730").split()

NODE_SETS = [
    (0,),
    (0, 1),
    (-1, 0),
    (-1, 0, 1),
    (-1, 0, 1, 2),
    (-3, -2, -1, 0, 1, 2, 3),
    (0, 1, 2, 3, 4, 5, 6, 7, 8),
    (0, 2, 5),
    (4, -3, 1),
]


def test_bernoulli_numbers_agree_with_the_published_table():
    assert [bernoulli(n) for n in range(13)] == [Fraction(b) for b in BERNOULLI]


@pytest.mark.parametrize("nodes", NODE_SETS, ids=str)
def test_lagrange_polynomials_are_one_at_their_node_and_zero_at_the_others(nodes):
    for index in range(len(nodes)):
        coefficients = lagrange_polynomial(nodes, index)
        values = [sum(c * node**k for k, c in enumerate(coefficients)) for node in nodes]
        assert values == [int(i == index) for i in range(len(nodes))]


@pytest.mark.parametrize("nodes", NODE_SETS, ids=str)
def test_the_functional_of_a_monomial_is_its_bernoulli_number(nodes):
    weights = velocity_weights(nodes)
    assert all(isinstance(weight, Fraction) for weight in weights)
    for degree in range(len(nodes)):
        total = sum(w * Fraction(node) ** degree for w, node in zip(weights, nodes, strict=True))
        assert total == Fraction(BERNOULLI[degree])


@pytest.mark.parametrize("nodes", NODE_SETS, ids=str)
def test_the_weights_recover_the_velocity_of_a_polynomial_orbit(nodes):
    # θ(τ) = τ^m has the steps −η g(τ) = θ(τ + 1) − θ(τ), of degree m − 1, and the velocity 0 or 1.
    weights = velocity_weights(nodes)
    for degree in range(1, len(nodes) + 1):
        steps = [Fraction(node + 1) ** degree - Fraction(node) ** degree for node in nodes]
        velocity = sum(w * step for w, step in zip(weights, steps, strict=True))
        assert velocity == int(degree == 1)


@pytest.mark.parametrize("order", range(11))
def test_forward_nodes_give_the_logarithm_of_the_forward_difference(order):
    expected = [Fraction(0)] * (order + 1)
    for m in range(1, order + 2):  # (−1)^{m+1}/m Δ^{m−1}
        for j in range(m):
            sign = (-1) ** (m - 1 - j)
            expected[j] += Fraction((-1) ** (m + 1), m) * sign * comb(m - 1, j)
    assert list(velocity_weights(tuple(range(order + 1)))) == expected


@pytest.mark.parametrize("half", range(1, 5))
def test_the_weights_add_up_to_one_and_centred_ones_stay_small(half):
    nodes = tuple(range(-half, half + 1))
    assert sum(velocity_weights(nodes)) == 1
    # The forward weights grow like 2^n; the centred ones are why high orders keep their digits.
    assert sum(abs(w) for w in velocity_weights(nodes)) < 3
    assert sum(abs(w) for w in velocity_weights(tuple(range(2 * half + 1)))) > 3
