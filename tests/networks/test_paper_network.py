"""The paper's network has the symmetries that the paper uses, and the initialization it names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.data.digits import digits
from counterflow.networks.paper_network import (
    cross_entropy,
    glorot_uniform,
    logits,
    second_moment,
)

DATA = tuple(jnp.asarray(array[:40]) for array in (digits().inputs, digits().targets))
PARAMS = glorot_uniform((64, 8, 6, 10))


def test_hidden_layer_is_scale_invariant_per_unit():
    gradient = jax.grad(cross_entropy)(PARAMS, DATA)
    flow = jnp.sum(PARAMS["hidden"] * gradient["hidden"], axis=0)
    assert jnp.abs(flow).max() < 1e-15
    doubled = PARAMS | {"hidden": PARAMS["hidden"] * 2.0}
    np.testing.assert_allclose(
        cross_entropy(doubled, DATA), cross_entropy(PARAMS, DATA), rtol=1e-14
    )


def test_readout_is_translation_invariant_per_input():
    gradient = jax.grad(cross_entropy)(PARAMS, DATA)
    assert jnp.abs(jnp.sum(gradient["readout"], axis=1)).max() < 1e-15


def test_normalization_uses_the_whole_batch():
    outputs = logits(PARAMS | {"readout": jnp.eye(6)}, DATA[0])
    np.testing.assert_allclose(outputs.mean(0), 0, atol=1e-13)
    np.testing.assert_allclose(outputs.var(0), 1, rtol=1e-12)


def test_cross_entropy_of_known_probabilities():
    params = PARAMS | {"readout": jnp.zeros((6, 10))}
    np.testing.assert_allclose(cross_entropy(params, DATA), np.log(10), rtol=1e-14)


def test_glorot_limits_and_seed():
    wide = glorot_uniform((300, 200, 100, 10), seed=3)
    limit = np.sqrt(6 / 500)
    assert np.abs(wide["input"]).max() <= limit
    assert np.abs(wide["input"]).max() > 0.99 * limit
    again = glorot_uniform((300, 200, 100, 10), seed=3)
    assert jnp.array_equal(wide["readout"], again["readout"])
    assert not jnp.array_equal(wide["readout"], glorot_uniform((300, 200, 100, 10))["readout"])


@pytest.mark.parametrize("samples", [20, 200], ids=["few samples", "many samples"])
def test_folded_or_not_it_is_the_network_layer_by_layer(samples):
    params = glorot_uniform((12, 8, 6, 3))
    generator = np.random.default_rng(1)
    inputs = jnp.asarray(generator.normal(size=(samples, 12)))
    targets = jnp.asarray(np.eye(3)[generator.integers(0, 3, samples)])

    def by_layers(params):
        hidden = jax.nn.silu(inputs @ params["input"]) @ params["hidden"]
        normal = (hidden - jnp.mean(hidden, 0)[None, :]) / jnp.std(hidden, 0)[None, :]
        found = jax.nn.log_softmax(normal @ params["readout"])
        return -jnp.mean(jnp.sum(targets * found, 1))

    for function in (by_layers, jax.grad(by_layers)):
        ours = jax.grad(cross_entropy) if function is not by_layers else cross_entropy
        expected, found = function(params), ours(params, (inputs, targets))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-14), expected, found
        )


def plain_moment(values):
    return values.T @ values


def test_derivatives_of_the_second_moment_are_those_of_the_product():
    values, along, across = np.random.default_rng(2).normal(size=(3, 7, 4))

    def slope(moment, values):
        return jax.grad(lambda v: jnp.sum(jnp.sin(moment(v))))(values)

    def second(moment, values):
        return jax.jvp(lambda v: slope(moment, v), (values,), (jnp.asarray(along),))[1]

    def third(moment, values):
        return jax.jvp(lambda v: second(moment, v), (values,), (jnp.asarray(across),))[1]

    for derivative in (slope, second, third):
        expected, found = (
            derivative(moment, jnp.asarray(values)) for moment in (plain_moment, second_moment)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_a_second_derivative_of_the_second_moment_takes_five_products_not_nine():
    values = jnp.asarray(np.random.default_rng(2).normal(size=(70, 4)))

    def products(moment):
        gradient = jax.grad(lambda v: jnp.sum(jnp.sin(moment(v))))
        program = jax.jit(lambda v, along: jax.jvp(gradient, (v,), (along,))).lower(values, values)
        return program.compile().as_text().count(" dot(")

    assert (products(plain_moment), products(second_moment)) == (9, 5)
