"""Theorem B.1: the terms of the broken conservation law, and that they add up."""

from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo
from counterflow.counter_terms import taylor
from counterflow.symmetries.conservation_law import ConservationLaw, law_with
from invariant import LEARNING_RATE, PARAMS, PROBLEM, SYMMETRIES, WEIGHT_DECAY, exact_rate

ORDERS = range(4)


@cache
def laws_and_rates(order, method):
    """The laws of all symmetries along one flow, and the derivatives of their charges."""
    flow = cf.EquationOfMotion(PROBLEM, LEARNING_RATE, order, method)

    @zoo.jit_quickly
    def together(flow, params):
        velocity, counter = flow.velocity_and_counter(params)
        laws = {name: law_with(flow, s, params, counter) for name, s in SYMMETRIES.items()}
        return laws, {name: exact_rate(s, params, velocity) for name, s in SYMMETRIES.items()}

    return together(flow, PARAMS)


@cache
def counter_terms():
    return cf.counter_terms(PROBLEM, PARAMS, len(ORDERS) - 1)


def products(name, left, right):
    """`left·right` over the layers of a symmetry, the second side of a rescaling with a minus."""
    per_unit = "unit" in name

    def total(leaf, axis):
        product = np.asarray(left[leaf]) * np.asarray(right[leaf])
        return product.sum(1 - axis) if per_unit else product.sum()

    if "rescale" in name:
        return total("first", 1) - total("second", 0)
    return total("scaled", 1) if "scale" in name else total("shifted", 0)


def expected_law(name, order):
    terms = counter_terms()
    xi = {
        leaf: sum(LEARNING_RATE**alpha * np.asarray(terms[alpha][leaf]) for alpha in range(order))
        + np.zeros(PARAMS[leaf].shape)
        for leaf in PARAMS
    }
    if "translation" in name:
        ones = jax.tree.map(np.ones_like, PARAMS)
        decay, counter = products(name, PARAMS, ones), products(name, xi, ones)
        return ConservationLaw(
            -WEIGHT_DECAY * decay, 0 * decay, -LEARNING_RATE * counter, 0 * decay
        )
    decay, counter = products(name, PARAMS, PARAMS), products(name, PARAMS, xi)
    # The generator of a scaling is linear in θ, so that half of each change is the generator's.
    return ConservationLaw(*(2 * [-WEIGHT_DECAY * decay] + 2 * [-LEARNING_RATE * counter]))


@pytest.mark.parametrize("method", ["taylor", "orbit"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_law_is_the_exact_rate_of_the_charge(order, method):
    laws, rates = laws_and_rates(order, method)
    for name, law in laws.items():
        assert law.rate.shape == SYMMETRIES[name].charge(PARAMS).shape
        np.testing.assert_allclose(law.rate, rates[name], rtol=1e-10, err_msg=name)


@pytest.mark.parametrize("name", SYMMETRIES)
@pytest.mark.parametrize("order", ORDERS)
def test_each_term_is_its_formula_with_the_counter_terms(order, name):
    law, _ = laws_and_rates(order, "taylor")
    scale = np.max(np.abs(law[name].rate))
    for field, actual, expected in zip(
        ConservationLaw._fields, law[name], expected_law(name, order), strict=True
    ):
        np.testing.assert_allclose(
            actual, expected, rtol=1e-10, atol=1e-14 * scale, err_msg=f"{field}"
        )


def test_the_counter_terms_of_every_order_matter():
    for name in SYMMETRIES:
        rates = [laws_and_rates(order, "taylor")[0][name].rate for order in ORDERS]
        for lower, higher in pairwise(rates):
            assert np.max(np.abs(higher / lower - 1)) > 1e-7


@pytest.mark.parametrize("name", SYMMETRIES)
def test_the_front_door_gives_the_same(name):
    found = cf.conservation_law(PROBLEM, SYMMETRIES[name], PARAMS, LEARNING_RATE)
    expected = laws_and_rates(1, "taylor")[0][name]
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-16)


def test_gradient_flow_without_weight_decay_conserves():
    free = cf.Problem(PROBLEM.function)
    velocity = cf.GradientFlow(free).velocity(PARAMS)
    for name, symmetry in SYMMETRIES.items():
        size = np.max(np.abs(symmetry.charge(PARAMS)))
        assert np.max(np.abs(exact_rate(symmetry, PARAMS, velocity))) < 1e-15 * size, name


def test_the_terms_of_a_generator_that_is_not_symmetric():
    """A shear, `G = (y, 0)`: `ξ·G = ξ_x·y` and `θ·((ξ·∇)G) = x·ξ_y` are not the same."""
    shear = cf.CustomSymmetry(lambda p, alpha: p | {"x": p["x"] + alpha * p["y"]}, at=0.0)
    flow = cf.EquationOfMotion(cf.Problem(lambda p: 0.0 * p["x"], weight_decay=0.5), 0.1)
    params = {"x": jnp.array(2.0), "y": jnp.array(3.0)}
    counter = {"x": jnp.array(0.7), "y": jnp.array(0.11)}
    law = law_with(flow, shear, params, counter)
    np.testing.assert_allclose(law, [-3.0, -3.0, -0.7 * 3, -0.11 * 2], rtol=1e-14)


def test_the_printed_last_term_is_off():
    """The statement has `−η (ξ·∇)(ξ·G)` where the proof has `−η ξ·G − η θ·((ξ·∇)G)`."""

    def xi(params):
        return taylor.counter_terms(PROBLEM.gradient, params, 1)[1]

    @zoo.jit_quickly
    def printed(params):
        force, change = jax.jvp(xi, (params,), (xi(params),))
        return {
            name: jax.jvp(symmetry.along_generator, (params, force), (force, change))[1]
            for name, symmetry in SYMMETRIES.items()
        }

    literal = printed(PARAMS)
    laws, rates = laws_and_rates(1, "taylor")
    for name, law in laws.items():
        as_printed = law.decay + law.generator_decay - LEARNING_RATE * literal[name]
        assert np.max(np.abs(as_printed / rates[name] - 1)) > 1e-4, name
