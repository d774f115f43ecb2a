"""Two layers with a normalization between them: of the batch, of the layer, or of the weights."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .cross_entropy import Batch, mean_cross_entropy, normal

Params = dict[str, Float[Array, "..."]]


def normalize(
    values: Float[Array, "..."], axes: tuple[int, ...], epsilon: float = 0.0
) -> Float[Array, "..."]:
    """The values with mean 0 and variance 1 over some axes, up to an ε added to the variance."""
    centred = values - jnp.mean(values, axis=axes, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=axes, keepdims=True) + epsilon)


@dataclass(frozen=True)
class NormalizedNetwork:
    """The loss of linear, normalization, tanh, linear, softmax; a function of params and data.

    Attributes:
        widths: Pixels, hidden width, classes.
        normalization: `"batch"`, `"layer"` or `"weight"`.
        epsilon: The ε of batch and layer normalization.

    Example:
        >>> network = NormalizedNetwork((64, 16, 10), "weight")
        >>> {name: leaf.shape for name, leaf in network.initial_params().items()}
        {'weight': (64, 16), 'bias': (16,), 'gain': (16,), 'readout': (16, 10)}
    """

    widths: tuple[int, int, int]
    normalization: str
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if self.normalization not in ("batch", "layer", "weight"):
            raise ValueError(
                f"`normalization` must be 'batch', 'layer' or 'weight', got {self.normalization!r}"
            )

    def initial_params(self, seed: int = 7) -> Params:
        """Normal weights, zero biases and, for weight normalization, gains of one."""
        generator = np.random.default_rng(seed)
        pixels, hidden, classes = self.widths
        params = {"weight": normal(generator, pixels, hidden), "bias": jnp.zeros(hidden)}
        if self.normalization == "weight":
            params["gain"] = jnp.ones(hidden)
        return params | {"readout": normal(generator, hidden, classes)}

    def __call__(self, params: Params, data: Batch) -> Float[Array, ""]:
        inputs, targets = data
        weight, bias = params["weight"], params["bias"][None, :]
        if self.normalization == "weight":
            length = jnp.sqrt(jnp.sum(weight**2, axis=0, keepdims=True))
            hidden = jnp.asarray(inputs) @ (params["gain"][None, :] * weight / length) + bias
        else:
            axes = {"batch": (0,), "layer": (1,)}[self.normalization]
            hidden = normalize(jnp.asarray(inputs) @ weight + bias, axes, self.epsilon)
        return mean_cross_entropy(jnp.tanh(hidden) @ params["readout"], targets)
