"""The method for many steps of descent at once: its order conditions by brute force, its order."""

from itertools import combinations_with_replacement
from math import comb

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.solvers.multirevolution import STAGES, coefficients, leap
from zoo import distance, slope

COUNTS = [10, 37, 1000]
method_for = jax.jit(coefficients)


# --- order conditions -----------------------------------------------------------------------


def rooted_trees(nodes):
    """All rooted trees with so many nodes, each as the sorted tuple of the trees at its root."""

    def forests(total, largest):
        if total == 0:
            return {()}
        found = set()
        for size in range(1, min(total, largest) + 1):
            for many in range(1, total // size + 1):
                for chosen in combinations_with_replacement(rooted_trees(size), many):
                    rest = forests(total - many * size, size - 1)
                    found |= {tuple(sorted(chosen + other)) for other in rest}
        return found

    return sorted(forests(nodes - 1, nodes - 1))


TREES = [tree for nodes in range(1, 6) for tree in rooted_trees(nodes)]
UP_TO_FOUR = 8


def test_there_are_seventeen_rooted_trees():
    assert [len(rooted_trees(nodes)) for nodes in range(1, 6)] == [1, 1, 2, 4, 9]


def stage_weights(tree, apply, ones):
    """`Φ_i(τ) = Π_k Σ_j a_ij Φ_j(τ_k)` of a tree τ with the trees `τ_k` at its root."""
    product = ones
    for child in tree:
        product = product * apply(stage_weights(child, apply, ones))
    return product


def elementary_weights(matrix, weights):
    """`Σ_i b_i Φ_i(τ)` of every tree."""
    ones = np.ones(len(weights))
    return np.array([weights @ stage_weights(tree, matrix.__matmul__, ones) for tree in TREES])


def weights_of_descent(count):
    """The same for steps of descent, a method of so many stages: all `a_ij` and `b_i` are `1/N`."""

    def sums_before(values):
        return (np.cumsum(values) - values) / count

    return np.array([np.mean(stage_weights(tree, sums_before, np.ones(count))) for tree in TREES])


def seven_stages(method):
    """The matrix with the seventh stage, the end of the step."""
    return np.pad(np.vstack([method.matrix, method.weights]), ((0, 0), (0, 1)))


@pytest.mark.parametrize("count", COUNTS)
def test_all_order_conditions_of_steps_of_descent_hold_up_to_order_five(count):
    method = method_for(float(count))
    found = elementary_weights(np.asarray(method.matrix), np.asarray(method.weights))
    np.testing.assert_allclose(found, weights_of_descent(count), rtol=0, atol=1e-13)
    assert np.all(np.triu(method.matrix) == 0)  # the method is explicit


@pytest.mark.parametrize("count", COUNTS)
def test_the_estimate_of_the_error_sees_order_five_and_nothing_below(count):
    method = method_for(float(count))
    found = elementary_weights(seven_stages(method), np.asarray(method.error))
    assert abs(found[:UP_TO_FOUR]).max() < 1e-13
    assert abs(found[UP_TO_FOUR:]).max() > 1e-4


def test_of_infinitely_many_steps_it_is_dormand_and_princes_method():
    method, classical = method_for(1e15), diffrax.Dopri5().tableau
    for row, expected in zip(method.matrix[1:], classical.a_lower[: STAGES - 1], strict=True):
        np.testing.assert_allclose(row[: len(expected)], expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(method.weights, classical.b_sol[:STAGES], rtol=1e-12, atol=1e-13)
    # The embedded weights are theirs; those of diffrax make two thirds of their estimate.
    scaled = -1.5 * np.asarray(classical.b_error)
    np.testing.assert_allclose(method.error, scaled, rtol=1e-12, atol=1e-13)
    embedded = [5179 / 57600, 0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40]
    expected = embedded - np.append(method.weights, 0)
    np.testing.assert_allclose(method.error, expected, rtol=1e-12, atol=1e-13)


# --- leaps ----------------------------------------------------------------------------------


def gradient(params):
    """A field of two parameters whose derivatives of all orders meet in its trees."""
    x, y = params["x"], params["y"]
    return {"x": 2 * jnp.sin(y) + x * y, "y": 2 * jnp.cos(x) * y - x}


START = {"x": jnp.array(1.0), "y": jnp.array(0.5)}


@jax.jit
def descended(learning_rate, count):
    def step(_, params):
        return jax.tree.map(lambda a, b: a - learning_rate * b, params, gradient(params))

    return jax.lax.fori_loop(0, count, step, START)


@jax.jit
def leapt(learning_rate, count):
    return leap(gradient, START, gradient(START), learning_rate, count)


def error_and_estimate(length, count):
    """The error of a leap and its estimate, as vectors."""
    end, _, estimate = leapt(length / count, count)
    truth = descended(length / count, count)
    names = ("x", "y")
    return np.array([[end[n] - truth[n] for n in names], [estimate[n] for n in names]])


@pytest.mark.parametrize("count", [50, 200])
def test_a_leap_is_wrong_in_order_six_and_its_estimate_in_order_five(count):
    lengths = 0.1 / 2 ** np.arange(4)
    forth = np.array([error_and_estimate(length, count) for length in lengths])
    back = np.array([error_and_estimate(-length, count) for length in lengths])
    # The coefficient of order six is small, as Dormand and Prince wanted it. Leaps forth and back
    # together show it without order seven, and that of order five of the estimate without six.
    errors = np.linalg.norm(forth[:, 0] + back[:, 0], axis=1)
    estimates = np.linalg.norm(forth[:, 1] - back[:, 1], axis=1)
    assert slope(lengths, errors) == pytest.approx(6, abs=0.1)
    assert slope(lengths, estimates) == pytest.approx(5, abs=0.1)
    assert np.all(np.linalg.norm(forth[:, 0], axis=1) < np.linalg.norm(forth[:, 1], axis=1))


def test_a_leap_also_returns_the_gradient_at_its_end():
    end, there, _ = leapt(0.01, 30)
    assert distance(there, gradient(end)) < 1e-14
    assert distance(there, gradient(START)) > 0.1


def test_a_leap_takes_six_gradients():
    taken = []

    def counted(params):
        taken.append(params)
        return gradient(params)

    jax.eval_shape(lambda start: leap(counted, start, gradient(start), 0.01, 30), START)
    assert len(taken) == STAGES == 6


@pytest.mark.parametrize("count", COUNTS)
def test_a_linear_leap_is_the_binomial_series_of_descent_up_to_the_fifth_power(count):
    rates = np.array([0.1, 0.5, 1.0, -0.7])
    length = 0.3
    end, _, _ = jax.jit(leap, static_argnums=0)(
        lambda theta: rates * theta, jnp.ones(4), jnp.asarray(rates), length / count, count
    )
    # The stability polynomial has degree six, and all powers of (1 + z/N)^N but the sixth.
    method, z = method_for(float(count)), -length * rates
    powers = [
        method.weights @ np.linalg.matrix_power(method.matrix, k) @ np.ones(6) for k in range(6)
    ]
    np.testing.assert_allclose(end, np.polyval([*powers[::-1], 1.0], z), rtol=1e-13)
    binomial = [comb(count, k) / count**k for k in range(1, 6)]
    np.testing.assert_allclose(powers[:5], binomial, rtol=0, atol=1e-14)
    left = np.asarray(end) - (1 + z / count) ** count
    assert np.all(abs(left) < 1e-3 * abs(z) ** 6 + 1e-15)
