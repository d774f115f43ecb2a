"""A small transformer block with layer normalization."""

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
class TransformerBlock:
    """The loss of one block on images whose rows are the tokens; a function of params and data.

    An embedding with positions; attention of one head and a layer with an activation, each after a
    layer normalization and with a shortcut around it; a last layer normalization, the mean over
    tokens, linear, softmax. The normalizations have no gains and shifts of their own, and no ε.

    Attributes:
        side: The pixels along a side of an image: tokens, and pixels per token.
        width: The width of the block.
        head: The width of queries, keys and values.
        hidden: The width of the layer with an activation.
        classes: The number of classes.
        activation: One of `ACTIVATIONS`.

    Example:
        >>> network = TransformerBlock(side=8, width=8, head=4, hidden=12, classes=10)
        >>> {name: leaf.shape for name, leaf in network.initial_params().items()}
        {'embedding': (8, 8), 'position': (8, 8), 'query': (8, 4), 'key': (8, 4), 'value': (8, 4),
         'output': (4, 8), 'up': (8, 12), 'bias': (12,), 'down': (12, 8), 'readout': (8, 10)}
    """

    side: int
    width: int
    head: int
    hidden: int
    classes: int
    activation: str = "relu"

    def __post_init__(self) -> None:
        require_activation(self.activation)

    def initial_params(self, seed: int = 7) -> Params:
        """Normal weights and zero biases."""
        generator = np.random.default_rng(seed)
        return {
            "embedding": normal(generator, self.side, self.width),
            "position": normal(generator, self.side, self.width),
            "query": normal(generator, self.width, self.head),
            "key": normal(generator, self.width, self.head),
            "value": normal(generator, self.width, self.head),
            "output": normal(generator, self.head, self.width),
            "up": normal(generator, self.width, self.hidden),
            "bias": jnp.zeros(self.hidden),
            "down": normal(generator, self.hidden, self.width),
            "readout": normal(generator, self.width, self.classes),
        }

    def __call__(self, params: Params, data: Batch) -> Float[Array, ""]:
        inputs, targets = data
        tokens = jnp.reshape(jnp.asarray(inputs), (-1, self.side, self.side))
        stream = tokens @ params["embedding"] + params["position"][None, :, :]
        seen = normalize(stream, (2,))
        query, key, value = (seen @ params[name] for name in ("query", "key", "value"))
        scores = query @ jnp.swapaxes(key, 1, 2) / np.sqrt(self.head)
        stream = stream + jax.nn.softmax(scores) @ value @ params["output"]
        up = normalize(stream, (2,)) @ params["up"] + params["bias"][None, None, :]
        stream = stream + ACTIVATIONS[self.activation](up) @ params["down"]
        pooled = jnp.mean(normalize(stream, (2,)), axis=1)
        return mean_cross_entropy(pooled @ params["readout"], targets)
