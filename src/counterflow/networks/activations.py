"""The activations of networks, by name."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda values: values,
    "relu": jax.nn.relu,
    "leaky relu": jax.nn.leaky_relu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "tanh": jnp.tanh,
}


def require_activation(activation: str) -> None:
    """Raises unless it is the name of one of `ACTIVATIONS`."""
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"`activation` must be one of {', '.join(map(repr, ACTIVATIONS))}, got {activation!r}"
        )
