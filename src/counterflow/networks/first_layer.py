"""The product of the data with the first layer's weights, with a gradient that is as cheap."""

import jax.numpy as jnp
from jax.custom_derivatives import linear_call
from jaxtyping import Array, Float

from .blocks import Blocks
from .cross_entropy import AnyArray


def first_layer(
    inputs: Float[AnyArray, "samples pixels"] | Blocks,
    transposed: Float[AnyArray, "pixels samples"] | None,
    weights: Float[Array, "pixels outputs"],
) -> tuple[Float[Array, "samples outputs"], ...]:
    """`inputs @ weights`, where the inputs are data: one array, or of blocks several.

    The gradient for the weights is a product with the transposed inputs, which takes almost twice
    as long on a CPU unless the data are there in that form too.

    Args:
        inputs: The data, or blocks of them, whose gradient needs nothing more.
        transposed: The same, transposed, if they are at hand; `vmap` then does not work.
        weights: The weights.
    """
    if isinstance(inputs, Blocks):
        return inputs.times(weights)
    if transposed is None:
        return (jnp.asarray(inputs) @ weights,)
    product = linear_call(
        lambda data, weights: data[0] @ weights,
        lambda data, cotangent: data[1] @ cotangent,
        (inputs, transposed),
        weights,
    )
    return (product,)
