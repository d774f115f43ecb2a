"""ROCK4: its order, its stability and its estimate of stiffness, by measurement."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.problem.tree import distance, norm
from counterflow.solvers import rock4
from counterflow.solvers.rock4 import ROCK4
from counterflow.solvers.rock4_coefficients import RIPPLE, STAGES, coefficients
from zoo import network


def advance(method, function, state, step):
    """One step of the method as its coefficients say, in NumPy; the end and the error estimate."""
    before, here = state, state
    for scale, keep, further in method.recurrence:
        before, here = here, scale * step * function(here) + keep * here + further * before
    a21, a31, a32, a41, a42, a43 = step * method.matrix
    k1 = function(here)
    k2 = function(here + a21 * k1)
    k3 = function(here + a31 * k1 + a32 * k2)
    k4 = function(here + a41 * k1 + a42 * k2 + a43 * k3)
    end = here + step * np.tensordot(method.weights, [k1, k2, k3, k4], 1)
    return end, step * np.tensordot(method.error, [k1, k2, k3, k4, function(end)], 1)


def field(state):
    """A field whose derivatives of all orders meet in its trees."""
    x, y = state
    return np.array([-x * y - 0.3 * x**2, -x * np.sin(y) + x**2])


@pytest.mark.parametrize("stages", [5, 9, 20, 90])
def test_order_four_and_an_estimate_of_order_three(stages):
    method, start = coefficients(stages), np.array([1.0, 0.5])
    ends, estimates = [], []
    for count in (10, 20, 40):
        state, largest = start, 0.0
        for _ in range(count):
            state, error = advance(method, field, state, 0.5 / count)
            largest = max(largest, float(np.linalg.norm(error)))
        ends.append(state)
        estimates.append(largest)
    problem = cf.Problem.from_gradient(lambda z: -jnp.stack(_jax_field(z)))
    exact = cf.solve(cf.GradientFlow(problem), jnp.asarray(start), [0.5], rtol=1e-13).at(0)
    errors = [np.linalg.norm(end - np.asarray(exact)) for end in ends]
    assert np.log2(errors[1] / errors[2]) == pytest.approx(4, abs=0.1)
    # The estimate of one step is of the order after the order of the embedded solution.
    assert np.log2(estimates[1] / estimates[2]) == pytest.approx(4, abs=0.1)
    assert estimates[2] > errors[2]


def _jax_field(state):
    x, y = state
    return -x * y - 0.3 * x**2, -x * jnp.sin(y) + x**2


@pytest.mark.parametrize("stages", STAGES)
def test_stable_as_far_as_it_says_and_not_much_farther(stages):
    method = coefficients(stages)
    assert method.reach == pytest.approx(0.35 * stages**2, rel=0.02 if stages > 20 else 0.33)

    def growth(products):
        return np.abs(advance(method, lambda y: products * y, np.ones_like(products), 1.0)[0])

    inside = -np.linspace(0.01, 1, 20_000) * method.reach
    factors = growth(inside)
    assert factors.max() <= 1
    beyond = np.argmax(factors < 0.5)
    assert factors[beyond:].max() <= RIPPLE + 1e-9
    assert growth(np.array([-1.2 * method.reach]))[0] > 1
    # Some room beside the axis, for spectra that are slightly complex; steps reach 1/1.1 of it.
    assert growth(0.9 * inside[500:] + 0.05j * method.reach / stages).max() <= 1


def test_a_linear_flow_decays_and_agrees_with_its_solution():
    rates = jnp.geomspace(0.1, 2000.0, 60)
    problem = cf.Problem(lambda theta: jnp.sum(rates * theta**2) / 2)
    start = jnp.ones(60)
    times = [0.0, 0.5, 1.0, 2.0, 5.0]
    run = cf.solve(cf.GradientFlow(problem), start, times, rtol=1e-7, solver=ROCK4())
    exact = np.exp(-np.outer(times, rates))
    np.testing.assert_allclose(run.params, exact, atol=1e-5)
    sizes = np.linalg.norm(run.params, axis=1)
    assert np.all(np.diff(sizes) < 0)
    tsit5 = cf.solve(cf.GradientFlow(problem), start, times, rtol=1e-7, solver=diffrax.Tsit5())
    assert run.statistics.solver == "ROCK4"
    assert 4 * run.statistics.gradient_evaluations < tsit5.statistics.gradient_evaluations


def test_agrees_with_dopri8_on_a_network():
    problem, params = network()
    for flow in (cf.GradientFlow(problem), cf.EquationOfMotion(problem, 0.1, 1)):
        exact = cf.solve(flow, params, [3.0], rtol=1e-11, solver=diffrax.Dopri8()).at(0)
        errors = []
        for tolerance in (1e-5, 1e-8):
            found = cf.solve(flow, params, [3.0], rtol=tolerance, solver=ROCK4()).at(0)
            errors.append(float(distance(found, exact) / norm(exact)))
        assert errors[0] < 1e-5
        assert errors[1] < 1e-8


def test_evaluations_are_counted_one_by_one():
    count = 0

    def gradient(theta):
        def called(value):
            nonlocal count
            count += 1
            return value

        shape = jax.ShapeDtypeStruct(theta.shape, theta.dtype)
        return jax.pure_callback(called, shape, jnp.array([1.0, 50.0]) * theta)

    problem = cf.Problem.from_gradient(gradient)
    flow = cf.GradientFlow(problem)
    run = cf.solve(flow, jnp.array([1.0, 1.0]), [0.3, 2.0], rtol=1e-6, solver=ROCK4())
    counted = run.statistics.gradient_evaluations
    # `solve` looks at the field once or twice before it begins.
    assert counted <= count <= counted + 3


def test_the_radius_is_found_at_rest_and_on_complex_spectra():
    rotation = jnp.array([[3.0, 40.0], [-40.0, 3.0]])

    def radius_at(matrix, params):
        velocity = lambda y: -matrix @ y  # noqa: E731
        found = rock4.spectral_radius(
            velocity, params, velocity(params), rock4.noise(params), rock4._FIRST
        )
        return float(found[0])

    assert radius_at(jnp.diag(jnp.array([1.0, 30.0])), jnp.zeros(2)) == pytest.approx(30, rel=0.05)
    assert radius_at(rotation, jnp.array([1.0, 1.0])) == pytest.approx(np.hypot(3, 40), rel=0.05)


def test_a_step_too_long_for_all_methods_is_refused():
    problem = cf.Problem(lambda theta: 1e6 * jnp.sum(theta**2) / 2)
    run = cf.solve(cf.GradientFlow(problem), jnp.ones(2), [0.1], rtol=1e-3, solver=ROCK4())
    assert run.status == cf.Status.COMPLETED
    assert float(jnp.max(jnp.abs(run.at(0)))) < 1e-3
