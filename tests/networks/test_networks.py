"""The small networks: their outputs against plain NumPy, and what they are invariant under."""

import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.networks.convolutional import ConvolutionalNetwork
from counterflow.networks.normalized import NormalizedNetwork, normalize
from counterflow.networks.perceptron import Perceptron
from counterflow.networks.transformer import TransformerBlock

RANDOM = np.random.default_rng(0)
DATA = (RANDOM.standard_normal((5, 16)), np.eye(3)[RANDOM.integers(0, 3, 5)])


def cross_entropy(logits):
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return -np.mean(np.log(np.sum(DATA[1] * shifted, axis=1) / shifted.sum(axis=1)))


def test_a_perceptron_by_hand():
    network = Perceptron((16, 4, 3), "leaky relu", bias=True)
    params = network.initial_params()
    params["layer0"]["bias"] = jnp.array([0.1, -0.2, 0.3, 0.4])
    first, second = (np.asarray(params[f"layer{i}"]["weight"]) for i in range(2))
    hidden = DATA[0] @ first + np.array([0.1, -0.2, 0.3, 0.4])
    hidden = np.where(hidden > 0, hidden, 0.01 * hidden)
    assert float(network(params, DATA)) == pytest.approx(cross_entropy(hidden @ second))


def test_softplus_is_the_logarithm_of_one_plus_the_exponential():
    network = Perceptron((16, 4, 3), "softplus")
    params = network.initial_params()
    first, second = (np.asarray(params[f"layer{i}"]["weight"]) for i in range(2))
    expected = cross_entropy(np.log1p(np.exp(DATA[0] @ first)) @ second)
    assert float(network(params, DATA)) == pytest.approx(expected)


@pytest.mark.parametrize("normalization", ["batch", "layer", "weight"])
def test_normalized_networks_by_hand(normalization):
    network = NormalizedNetwork((16, 4, 3), normalization)
    params = network.initial_params()
    weight = np.asarray(params["weight"])
    if normalization == "weight":
        hidden = DATA[0] @ (weight / np.linalg.norm(weight, axis=0))
    else:
        axis = {"batch": 0, "layer": 1}[normalization]
        hidden = DATA[0] @ weight
        hidden = hidden - hidden.mean(axis=axis, keepdims=True)
        hidden = hidden / hidden.std(axis=axis, keepdims=True)
    expected = cross_entropy(np.tanh(hidden) @ np.asarray(params["readout"]))
    assert float(network(params, DATA)) == pytest.approx(expected)


def test_epsilon_is_added_to_the_variance():
    values = jnp.array([[1.0], [3.0]])
    np.testing.assert_allclose(normalize(values, (0,), 3.0), [[-0.5], [0.5]])


def test_a_convolution_by_hand():
    network = ConvolutionalNetwork(side=4, filters=(2, 3), classes=3)
    params = network.initial_params()

    def convolve(images, kernels):
        padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return sum(
            padded[:, i : i + 4, j : j + 4, :] @ np.asarray(kernels[i, j])
            for i in range(3)
            for j in range(3)
        )

    hidden = convolve(DATA[0].reshape(-1, 4, 4, 1), params["first"])
    hidden = (hidden - hidden.mean((0, 1, 2))) / hidden.std((0, 1, 2))
    hidden = np.maximum(convolve(np.maximum(hidden, 0), params["second"]), 0).mean((1, 2))
    expected = cross_entropy(hidden @ np.asarray(params["readout"]))
    assert float(network(params, DATA)) == pytest.approx(expected)


def test_a_transformer_block_by_hand():
    network = TransformerBlock(side=4, width=6, head=2, hidden=5, classes=3)
    params = {name: np.asarray(leaf) for name, leaf in network.initial_params().items()}

    def normalized(values):
        return (values - values.mean(2, keepdims=True)) / values.std(2, keepdims=True)

    stream = DATA[0].reshape(-1, 4, 4) @ params["embedding"] + params["position"]
    seen = normalized(stream)
    scores = seen @ params["query"] @ np.swapaxes(seen @ params["key"], 1, 2) / np.sqrt(2)
    attention = np.exp(scores) / np.exp(scores).sum(2, keepdims=True)
    stream = stream + attention @ (seen @ params["value"]) @ params["output"]
    up = normalized(stream) @ params["up"] + params["bias"]
    stream = stream + np.maximum(up, 0) @ params["down"]
    expected = cross_entropy(normalized(stream).mean(1) @ params["readout"])
    assert float(network(network.initial_params(), DATA)) == pytest.approx(expected)
