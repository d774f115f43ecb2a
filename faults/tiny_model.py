"""A problem of a few numbers, whose runs take seconds."""

import jax.numpy as jnp

import counterflow as cf


def loss(params):
    """Two quartics and three cosines: nothing that the flows could follow exactly."""
    return jnp.sum(params["hidden"] ** 4) / 4 + jnp.sum(jnp.cos(params["readout"]))


problem = (
    cf.Problem(loss, weight_decay=0.1),
    {"hidden": jnp.array([0.9, -0.4]), "readout": jnp.array([0.3, 0.8, -0.6])},
)
