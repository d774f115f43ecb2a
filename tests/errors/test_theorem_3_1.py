"""The recursion of Theorem 3.1, exact along solved flows, and what the paper computes with it.

e_{k+1} − e_k = −η (g(θ(kη)) − g(θ(kη) − e_k)) + Λ(θ(kη)),
Λ(θ(kη)) = η² ∫_0^1 θ̈(η(k + s)) (1 − s) ds − η² ξ(θ(kη)).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo
from counterflow.problem.tree import add_scaled, scaled

PREY = zoo.predator_prey()
# Gauss–Legendre quadrature on [0, 1]: exact for polynomials of degree 11.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(6)
NODES, WEIGHTS = (1 + NODES) / 2, WEIGHTS / 2


def solve_between_steps(flow, steps):
    """The flow's params at the steps, and at the nodes of the quadrature after each of them."""
    offsets = np.concatenate([[0.0], NODES])
    grid = np.arange(steps)[:, None] + offsets[None]
    times = float(flow.learning_rate) * np.append(grid.ravel(), steps)
    points = np.asarray(cf.solve(flow, PREY.params, times, rtol=1e-13, atol=1e-15).params)
    cells = points[:-1].reshape(steps, len(offsets), 2)
    return np.append(cells[:, 0], points[-1:], axis=0), cells[:, 1:]


@zoo.jit_quickly
def local_error(flow, at_step, at_nodes):
    """Λ: the flow's acceleration, less the counter term that is to cancel it."""

    def acceleration(params):
        return jax.jvp(flow.velocity, (params,), (flow.velocity(params),))[1]

    eta = flow.learning_rate
    weights = jnp.asarray(WEIGHTS * (1 - NODES))
    integral = weights @ jax.vmap(acceleration)(at_nodes)
    terms = cf.counter_terms(flow.problem, at_step, flow.order)
    counter_term = sum((eta**alpha * term for alpha, term in enumerate(terms)), 0 * at_step)
    return eta**2 * (integral - counter_term)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_recursion_is_exact_step_by_step_and_in_total(order):
    learning_rate, steps = 0.05, 30
    flow = cf.EquationOfMotion(PREY.problem, learning_rate, order)
    params, nodes = solve_between_steps(flow, steps)
    local = np.array([local_error(flow, a, b) for a, b in zip(params, nodes, strict=False)])
    descent = cf.GradientDescent(PREY.problem, learning_rate)
    times = learning_rate * np.arange(steps + 1)
    errors = params - np.asarray(cf.solve(descent, PREY.params, times).params)
    gradient = jax.jit(PREY.problem.gradient)

    def next_error(k, error):
        returned = gradient(params[k]) - gradient(params[k] - error)
        return error - learning_rate * np.asarray(returned) + local[k]

    rounding = 1e-13 * np.linalg.norm(params[0])
    predicted = np.zeros(2)
    for k in range(steps):
        one_step = next_error(k, errors[k])
        np.testing.assert_allclose(one_step, errors[k + 1], rtol=0, atol=rounding)
        predicted = next_error(k, predicted)
    np.testing.assert_allclose(predicted, errors[-1], rtol=0, atol=3 * rounding)
    # What the paper drops is neither rounding nor small against the error at the end.
    dropped = np.linalg.norm(np.sum(local, axis=0) - errors[-1])
    assert dropped > 0.2 * np.linalg.norm(errors[-1]) > 1e6 * rounding


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_local_error_tends_to_the_first_counter_term_left_out(order):
    # Corollary 4.1.
    learning_rates = 0.04 / np.array([1.0, 2.0, 4.0])
    mismatches = []
    for learning_rate in learning_rates:
        flow = cf.EquationOfMotion(PREY.problem, learning_rate, order)
        params, nodes = solve_between_steps(flow, 1)
        local = np.asarray(local_error(flow, params[0], nodes[0]))
        limit = PREY.counter_terms[order]
        mismatches.append(zoo.distance(local / learning_rate ** (order + 2), limit))
    assert zoo.slope(learning_rates, mismatches) == pytest.approx(1, abs=0.1)
    assert mismatches[-1] < 0.1


def test_the_papers_finite_difference_loses_half_of_the_digits():
    # Appendix E: (H + λI)g by central differences with ε = 1e-7, two gradients, as many as the
    # exact product costs.
    problem, params = zoo.network()
    gradient = zoo.jit_quickly(problem.gradient)
    direction = gradient(params)
    exact = zoo.jit_quickly(problem.hessian_vector_product)(params, direction)

    def mismatch(epsilon):
        ahead, behind = (gradient(add_scaled(params, s * epsilon, direction)) for s in (1, -1))
        return zoo.distance(scaled(1 / (2 * epsilon), add_scaled(ahead, -1, behind)), exact)

    sizes = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9]
    mismatches = [mismatch(epsilon) for epsilon in sizes]
    papers, best = mismatches[sizes.index(1e-7)], min(mismatches)
    assert 1e-10 < papers < 1e-7
    assert sizes[mismatches.index(best)] == 1e-5
    assert best < papers / 10
    # For a larger ε it is truncation, which falls like ε²; for a smaller one rounding, like 1/ε.
    assert zoo.slope(sizes[:4], mismatches[:4]) == pytest.approx(2, abs=0.1)
    assert zoo.slope(sizes[-3:], mismatches[-3:]) == pytest.approx(-1, abs=0.3)
