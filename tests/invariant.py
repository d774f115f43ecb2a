"""Losses with known symmetries, small enough to differentiate often, shared by the tests."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import counterflow as cf
from counterflow.networks.paper_network import cross_entropy, glorot_uniform

LEARNING_RATE, WEIGHT_DECAY = 0.05, 0.3


def every_family(params: Any) -> Any:
    """A linear network, its third layer normalized, before a softmax: all three symmetries.

    Linear, linear, linear with columns of norm one, linear, softmax; the loss is smooth.
    """
    unit = params["scaled"] / jnp.sqrt(jnp.sum(params["scaled"] ** 2, axis=0, keepdims=True))
    logits = params["first"] @ params["second"] @ unit @ params["shifted"]
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - logits[:, 0])


def _weights(*shape: int, seed: int) -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


PROBLEM = cf.Problem(every_family, weight_decay=WEIGHT_DECAY)
PARAMS = {
    "first": _weights(2, 3, seed=1),
    "second": _weights(3, 2, seed=2),
    "scaled": _weights(2, 4, seed=3),
    "shifted": _weights(4, 3, seed=4),
}

#: Every family, whole and per unit.
SYMMETRIES: dict[str, cf.Symmetry] = {
    "translation": cf.Translation("shifted"),
    "translation per unit": cf.Translation("shifted", axis=0),
    "scale": cf.Scale("scaled"),
    "scale per unit": cf.Scale("scaled", axis=1),
    "rescale": cf.Rescale("first", "second"),
    "rescale per unit": cf.Rescale("first", "second", axis={"first": 1, "second": 0}),
}


def paper_network(weight_decay: float = WEIGHT_DECAY) -> tuple[cf.Problem, Any]:
    """A small version 6-5-4-3 of the paper's network on random data."""
    random = np.random.default_rng(11)
    inputs = jnp.asarray(random.normal(size=(20, 6)))
    targets = jax.nn.one_hot(random.integers(3, size=20), 3)
    return cf.Problem(cross_entropy, (inputs, targets), weight_decay), glorot_uniform((6, 5, 4, 3))


class Dense:
    """Gradients and Hessians of the loss alone as vectors and matrices, and masks of leaves."""

    def __init__(self, problem: cf.Problem, params: Any):
        self.theta, self.tree = ravel_pytree(params)
        bare = cf.Problem(problem.function, problem.data)
        self._gradient = jax.jit(jax.grad(lambda theta: bare.loss(self.tree(theta))))
        self._hessian = jax.jit(jax.hessian(lambda theta: bare.loss(self.tree(theta))))
        self._params = params

    def gradient(self, theta: Any) -> np.ndarray:
        return np.asarray(self._gradient(jnp.asarray(theta)))

    def hessian(self, theta: Any) -> np.ndarray:
        return np.asarray(self._hessian(jnp.asarray(theta)))

    def mask(self, name: str) -> np.ndarray:
        """One at the entries of a leaf, zero elsewhere."""
        marked = {key: jnp.full_like(leaf, key == name) for key, leaf in self._params.items()}
        return np.asarray(ravel_pytree(marked)[0])


def flat(tree: Any) -> np.ndarray:
    """A tree as one vector."""
    return np.asarray(ravel_pytree(tree)[0])


def exact_rate(symmetry: cf.Symmetry, params: Any, velocity: Any) -> jax.Array:
    """The derivative of the charge along a velocity, by differentiating the charge itself."""
    return jax.jvp(symmetry.charge, (params,), (velocity,))[1]
