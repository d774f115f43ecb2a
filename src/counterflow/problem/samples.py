"""Data as samples: every array numbers them along its first axis."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .tree import named_leaves


def as_arrays(data: PyTree) -> PyTree:
    """The data; plain numbers become arrays, so that `jit` does not compile for each of them."""
    for path, leaf in named_leaves(data).items():
        if not (hasattr(leaf, "dtype") or isinstance(leaf, bool | int | float)):
            raise TypeError(
                f"`data` must be a pytree of arrays, but the leaf {path} is a "
                f"{type(leaf).__name__}: what is no array belongs into the function"
            )
    return jax.tree.map(lambda x: np.asarray(x) if isinstance(x, (bool, int, float)) else x, data)


def require_pair(data: Any) -> tuple[PyTree, PyTree]:
    """Inputs and targets; raises unless the data are these two, with as many samples."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        came = f"{len(data)} parts" if isinstance(data, tuple | list) else type(data).__name__
        raise TypeError(
            f"`data` must be a pair `(inputs, targets)`, got {came}: for data of another form "
            "write the loss yourself, `Problem(loss, data)` with `loss(params, data)`"
        )
    inputs, targets = as_arrays(tuple(data))
    sample_count((inputs, targets))
    return inputs, targets


def sample_count(data: PyTree) -> int:
    """The number of samples; raises unless every array has as many along its first axis."""
    shapes = {path: jnp.shape(leaf) for path, leaf in named_leaves(data).items()}
    if not shapes:
        raise ValueError("`data` must hold at least one array, got none")
    for path, shape in shapes.items():
        if not shape:
            raise ValueError(
                f"`data` must number the samples along the first axis of every array, but the leaf "
                f"{path} is a single number: make lists of numbers an array by `jnp.array`"
            )
    counts = {path: shape[0] for path, shape in shapes.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} in {path}" for path, count in counts.items())
        raise ValueError(
            f"`data` must have as many samples in every array, got {listed}: samples are numbered "
            "along the first axis"
        )
    count = next(iter(counts.values()))
    if count == 0:
        raise ValueError("`data` must hold at least one sample, got empty arrays")
    return count
