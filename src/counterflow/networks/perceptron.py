"""Fully connected networks, with a choice of activation, with or without biases."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .activations import ACTIVATIONS, require_activation
from .cross_entropy import AnyArray, Batch, mean_cross_entropy, normal

Params = dict[str, dict[str, Float[Array, "..."]]]


@dataclass(frozen=True)
class Perceptron:
    """The loss of a fully connected network with a softmax; a function of params and data.

    Attributes:
        widths: Pixels, hidden widths, classes.
        activation: One of `ACTIVATIONS`, after every layer but the last.
        bias: Whether the layers have biases.

    Example:
        >>> network = Perceptron((64, 32, 10), "relu", bias=True)
        >>> {name: leaf.shape for name, leaf in network.initial_params()["layer0"].items()}
        {'weight': (64, 32), 'bias': (32,)}
    """

    widths: tuple[int, ...]
    activation: str
    bias: bool = False

    def __post_init__(self) -> None:
        require_activation(self.activation)

    def initial_params(self, seed: int = 7) -> Params:
        """Normal weights and zero biases of the layers `layer0`, `layer1` and so on."""
        generator = np.random.default_rng(seed)
        params: Params = {}
        for layer, (inputs, outputs) in enumerate(
            zip(self.widths[:-1], self.widths[1:], strict=True)
        ):
            params[f"layer{layer}"] = {"weight": normal(generator, inputs, outputs)}
            if self.bias:
                params[f"layer{layer}"]["bias"] = jnp.zeros(outputs)
        return params

    def logits(self, params: Params, inputs: Float[AnyArray, "samples pixels"]) -> Array:
        """The network's outputs before the softmax."""
        values = jnp.asarray(inputs)
        for layer in range(len(self.widths) - 1):
            if layer:
                values = ACTIVATIONS[self.activation](values)
            values = values @ params[f"layer{layer}"]["weight"]
            if self.bias:
                values = values + params[f"layer{layer}"]["bias"][None, :]
        return values

    def __call__(self, params: Params, data: Batch) -> Float[Array, ""]:
        inputs, targets = data
        return mean_cross_entropy(self.logits(params, inputs), targets)
