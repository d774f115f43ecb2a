"""The order of an equation of motion is the slope of its error against the learning rate."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf


@dataclass(frozen=True)
class Case:
    problem: cf.Problem
    params: Any
    time: float
    # The number of steps to that time for each method: enough for the asymptotic regime.
    taylor: int
    orbit: int


def predator_prey():
    """Lotka–Volterra: not a gradient field. Gradient descent is explicit Euler on it."""

    def field(state):
        prey, predators = state["prey"], state["predators"]
        return {"prey": prey * (predators - 1), "predators": predators * (1.5 - prey)}

    params = {"prey": jnp.array(3.0), "predators": jnp.array(2.0)}
    return Case(cf.Problem.from_gradient(field), params, time=0.8, taylor=40, orbit=120)


def quartic():
    couplings = np.array([[1.0, -0.4, 0.3], [-0.4, 0.5, 0.2], [0.3, 0.2, 1.5]])

    def loss(theta, couplings):
        return jnp.sum(theta**4) / 4 + theta @ couplings @ theta / 2

    problem = cf.Problem(loss, couplings, weight_decay=0.05)
    return Case(problem, jnp.array([0.9, -0.4, 0.7]), time=0.8, taylor=80, orbit=200)


def network():
    """Swish, batch normalization over the whole batch, softmax, weight decay."""

    def loss(params, data):
        inputs, targets = data
        hidden = jax.nn.silu(inputs @ params["hidden"])
        centred = hidden - jnp.mean(hidden, axis=0, keepdims=True)
        normalized = centred / jnp.sqrt(jnp.mean(centred**2, axis=0, keepdims=True))
        outputs = jax.nn.log_softmax(normalized @ params["readout"])
        return -jnp.mean(jnp.sum(targets * outputs, axis=1))

    generator = np.random.default_rng(8)
    data = (generator.normal(size=(12, 3)), np.eye(3)[generator.integers(0, 3, 12)])
    params = {
        "hidden": jnp.asarray(generator.normal(size=(3, 4))),
        "readout": jnp.asarray(generator.normal(size=(4, 3))),
    }
    return Case(cf.Problem(loss, data, weight_decay=0.1), params, time=0.8, taylor=20, orbit=40)


CASES = {"predator-prey": predator_prey(), "quartic": quartic(), "network": network()}


def distances(one, other):
    """The distance of two trajectories at each record."""
    squares = jax.tree.map(
        lambda a, b: jnp.sum((a - b).reshape(len(a), -1) ** 2, axis=1), one.params, other.params
    )
    return np.sqrt(sum(jax.tree.leaves(squares)))


def slope(learning_rates, errors):
    return np.polyfit(np.log(learning_rates), np.log(errors), 1)[0]


# At order 0 both methods are gradient flow.
COMBINATIONS = [
    (name, method, order)
    for name in CASES
    for method, orders in (("taylor", range(5)), ("orbit", range(1, 5)))
    for order in orders
]


@pytest.mark.parametrize(("name", "method", "order"), COMBINATIONS)
def test_slope_is_order_plus_one_at_a_fixed_time_and_plus_two_after_a_step(name, method, order):
    case = CASES[name]
    learning_rates = case.time / (getattr(case, method) * np.array([1.0, 1.5, 2.0]))
    errors = []
    for learning_rate in learning_rates:
        times = [learning_rate, case.time]
        flow = cf.EquationOfMotion(case.problem, learning_rate, order=order, method=method)
        predicted = cf.solve(flow, case.params, times, rtol=1e-13, atol=1e-15)
        measured = cf.solve(cf.GradientDescent(case.problem, learning_rate), case.params, times)
        errors.append(distances(predicted, measured))
    after_a_step, at_a_fixed_time = np.transpose(errors)
    # Far above the solver's own error, which would flatten the slope.
    assert at_a_fixed_time.min() > 1e-12
    assert after_a_step.min() > 2e-14
    assert slope(learning_rates, at_a_fixed_time) == pytest.approx(order + 1, abs=0.1)
    assert slope(learning_rates, after_a_step) == pytest.approx(order + 2, abs=0.1)
