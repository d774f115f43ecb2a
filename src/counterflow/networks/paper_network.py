"""The network of the paper (Section 6).

Linear, swish, linear, batch normalization, linear, softmax; no layer has a bias. The normalization
uses the mean and the variance of the whole batch at the current params, without an ε: only then is
the hidden layer exactly scale-invariant.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .cross_entropy import AnyArray, Batch, mean_cross_entropy
from .first_layer import first_layer

Params = dict[str, Float[Array, "inputs outputs"]]
TransposedBatch = tuple[
    Float[AnyArray, "samples pixels"],
    Float[AnyArray, "samples classes"],
    Float[AnyArray, "pixels samples"],
]
# With fewer samples for each unit of the first layer, products of weights outweigh those of data.
_SAMPLES_PER_UNIT = 4
LAYERS = ("input", "hidden", "readout")


def glorot_uniform(widths: tuple[int, int, int, int], seed: int = 7) -> Params:
    """Initial weights, one matrix per layer, uniform within `±√(6/(inputs + outputs))`.

    Args:
        widths: Pixels, the two hidden widths, classes.
        seed: The seed of NumPy's default generator.

    Example:
        >>> {name: weights.shape for name, weights in glorot_uniform((64, 32, 16, 10)).items()}
        {'input': (64, 32), 'hidden': (32, 16), 'readout': (16, 10)}
    """
    generator = np.random.default_rng(seed)
    params = {}
    for name, inputs, outputs in zip(LAYERS, widths[:-1], widths[1:], strict=True):
        limit = np.sqrt(6 / (inputs + outputs))
        params[name] = jnp.asarray(generator.uniform(-limit, limit, (inputs, outputs)))
    return params


def logits(
    params: Params,
    inputs: Float[AnyArray, "samples pixels"],
    transposed: Float[AnyArray, "pixels samples"] | None = None,
) -> Float[Array, "samples _"]:
    """The network's outputs before the softmax; the inputs once more, transposed, save time.

    A linear layer, batch normalization and another linear layer are one product with a matrix, once
    the covariance `C` of the activations is known: of the unit with weights `w` the variance is
    `wᵀCw`. That is exact, and spares all work on the normalized activations themselves where there
    are more samples than units.
    """
    activations = jax.nn.silu(first_layer(inputs, transposed, params["input"]))
    centred = activations - jnp.mean(activations, axis=0, keepdims=True)
    hidden = params["hidden"]
    if len(centred) < _SAMPLES_PER_UNIT * len(hidden):
        values = centred @ hidden
        return values / jnp.sqrt(jnp.mean(values**2, axis=0, keepdims=True)) @ params["readout"]
    covariance = centred.T @ centred / len(centred)
    variances = jnp.sum(hidden * (covariance @ hidden), axis=0, keepdims=True)
    return centred @ ((hidden / jnp.sqrt(variances)) @ params["readout"])


def cross_entropy(params: Params, data: Batch | TransposedBatch) -> Float[Array, ""]:
    """The mean cross-entropy of the network on inputs and one-hot targets.

    A third part of the data, the inputs transposed, makes the gradient of many images faster.
    """
    inputs, targets, *transposed = data
    return mean_cross_entropy(logits(params, inputs, *transposed), targets)
