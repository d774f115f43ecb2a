"""The velocity from gradients alone, against the exact truncation and its own definition."""

from functools import cache, partial
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo
from counterflow.counter_terms import orbit
from counterflow.problem.tree import add_scaled, norm, scaled, weighted_sum

ORDERS = range(5)


@cache
def problem_and_series(name):
    """A problem, params and the exact series `(g, ξ̃_0, …, ξ̃_3)`."""
    if name == "network":
        problem, params = zoo.network()
        terms = zoo.jit_quickly(lambda p: cf.counter_terms(problem, p, 4))(params)
    else:
        solved = zoo.predator_prey()
        problem, params, terms = solved.problem, solved.params, solved.counter_terms[:4]
    return problem, params, (problem.gradient(params), *terms)


@cache
def compiled(name, order):
    problem, _, _ = problem_and_series(name)
    return zoo.jit_quickly(partial(orbit.velocity, problem.gradient, order=order))


def exact_velocity(series, learning_rate, order):
    return weighted_sum([-(learning_rate**k) for k in range(order + 1)], series[: order + 1])


@pytest.mark.parametrize("order", ORDERS[1:])
@pytest.mark.parametrize("name", ["network", "predator-prey"])
def test_it_differs_from_the_exact_truncation_by_one_order_more(name, order):
    _, params, series = problem_and_series(name)
    learning_rates = 2.0 ** -np.arange(6.0, 10.0) * (2 if order > 3 else 1)
    errors = [
        float(
            norm(
                add_scaled(
                    compiled(name, order)(params, learning_rate),
                    -1,
                    exact_velocity(series, learning_rate, order),
                )
            )
        )
        for learning_rate in learning_rates
    ]
    assert zoo.slope(learning_rates, errors) == pytest.approx(order + 1, abs=0.1)


@pytest.mark.parametrize("name", ["network", "predator-prey"])
def test_at_order_zero_it_is_gradient_flow(name):
    _, params, series = problem_and_series(name)
    assert zoo.distance(compiled(name, 0)(params, 0.3), scaled(-1.0, series[0])) < 1e-15


@pytest.mark.parametrize("order", [1, 3, 7])
@pytest.mark.parametrize("name", ["network", "predator-prey"])
def test_it_is_the_logarithm_of_the_forward_difference(name, order):
    problem, params, _ = problem_and_series(name)
    learning_rate = 0.05
    step = jax.jit(lambda point: add_scaled(point, -learning_rate, problem.gradient(point)))
    points = [params]
    for _ in range(order + 1):
        points.append(step(points[-1]))
    differences = [
        weighted_sum([(-1.0) ** (m - j) * comb(m, j) for j in range(m + 1)], points[: m + 1])
        for m in range(1, order + 2)
    ]
    signs = [(-1) ** (m + 1) / m / learning_rate for m in range(1, order + 2)]
    expected = weighted_sum(signs, differences)
    assert zoo.distance(compiled(name, order)(params, learning_rate), expected) < 1e-11


def test_round_off_does_not_grow_when_the_learning_rate_vanishes():
    # At η = 1e-6, n = 8: only ξ̃_0 … ξ̃_2 exceed rounding, so the exact series is known to it.
    # Δ^mθ/η would lose six digits.
    _, params, series = problem_and_series("network")
    learning_rate, order = 1e-6, 7
    velocity = compiled("network", order)(params, learning_rate)
    assert zoo.distance(velocity, exact_velocity(series, learning_rate, 4)) < 3e-14


@pytest.mark.parametrize("learning_rate", [0.1, 0.5])
def test_difference_sizes_of_a_quadratic_are_powers_of_its_matrix(learning_rate):
    solved = zoo.quadratic()
    sizes = orbit.difference_sizes(solved.problem.gradient, solved.params, learning_rate, 5)
    gradient = np.asarray(solved.problem.gradient(solved.params))
    matrix = learning_rate * (zoo.symmetric_matrix() + 0.25 * np.eye(5))
    expected = [
        np.linalg.norm(np.linalg.matrix_power(matrix, m) @ gradient) / (m + 1) for m in range(6)
    ]
    np.testing.assert_allclose(sizes, expected, rtol=1e-12, atol=1e-13)
    # … which is η^m ‖ξ̃_{m−1}‖.
    terms = [learning_rate ** (m + 1) * np.linalg.norm(solved.counter_terms[m]) for m in range(5)]
    np.testing.assert_allclose(sizes[1:], terms, rtol=1e-12, atol=1e-13)


def test_difference_sizes_of_a_tree_are_norms_of_the_whole():
    problem, params, (gradient, first, *_) = problem_and_series("network")
    sizes = jax.jit(lambda p: orbit.difference_sizes(problem.gradient, p, 1e-4, 2))(params)
    assert sizes.shape == (3,)
    assert sizes[0] == pytest.approx(float(norm(gradient)), rel=1e-14)
    assert sizes[1] == pytest.approx(1e-4 * float(norm(first)), rel=1e-2)


@pytest.mark.parametrize("order", [0, 1, 4])
def test_it_needs_one_gradient_more_than_its_order(order):
    calls = []

    def gradient(theta):
        jax.debug.callback(lambda: calls.append(1))
        return theta**3

    jax.block_until_ready(orbit.velocity(gradient, jnp.ones(2), 0.1, order))
    jax.effects_barrier()
    assert len(calls) == order + 1


def test_the_tail_of_a_quadratic_is_what_the_velocity_leaves_out():
    # For g = λθ the differences are a geometric-like series: Σ_{m>n} (ηλ)^m/m, times λθ.
    curvature, theta, learning_rate, order = 2.0, 1.5, 0.1, 2
    velocity, tail = orbit.velocity_and_tail(
        lambda point: curvature * point, jnp.array(theta), learning_rate, order
    )
    exact = np.log1p(-learning_rate * curvature) / learning_rate * theta
    assert float(tail) == pytest.approx(abs(float(velocity) - exact), rel=0.05)


def test_the_tail_of_a_series_that_does_not_shrink_is_bounded():
    _, tail = orbit.velocity_and_tail(lambda point: 3.0 * point, jnp.array(1.0), 1.0, 2)
    assert float(tail) == pytest.approx(20 * 3.0 * 3**3 / 4)
    _, tail = orbit.velocity_and_tail(lambda point: 0.0 * point, jnp.array(1.0), 1.0, 2)
    assert float(tail) == 0
