"""Theorems 5.2 and D.1: a translation-invariant layer's mean and the rest move apart."""

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

TRANSLATIONS = {name: s for name, s in SYMMETRIES.items() if isinstance(s, cf.Translation)}
CASES = [(name, order) for name in TRANSLATIONS for order in (0, 1)]
CASES.append(("translation per unit", 3))


@cache
def velocity_of(order):
    return cf.EquationOfMotion(PROBLEM, LEARNING_RATE, order).velocity(PARAMS)


@cache
def parts(name, order):
    arguments = PROBLEM, TRANSLATIONS[name], PARAMS, LEARNING_RATE, order
    return cf.perpendicular_velocity(*arguments), cf.parallel_velocity(*arguments)


@pytest.mark.parametrize(("name", "order"), CASES)
def test_the_two_parts_are_the_velocity_of_the_layer(name, order):
    perpendicular, parallel = parts(name, order)
    together = jax.tree.map(jnp.add, perpendicular, parallel)
    restricted = TRANSLATIONS[name].selection.restrict(velocity_of(order))
    assert zoo.distance(together, restricted) < 1e-12


@pytest.mark.parametrize(("name", "order"), CASES)
def test_each_part_is_the_velocity_of_its_own(name, order):
    translation = TRANSLATIONS[name]
    for found, part in zip(
        parts(name, order), (translation.perpendicular, translation.parallel), strict=True
    ):
        expected = jax.jvp(part, (PARAMS,), (velocity_of(order),))[1]
        assert zoo.distance(found, expected) < 1e-11


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_they_are_orthogonal(name):
    perpendicular, parallel = parts(name, 1)
    size = np.linalg.norm(flat(perpendicular)) * np.linalg.norm(flat(parallel))
    assert abs(flat(perpendicular) @ flat(parallel)) < 1e-14 * size


@pytest.mark.parametrize("order", [0, 1, 3])
def test_the_mean_decays_whatever_the_loss(order):
    translation = TRANSLATIONS["translation per unit"]
    rate = cf.decay_rate(LEARNING_RATE, WEIGHT_DECAY, order) / LEARNING_RATE
    expected = jax.tree.map(lambda leaf: -rate * leaf, translation.perpendicular(PARAMS))
    assert zoo.distance(parts("translation per unit", order)[0], expected) < 1e-14


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_the_rest_does_not_feel_the_mean(name):
    translation = TRANSLATIONS[name]
    alpha = jnp.linspace(-3.0, 5.0, max(translation.identity(PARAMS).size, 1))
    moved = translation.transform(PARAMS, alpha.reshape(translation.identity(PARAMS).shape))
    assert zoo.distance(moved, PARAMS) > 0.5
    found = cf.parallel_velocity(PROBLEM, translation, moved, LEARNING_RATE, 1)
    assert zoo.distance(found, parts(name, 1)[1]) < 1e-13


# --- by dense matrices, on the paper's network ----------------------------------------------


def test_theorem_d_1_with_the_dense_hessian():
    problem, params = paper_network()
    dense, translation = Dense(problem, params), cf.Translation("readout")
    inside = dense.mask("readout")
    parallel = flat(translation.parallel(params))
    point = parallel + (1 - inside) * np.asarray(dense.theta)
    gradient, hessian = dense.gradient(point), dense.hessian(point)
    half = LEARNING_RATE / 2
    own = inside[:, None] * hessian * inside[None, :]
    outside_force = (1 - inside) * (gradient + WEIGHT_DECAY * point)
    field = inside * gradient

    def operator(vector):
        return (1 + half * WEIGHT_DECAY) * vector + half * own @ vector

    expected = (
        -WEIGHT_DECAY * operator(parallel)
        - operator(field)
        - half * inside * (hessian @ outside_force)
    )
    found = flat(cf.parallel_velocity(problem, translation, params, LEARNING_RATE, 1))
    assert np.linalg.norm(found - expected) < 1e-12 * np.linalg.norm(expected)


# --- the misprint ---------------------------------------------------------------------------


def test_the_general_form_as_printed_is_off():
    """`−λθ_∥ − ∇f(θ_∥) − η(I − P)ξ` needs `∇_A`, `ξ_A`, and `θ_{A^c}` beside `θ_∥`."""

    def loss(params):
        hidden = jax.nn.sigmoid(jnp.sin(jnp.arange(12.0)).reshape(4, 3) @ params["first"])
        logits = hidden @ params["second"]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - logits[:, 0])

    params = {
        "first": 2 * jnp.cos(jnp.arange(6.0)).reshape(3, 2),
        "second": 1 + jnp.sin(jnp.arange(6.0)).reshape(2, 3),
    }
    problem, translation = cf.Problem(loss, weight_decay=WEIGHT_DECAY), cf.Translation("second")
    exact = flat(cf.parallel_velocity(problem, translation, params, LEARNING_RATE, 1))
    dense = Dense(problem, params)
    inside = dense.mask("second")
    projection = np.outer(inside, inside) / inside.sum()
    parallel = flat(translation.parallel(params))
    centred = parallel + (1 - inside) * np.asarray(dense.theta)
    xi = flat(cf.counter_term(problem, params, 0))

    def general(gradient, counter):
        return (
            -WEIGHT_DECAY * parallel - gradient - LEARNING_RATE * (counter - projection @ counter)
        )

    def off(velocity):
        return np.linalg.norm(velocity - exact) / np.linalg.norm(exact)

    whole = dense.gradient(centred)
    assert off(general(inside * whole, inside * xi)) < 1e-12
    assert off(general(dense.gradient(parallel), xi)) > 0.01  # as printed
    assert off(general(inside * dense.gradient(parallel), inside * xi)) > 0.01  # without θ_{A^c}
    assert off(general(whole, inside * xi)) > 0.01  # without ∇_A
    assert off(general(inside * whole, xi)) > 0.005  # without ξ_A


def test_only_invariant_layers():
    for function in (cf.perpendicular_velocity, cf.parallel_velocity):
        with pytest.raises(ValueError, match=r"Translation\('first'\) must leave the loss unchang"):
            function(PROBLEM, cf.Translation("first"), PARAMS, LEARNING_RATE)
