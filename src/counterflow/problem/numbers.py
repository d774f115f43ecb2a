"""Numbers at the door: learning rates, weight decays, orders."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from .tree import is_concrete


def _as_scalar(value: Any, name: str) -> Any:
    # In double precision whatever JAX's setting is when the object is built: a learning rate
    # rounded to float32 would show in the results, as it does in the paper's Table 1.
    if is_concrete(value):
        if np.asarray(value).dtype.kind not in "fiu":
            raise TypeError(
                f"`{name}` must be a number, got {value!r} of type {type(value).__name__}"
            )
        value = np.asarray(value, dtype=np.float64)
    if jnp.shape(value) != ():
        raise ValueError(
            f"`{name}` must be one number, got an array of shape {jnp.shape(value)}: for several "
            "values, `jax.vmap` over the problem or run them one by one"
        )
    return value


def require_learning_rate(value: Any) -> Any:
    """The learning rate η in double precision; raises unless it is positive and finite."""
    value = _as_scalar(value, "learning_rate")
    if is_concrete(value) and not (np.isfinite(value) and value > 0):
        raise ValueError(
            f"`learning_rate` must be a positive, finite number, got {value}: the limit of "
            "vanishing learning rate is `GradientFlow`"
        )
    return value


def require_weight_decay(value: Any) -> Any:
    """The weight decay λ in double precision; raises unless it is finite and at least 0."""
    value = _as_scalar(value, "weight_decay")
    if is_concrete(value) and not (np.isfinite(value) and value >= 0):
        raise ValueError(
            f"`weight_decay` must be a finite number of at least 0, got {value}: "
            "0 means no weight decay"
        )
    return value


def require_order(value: Any, name: str, meaning: str, least: int = 0) -> int:
    """The value as an `int`; raises unless it is an integer of at least 0, or `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(
            f"`{name}` must be an integer, got {value!r} of type {type(value).__name__}: {meaning}"
        )
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, got {value}: {meaning}")
    return int(value)


def require_size(value: Any, name: str, meaning: str) -> int:
    """The value as an `int`; raises unless it is an integer of at least 1."""
    return require_order(value, name, meaning, least=1)
