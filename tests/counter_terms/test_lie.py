"""Theorem 3.3 word for word: its first orders are Equations 9 and 10 of the paper."""

import jax
import jax.numpy as jnp
import pytest

import counterflow as cf
import zoo
from counterflow.counter_terms import lie
from counterflow.problem.tree import add_scaled, inner, scaled


def along(field, params, direction):
    """`(direction · ∇) field` at params."""
    return jax.jvp(field, (params,), (direction,))[1]


@pytest.fixture(scope="module")
def network():
    problem, params = zoo.network()
    return problem, params, cf.counter_terms(problem, params, 2, method="lie")


def test_equation_9(network):
    problem, params, (first, _) = network

    @zoo.jit_quickly
    def expected(params):
        return scaled(0.5, along(problem.gradient, params, problem.gradient(params)))

    assert zoo.distance(first, expected(params)) < 1e-14


def test_equation_10(network):
    problem, params, (first, second) = network
    g = problem.gradient

    def xi(params):
        return scaled(0.5, along(g, params, g(params)))

    @zoo.jit_quickly
    def expected(params, first):
        half = scaled(0.5, along(g, params, first))
        return add_scaled(half, 1 / 6, along(xi, params, g(params)))

    assert zoo.distance(second, expected(params, first)) < 1e-14


def test_the_second_counter_term_by_hessians(network):
    # (1/3)(H + λI)² g + (1/12) gᵀ∇H g, with the third derivative along g twice.
    problem, params, (_, second) = network

    @zoo.jit_quickly
    def expected(params):
        g = problem.gradient(params)

        def hessian_times_g(theta):
            return problem.hessian_vector_product(theta, g)

        twice = problem.hessian_vector_product(params, hessian_times_g(params))
        return add_scaled(scaled(1 / 3, twice), 1 / 12, along(hessian_times_g, params, g))

    assert zoo.distance(second, expected(params)) < 1e-14


def quarter_gradient_of_the_squared_norm(problem, params):
    def squared_norm(theta):
        g = problem.gradient(theta)
        return inner(g, g) / 4

    return zoo.jit_quickly(jax.grad(squared_norm))(params)


def test_for_a_loss_the_first_counter_term_is_a_gradient(network):
    problem, params, (first, _) = network
    assert zoo.distance(first, quarter_gradient_of_the_squared_norm(problem, params)) < 1e-14


def test_for_other_fields_it_is_not():
    solved = zoo.predator_prey()
    (first,) = cf.counter_terms(solved.problem, solved.params, 1, method="lie")
    gradient = quarter_gradient_of_the_squared_norm(solved.problem, solved.params)
    assert zoo.distance(first, solved.counter_terms[0]) < 1e-14
    assert zoo.distance(first, gradient) > 0.1


@pytest.mark.parametrize("name", ["quadratic", "non-normal", "predator-prey", "quartic"])
def test_exactly_solved_problems(name):
    solved = zoo.SOLVED[name]()
    terms = cf.counter_terms(solved.problem, solved.params, 3, method="lie")
    assert len(terms) == 3
    for term, expected in zip(terms, solved.counter_terms, strict=False):
        assert zoo.distance(term, expected) < 1e-13


@pytest.mark.parametrize("count", range(4))
def test_the_promised_cost_bounds_the_gradients_evaluated(count):
    calls = []

    def gradient(theta):
        calls.append(1)
        return theta

    jax.eval_shape(lambda theta: lie.counter_terms(gradient, theta, count), jnp.ones(2))
    assert 0 < len(calls) <= lie.gradient_evaluations(count)
