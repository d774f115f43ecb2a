"""A network that normalizes over all samples, small enough for seconds."""

import jax.numpy as jnp
import numpy as np

import counterflow as cf

_draw = np.random.default_rng(0).standard_normal


def loss(params, data):
    """The mean square of what a layer with batch normalization leaves."""
    inputs, targets = data
    hidden = jnp.tanh(inputs @ params["first"])
    hidden = (hidden - hidden.mean(0)) / hidden.std(0)
    return jnp.mean((hidden @ params["second"] - targets) ** 2)


problem = (
    cf.Problem(loss, data=(_draw((24, 3)), _draw(24)), weight_decay=1e-3),
    {"first": _draw((3, 2)), "second": _draw(2)},
)
