"""Dynamics whose trajectories are known exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import counterflow as cf
from counterflow.data.digits import digits
from counterflow.networks.paper_network import cross_entropy, glorot_uniform

# --- linear fields: everything is a function of one matrix ----------------------------------

WEIGHT_DECAY = 0.1
SYMMETRIC = np.array(
    [[1.2, 0.3, -0.2, 0.1], [0.3, 0.7, 0.4, 0.0], [-0.2, 0.4, -0.3, 0.2], [0.1, 0.0, 0.2, 1.6]]
)
TURNING = SYMMETRIC + np.array(
    [[0, 0.9, 0, -0.4], [-0.9, 0, 0.5, 0], [0, -0.5, 0, 0.7], [0.4, 0, -0.7, 0]]
)
START = np.array([1.0, -2.0, 0.5, 1.5])


def quadratic(theta, matrix):
    return theta @ matrix @ theta / 2


def linear(theta, matrix):
    return matrix @ theta


# The Hessian of a loss is symmetric; the Jacobian of a vector field need not be.
PROBLEMS = {
    "loss": (cf.Problem(quadratic, SYMMETRIC, WEIGHT_DECAY), SYMMETRIC + WEIGHT_DECAY * np.eye(4)),
    "field": (
        cf.Problem.from_gradient(linear, TURNING, WEIGHT_DECAY),
        TURNING + WEIGHT_DECAY * np.eye(4),
    ),
}


def velocity_matrix(matrix, learning_rate, order):
    """`−(M + ηM²/2 + … + η^γ M^{γ+1}/(γ+1))`: the logarithm of a step, cut off."""
    power = np.linalg.matrix_power
    return -sum(learning_rate**m * power(matrix, m + 1) / (m + 1) for m in range(order + 1))


@pytest.mark.parametrize("name", PROBLEMS)
def test_descent_on_a_linear_field_is_a_matrix_power(name):
    problem, matrix = PROBLEMS[name]
    steps = np.array([0, 1, 7, 100])
    trajectory = cf.solve(cf.GradientDescent(problem, 0.05), jnp.asarray(START), 0.05 * steps)
    step = np.eye(4) - 0.05 * matrix
    for k, params in zip(steps, trajectory.params, strict=True):
        np.testing.assert_allclose(params, np.linalg.matrix_power(step, k) @ START, rtol=1e-13)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("order", [None, 0, 1, 4])
def test_flows_on_a_linear_field_are_matrix_exponentials(name, order):
    problem, matrix = PROBLEMS[name]
    times = np.array([0.0, 0.3, 1.0, 1.1, 4.0])
    if order is None:
        flow, generator = cf.GradientFlow(problem), -matrix
    else:
        flow = cf.EquationOfMotion(problem, 0.2, order=order)
        generator = velocity_matrix(matrix, 0.2, order)
    trajectory = cf.solve(flow, jnp.asarray(START), times, rtol=1e-12, atol=1e-14)
    exact = np.stack([scipy.linalg.expm(t * generator) @ START for t in times])
    np.testing.assert_allclose(trajectory.params, exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("method", ["taylor", "orbit"])
def test_the_velocity_tends_to_the_logarithm_of_a_step(name, method):
    problem, matrix = PROBLEMS[name]
    learning_rate = 0.2
    limit = scipy.linalg.logm(np.eye(4) - learning_rate * matrix) / learning_rate @ START
    radius = learning_rate * max(abs(np.linalg.eigvals(matrix)))
    errors = []
    for order in range(0, 10, 3):
        flow = cf.EquationOfMotion(problem, learning_rate, order=order, method=method)
        errors.append(np.linalg.norm(flow.velocity(jnp.asarray(START)) - limit))
    # Like the geometric series whose ratio is the largest eigenvalue of ηM.
    ratios = np.array(errors[1:]) / errors[:-1]
    assert np.all(ratios < radius**3)
    assert errors[-1] < 1e-4 * errors[0]


# --- the paper's network: two layers with a symmetry ----------------------------------------


def paper_problem(weight_decay):
    data = digits()
    data = (jnp.asarray(data.inputs[:40]), jnp.asarray(data.targets[:40]))
    return cf.Problem(cross_entropy, data, weight_decay), glorot_uniform((64, 6, 5, 10), seed=3)


def readout_sums(trajectory):
    """θ_⊥: a shift of all the weights of an input unit does not change the softmax."""
    return np.sum(trajectory.params["readout"], axis=2)


def test_descent_decays_the_translation_invariant_sums_by_one_minus_eta_lambda():
    learning_rate, weight_decay = 0.1, 0.3
    problem, params = paper_problem(weight_decay)
    steps = np.array([0, 1, 10, 100])
    run = cf.solve(cf.GradientDescent(problem, learning_rate), params, learning_rate * steps)
    decay = (1 - learning_rate * weight_decay) ** steps
    sums = readout_sums(run)
    assert np.min(abs(sums[0])) > 1e-2
    np.testing.assert_allclose(sums, decay[:, None] * sums[:1], rtol=1e-11)


@pytest.mark.parametrize(("method", "order"), [("taylor", 0), ("taylor", 1), ("orbit", 3)])
def test_flows_decay_the_translation_invariant_sums_at_the_partial_sums(method, order):
    learning_rate, weight_decay = 0.02, 2.0
    problem, params = paper_problem(weight_decay)
    flow = cf.EquationOfMotion(problem, learning_rate, order=order, method=method)
    run = cf.solve(flow, params, [0.0, 0.25, 0.5], rtol=1e-10, atol=1e-13)
    # −log(1 − ηλ)/η = λ + ηλ²/2 + η²λ³/3 + …, cut off; the next term would change 1e-8 at least.
    x = learning_rate * weight_decay
    rate = sum(x ** (m + 1) / (m + 1) for m in range(order + 1)) / learning_rate
    sums = readout_sums(run)
    np.testing.assert_allclose(sums, np.exp(-rate * run.times)[:, None] * sums[:1], rtol=2e-9)


def test_descent_moves_the_scale_invariant_norm_by_the_exact_recursion():
    learning_rate, weight_decay, steps = 0.1, 0.05, 60
    problem, params = paper_problem(weight_decay)
    loss_only = cf.Problem(problem.function, problem.data)
    times = learning_rate * np.arange(steps + 1)
    run = cf.solve(cf.GradientDescent(problem, learning_rate), params, times)
    squares = np.sum(np.square(run.params["hidden"]), axis=(1, 2))

    @jax.jit
    @jax.vmap
    def squared_gradient_on_the_sphere(params):
        unit = params["hidden"] / jnp.linalg.norm(params["hidden"])
        return jnp.sum(loss_only.gradient({**params, "hidden": unit})["hidden"] ** 2)

    forces = np.asarray(squared_gradient_on_the_sphere(run.params))[:-1]
    pushed = learning_rate**2 * forces / squares[:-1]
    shrunk = (1 - learning_rate * weight_decay) ** 2 * squares[:-1]
    # Both terms matter: neither shrinking nor pushing alone would pass.
    assert np.max(pushed / squares[:-1]) > 1e-4
    np.testing.assert_allclose(squares[1:], shrunk + pushed, rtol=1e-12)
