"""The paper's network has the symmetries that the paper uses, and the initialization it names."""

import jax
import jax.numpy as jnp
import numpy as np

from counterflow.data.digits import digits
from counterflow.networks.paper_network import cross_entropy, glorot_uniform, logits

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
