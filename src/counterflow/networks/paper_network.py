"""The network of the paper (Section 6).

Linear, swish, linear, batch normalization, linear, softmax; no layer has a bias. The normalization
uses the mean and the variance of the whole batch at the current params, without an ε: only then is
the hidden layer exactly scale-invariant.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .blocks import Blocks, total
from .cross_entropy import AnyArray, Batch, mean_cross_entropy
from .first_layer import first_layer
from .tall_products import inner, own_inner, times

Params = dict[str, Float[Array, "inputs outputs"]]
BlockBatch = tuple[Blocks, Float[AnyArray, "samples classes"]]
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


def logits(params: Params, inputs: Float[AnyArray, "samples pixels"]) -> Float[Array, "samples _"]:
    """The network's outputs before the softmax."""
    (outputs,) = _logits(params, first_layer(inputs, None, params["input"]), by_code=False)
    return outputs


def _logits(params: Params, values: tuple[Array, ...], by_code: bool) -> list[Array]:
    """The outputs for values of the first layer, which are those of all samples in some arrays.

    Products over all samples are a library's or, for one device and without `vmap`, of own code.

    A linear layer, batch normalization and another linear layer are one product with a matrix, once
    the covariance `C` of the activations is known: of the unit with weights `w` the variance is
    `wᵀCw`. That is exact, and spares all work on the normalized activations themselves where there
    are more samples than units. Nor have activations to be centred, if they are near zero: what is
    subtracted from them, the mean of some, changes nothing but rounding.
    """
    count, hidden = sum(map(len, values)), params["hidden"]
    some, *_ = activations = [jax.nn.silu(some) for some in values]
    shift = jax.lax.stop_gradient(jnp.mean(some, axis=0, keepdims=True))
    activations = [some - shift for some in activations]
    mean = total(jnp.sum(some, axis=0, keepdims=True) for some in activations) / count
    if count < _SAMPLES_PER_UNIT * len(hidden):
        centred = [(some - mean) @ hidden for some in activations]
        variances = total(jnp.sum(some**2, axis=0, keepdims=True) for some in centred) / count
        return [some / jnp.sqrt(variances) @ params["readout"] for some in centred]
    product, moment = (times, _moment_by_code) if by_code else (jnp.matmul, second_moment)
    covariance = total(map(moment, activations)) / count - mean.T @ mean
    variances = jnp.sum(hidden * (covariance @ hidden), axis=0, keepdims=True)
    readout = (hidden / jnp.sqrt(variances)) @ params["readout"]
    return [product(some, readout) - mean @ readout for some in activations]


def _second_moment(
    inner: Callable[[Array, Array], Array], own: Callable[[Array], Array]
) -> Callable[[Array], Array]:
    """The function `VᵀV` of V, as `own` computes it, with derivatives by `inner`, `UᵀV`.

    Each of them is one product, because it is symmetric.
    """

    @jax.custom_jvp
    def second_moment(values: Float[Array, "samples units"]) -> Float[Array, "units units"]:
        return own(values)

    @second_moment.defjvp
    def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        (values,), (tangent,) = primals, tangents
        half = inner(tangent, values)
        return second_moment(values), half + half.T

    return second_moment


second_moment = _second_moment(lambda left, right: left.T @ right, lambda values: values.T @ values)
_moment_by_code = _second_moment(inner, own_inner)


def cross_entropy(params: Params, data: Batch | BlockBatch | TransposedBatch) -> Float[Array, ""]:
    """The mean cross-entropy of the network on inputs and one-hot targets.

    Inputs in `Blocks` make the gradient of many images faster, where most pixels are blank; so does
    a third part of the data, the inputs transposed.
    """
    inputs, targets, *more = data
    transposed = more[0] if more else None
    values = first_layer(inputs, transposed, params["input"])
    outputs = _logits(params, values, by_code=isinstance(inputs, Blocks))
    ends = np.cumsum([len(some) for some in outputs])
    if len(targets) != ends[-1]:
        raise ValueError(
            f"there must be one row of targets for each image, got {len(targets)} rows for "
            f"{ends[-1]} images"
        )
    pairs = zip(outputs, jnp.split(targets, ends[:-1]), strict=True)
    return total(len(some) / ends[-1] * mean_cross_entropy(some, own) for some, own in pairs)
