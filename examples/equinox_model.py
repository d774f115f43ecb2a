"""A network of Equinox on scikit-learn's digits, for `counterflow run`."""

import equinox as eqx
import jax
import jax.numpy as jnp
from sklearn.datasets import load_digits

import counterflow as cf


def cross_entropy(outputs, classes):
    """The loss of every sample."""
    return -jax.nn.log_softmax(outputs)[jnp.arange(len(classes)), classes]


def problem():
    """The problem and its initial params."""
    images, classes = load_digits(return_X_y=True)
    model = eqx.nn.MLP(64, 10, 32, depth=1, activation=jax.nn.silu, key=jax.random.key(0))
    return cf.equinox.problem(model, cross_entropy, images / 8 - 1, classes, weight_decay=1e-3)
