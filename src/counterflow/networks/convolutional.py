"""A small convolutional network with batch normalization."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .activations import ACTIVATIONS, require_activation
from .cross_entropy import Batch, mean_cross_entropy, normal
from .normalized import normalize

Params = dict[str, Float[Array, "..."]]


@dataclass(frozen=True)
class ConvolutionalNetwork:
    """The loss of two convolutions on square images; a function of params and data.

    Convolution, batch normalization with gain and shift, activation, convolution, activation, the
    mean over positions, linear, softmax.

    Attributes:
        side: The pixels along a side of an image.
        filters: The filters of the two convolutions.
        classes: The number of classes.
        activation: One of `ACTIVATIONS`.

    Example:
        >>> network = ConvolutionalNetwork(side=8, filters=(4, 6), classes=10)
        >>> {name: leaf.shape for name, leaf in network.initial_params().items()}
        {'first': (3, 3, 1, 4), 'gain': (4,), 'shift': (4,), 'second': (3, 3, 4, 6),
         'readout': (6, 10)}
    """

    side: int
    filters: tuple[int, int]
    classes: int
    activation: str = "relu"

    def __post_init__(self) -> None:
        require_activation(self.activation)

    def initial_params(self, seed: int = 7) -> Params:
        """Normal kernels and weights, gains of one and shifts of zero."""
        generator = np.random.default_rng(seed)
        first, second = self.filters
        return {
            "first": normal(generator, 3, 3, 1, first),
            "gain": jnp.ones(first),
            "shift": jnp.zeros(first),
            "second": normal(generator, 3, 3, first, second),
            "readout": normal(generator, second, self.classes),
        }

    def __call__(self, params: Params, data: Batch) -> Float[Array, ""]:
        inputs, targets = data
        images = jnp.reshape(jnp.asarray(inputs), (-1, self.side, self.side, 1))
        hidden = normalize(_convolve(images, params["first"]), (0, 1, 2))
        gain, shift = (params[name][None, None, None, :] for name in ("gain", "shift"))
        hidden = ACTIVATIONS[self.activation](gain * hidden + shift)
        hidden = ACTIVATIONS[self.activation](_convolve(hidden, params["second"]))
        return mean_cross_entropy(jnp.mean(hidden, axis=(1, 2)) @ params["readout"], targets)


def _convolve(images: Float[Array, "n h w c"], kernels: Float[Array, "a b c d"]) -> Array:
    return jax.lax.conv_general_dilated(
        images, kernels, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
