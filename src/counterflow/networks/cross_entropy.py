"""What every network here is trained on: the mean cross-entropy with one-hot targets."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

AnyArray = Array | np.ndarray
Batch = tuple[Float[AnyArray, "samples pixels"], Float[AnyArray, "samples classes"]]


def mean_cross_entropy(
    logits: Float[Array, "samples classes"], targets: Float[AnyArray, "samples classes"]
) -> Float[Array, ""]:
    """The mean over samples of `−log p(class)`, with p the softmax of the logits."""
    return -jnp.mean(jnp.sum(targets * jax.nn.log_softmax(logits), axis=1))


def normal(generator: np.random.Generator, *shape: int) -> Float[Array, "..."]:
    """Initial weights, normal over the root of the number of inputs of an output."""
    inputs = int(np.prod(shape[:-1]))
    return jnp.asarray(generator.standard_normal(shape) / np.sqrt(inputs))
