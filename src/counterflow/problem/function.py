"""What is asked of a function that the user brings."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def require_function(function: Any, name: str, arguments: str, hint: str) -> None:
    """Raises unless `function` can be called with these arguments, and hashed."""
    if not callable(function):
        raise TypeError(
            f"`{name}` must be a function {name}({arguments}), got {type(function).__name__}"
        )
    try:
        hash(function)
    except TypeError:
        raise TypeError(
            f"`{name}` must be hashable, got a {type(function).__name__} that is not: if it holds "
            "arrays, pass them as `params` or `data` instead"
        ) from None
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-in functions have no signature
        return
    try:
        signature.bind(*arguments.split(", "))
    except TypeError:
        raise TypeError(
            f"`{name}` must accept {name}({arguments}), got the signature {signature}: {hint}"
        ) from None


def require_scalar(value: Any) -> Any:
    """What a loss returned; raises unless it is one float."""
    is_array = isinstance(value, jax.Array | np.ndarray | np.generic | float)
    if not (is_array and jnp.shape(value) == () and is_floating(value)):
        raise ValueError(
            "`loss` must return one float (a scalar array), got "
            f"{describe(value)}: take the mean or the sum over the samples"
        )
    return value


def is_floating(value: Any) -> bool:
    """Whether the values of an array, or the value itself, are floats."""
    return jnp.issubdtype(jnp.result_type(value), jnp.floating)


def describe(value: Any) -> str:
    """A value in words, for messages."""
    if not hasattr(value, "shape"):
        return f"a value of type {type(value).__name__}"
    return f"an array of shape {jnp.shape(value)} and dtype {jnp.result_type(value)}"
