"""Theorem C.1: how a scale-invariant layer turns, and by which angle."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo
from invariant import (
    LEARNING_RATE,
    PARAMS,
    PROBLEM,
    SYMMETRIES,
    WEIGHT_DECAY,
    Dense,
    flat,
    paper_network,
)

SCALES = {name: s for name, s in SYMMETRIES.items() if isinstance(s, cf.Scale)}

# --- any order ------------------------------------------------------------------------------


@cache
def velocity_of(order):
    return cf.EquationOfMotion(PROBLEM, LEARNING_RATE, order).velocity(PARAMS)


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("order", range(4))
def test_the_velocity_is_that_of_the_direction(order, name):
    scale = SCALES[name]
    found = cf.direction_velocity(PROBLEM, scale, PARAMS, LEARNING_RATE, order)
    expected = jax.jvp(scale.direction, (PARAMS,), (velocity_of(order),))[1]
    assert zoo.distance(found, expected) < 1e-10
    # On the sphere, and nothing outside of the layer.
    outward = scale.selection.sum(jax.tree.map(jnp.multiply, found, scale.direction(PARAMS)))
    assert np.max(np.abs(outward)) < 1e-15
    assert all(np.all(found[leaf] == 0) for leaf in PARAMS if leaf != "scaled")


def test_the_orbit_gives_the_velocity_of_its_own_flow():
    scale = SCALES["scale per unit"]
    flow = cf.EquationOfMotion(PROBLEM, LEARNING_RATE, 2, "orbit")
    found = cf.direction_velocity(PROBLEM, scale, PARAMS, LEARNING_RATE, 2, "orbit")
    expected = jax.jvp(scale.direction, (PARAMS,), (flow.velocity(PARAMS),))[1]
    assert zoo.distance(found, expected) < 1e-10


# --- the effective learning rate, on the paper's network ------------------------------------

NETWORK, WEIGHTS = paper_network()
DENSE = Dense(NETWORK, WEIGHTS)
THETA = np.asarray(DENSE.theta)
GRADIENT, HESSIAN = DENSE.gradient(THETA), DENSE.hessian(THETA)
LAYERS = {"whole": cf.Scale("hidden"), "per unit": cf.Scale("hidden", axis=1)}


def masks(name):
    """The layer as a whole, or each of its units as a layer."""
    if name == "whole":
        return [DENSE.mask("hidden")]
    found = []
    for unit in range(WEIGHTS["hidden"].shape[1]):
        marked = {key: np.zeros(leaf.shape) for key, leaf in WEIGHTS.items()}
        marked["hidden"][:, unit] = 1
        found.append(flat(marked))
    return found


class Layer:
    """What Theorem C.1 says of one layer, by dense matrices."""

    def __init__(self, inside):
        self.inside, outside = inside, 1 - inside
        self.radius = np.linalg.norm(inside * THETA)
        self.direction = inside * THETA / self.radius
        self.sphere = self.direction + outside * THETA
        self.field = inside * DENSE.gradient(self.sphere)
        half = LEARNING_RATE / 2
        force = outside * (GRADIENT + WEIGHT_DECAY * THETA)
        self.parts = [
            self.field,
            half * self.own(HESSIAN) @ self.field,
            half * inside * (DENSE.hessian(self.sphere) @ force),
            half / self.radius * self.direction * ((inside * GRADIENT) @ self.field),
        ]

    def own(self, hessian):
        """`H_A`, the block of the layer."""
        return self.inside[:, None] * hessian * self.inside[None, :]

    def velocity(self, parts):
        return -sum(parts) / self.radius**2


@cache
def effective(name):
    return cf.effective_learning_rate(NETWORK, LAYERS[name], WEIGHTS, LEARNING_RATE)


@pytest.mark.parametrize("name", LAYERS)
def test_each_part_by_the_dense_hessian(name):
    layers = [Layer(inside) for inside in masks(name)]
    for index, part in enumerate(effective(name)):
        expected = sum(layer.velocity([layer.parts[index]]) for layer in layers)
        assert np.linalg.norm(flat(part) - expected) < 1e-10 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", LAYERS)
def test_the_four_parts_are_the_velocity(name):
    scale = LAYERS[name]
    velocity = cf.EquationOfMotion(NETWORK, LEARNING_RATE, 1).velocity(WEIGHTS)
    expected = jax.jvp(scale.direction, (WEIGHTS,), (velocity,))[1]
    found = effective(name).velocity
    assert zoo.distance(found, expected) < 1e-10
    outward = flat(found) @ flat(scale.direction(WEIGHTS))
    assert abs(outward) < 1e-14 * np.linalg.norm(flat(found))
    # No part is idle.
    for part in effective(name):
        assert np.linalg.norm(flat(part)) > 1e-4 * np.linalg.norm(flat(found))


def off(layer, parts):
    exact = layer.velocity(layer.parts)
    return np.linalg.norm(layer.velocity(parts) - exact) / np.linalg.norm(exact)


def test_theorem_c_1_needs_one_over_r_in_its_last_part():
    layer = Layer(DENSE.mask("hidden"))
    first, second, third, fourth = layer.parts
    assert off(layer, [first, second, third, layer.radius * fourth]) > 1e-4


def test_theorem_c_1_needs_the_hessian_at_theta():
    layer = Layer(DENSE.mask("hidden"))
    first, _, third, fourth = layer.parts
    at_direction = layer.own(DENSE.hessian(layer.sphere)) @ layer.field * LEARNING_RATE / 2
    assert off(layer, [first, at_direction, third, fourth]) > 1e-4


def test_theorem_c_1_needs_the_rest_of_the_network():
    """`f(θ̂_A)` as printed is not even defined here: the normalization divides by zero."""
    inside = DENSE.mask("hidden")
    layer = Layer(inside)
    with np.errstate(invalid="ignore"):
        assert np.all(np.isnan(DENSE.gradient(layer.direction)[inside > 0]))
    nearly = inside * DENSE.gradient(layer.direction + 1e-3 * (1 - inside) * THETA)
    gradient_flow = layer.velocity([layer.field])
    error = np.linalg.norm(layer.velocity([nearly]) - gradient_flow)
    assert error > 1e-2 * np.linalg.norm(gradient_flow)


def test_theorem_c_1_needs_the_layers_part_of_the_counter_term():
    """As printed, `ξ` in place of `ξ_A` would make the direction leave the layer."""
    xi = flat(cf.counter_term(NETWORK, WEIGHTS, 0))
    layer = Layer(DENSE.mask("hidden"))
    turned = LEARNING_RATE / layer.radius * ((layer.direction @ xi) * layer.direction - xi)
    printed = layer.velocity([layer.field]) + turned
    exact = layer.velocity(layer.parts)
    assert np.linalg.norm(printed - exact) > 1e-2 * np.linalg.norm(exact)
    assert np.linalg.norm(layer.inside * printed - exact) < 1e-12 * np.linalg.norm(exact)


# --- angles ---------------------------------------------------------------------------------


def test_an_angle_is_the_inverse_cosine():
    scale = SCALES["scale per unit"]
    other = PARAMS | {"scaled": PARAMS["scaled"] + jnp.sin(jnp.arange(8.0)).reshape(2, 4)}
    a, b = np.asarray(PARAMS["scaled"]), np.asarray(other["scaled"])
    cosine = np.sum(a * b, 0) / np.sqrt(np.sum(a**2, 0) * np.sum(b**2, 0))
    np.testing.assert_allclose(
        cf.angular_update(scale, PARAMS, other), np.arccos(cosine), rtol=1e-12
    )
    whole = np.sum(a * b) / np.sqrt(np.sum(a**2) * np.sum(b**2))
    found = cf.angular_update(SCALES["scale"], PARAMS, other)
    np.testing.assert_allclose(found, np.arccos(whole), rtol=1e-12)


@pytest.mark.parametrize("angle", [1e-9, 1e-5, 0.3, 1.5, 3.0])
def test_small_angles_keep_their_digits(angle):
    before = jnp.array([2.0, 0.0])
    after = 5.0 * jnp.array([np.cos(angle), np.sin(angle)])
    found = cf.angular_update(cf.Scale(""), before, after)
    np.testing.assert_allclose(found, angle, rtol=1e-13)
    if angle == 1e-9:  # where the inverse cosine has none
        assert np.arccos(np.cos(angle)) != pytest.approx(angle, rel=0.5)


def test_no_move_no_angle():
    assert cf.angular_update(SCALES["scale"], PARAMS, PARAMS) == 0


@pytest.mark.parametrize("name", SCALES)
def test_the_angle_of_one_step_of_descent(name):
    """`tan Δ = η‖∇_A f‖ / ((1 − ηλ) r)`: the gradient is orthogonal to the layer."""
    scale = SCALES[name]
    after = cf.GradientDescent(PROBLEM, LEARNING_RATE).step(PARAMS)
    force = np.asarray(PROBLEM.loss_gradient(PARAMS)["scaled"])
    size = np.sqrt(np.sum(force**2, axis=0 if "unit" in name else None))
    kept = (1 - LEARNING_RATE * WEIGHT_DECAY) * scale.radius(PARAMS)
    angle = cf.angular_update(scale, PARAMS, after)
    np.testing.assert_allclose(np.tan(angle), LEARNING_RATE * size / kept, rtol=1e-12)


def test_the_angle_between_times_along_a_flow():
    """`Δ(t)` of a flow against `Δ_k` of descent: order 2 is closer than gradient flow."""
    plane = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=WEIGHT_DECAY)
    start, times = jnp.array([0.6, 0.8]), LEARNING_RATE * np.array([10, 11])

    def angle(dynamics, **options):
        before, after = cf.solve(dynamics, start, times, **options).params
        return float(cf.angular_update(cf.Scale(""), before, after))

    exact = angle(cf.GradientDescent(plane, LEARNING_RATE))
    errors = [
        abs(angle(cf.EquationOfMotion(plane, LEARNING_RATE, order), rtol=1e-9) - exact)
        for order in (0, 2)
    ]
    assert errors[0] > 1e-3 * exact
    assert errors[1] < 0.02 * errors[0]
