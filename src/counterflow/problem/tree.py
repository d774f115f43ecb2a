"""Arithmetic on pytrees of arrays: a parameter vector is a pytree, and so is everything like it."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree


def add_scaled(tree: PyTree, scale: Any, other: PyTree) -> PyTree:
    """`tree + scale · other`, the scale in the dtype of `tree`."""
    return jax.tree.map(lambda a, b: a + jnp.asarray(scale, jnp.result_type(a)) * b, tree, other)


def scaled(scale: Any, tree: PyTree) -> PyTree:
    """`scale · tree`, each leaf in its own dtype."""
    return jax.tree.map(lambda a: jnp.asarray(scale, a.dtype) * a, tree)


def weighted_sum(weights: Sequence[Any], trees: Sequence[PyTree]) -> PyTree:
    """`Σ weights[i] · trees[i]`, for at least one tree."""
    total = scaled(weights[0], trees[0])
    for weight, tree in zip(weights[1:], trees[1:], strict=True):
        total = add_scaled(total, weight, tree)
    return total


def zeros_like(tree: PyTree) -> PyTree:
    """A tree of zeros, shaped like `tree`."""
    return jax.tree.map(jnp.zeros_like, tree)


def inner(tree: PyTree, other: PyTree) -> Float[Array, ""]:
    """The inner product of two trees."""
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), tree, other)
    return sum(jax.tree.leaves(products))  # pyright: ignore[reportReturnType]


def norm(tree: PyTree) -> Float[Array, ""]:
    """The Euclidean norm of a tree as one vector, also where squares would over- or underflow."""
    unit = _power_of_two(tree)
    measured = scaled(1 / unit, tree)
    return unit * jnp.sqrt(inner(measured, measured))


def _power_of_two(tree: PyTree) -> Float[Array, ""]:
    """About the largest entry: to divide by it changes no digit."""
    leaves = [leaf for leaf in map(jnp.asarray, jax.tree.leaves(tree)) if leaf.size]
    if not leaves:
        return jnp.ones(())
    largest = jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in leaves]).max()
    limits = jnp.finfo(largest.dtype)
    _, exponent = jnp.frexp(jax.lax.stop_gradient(largest))
    # Where the largest is no number, neither is the norm.
    exponent = jnp.where(jnp.isfinite(largest), exponent, 0)
    within = jnp.clip(exponent, int(limits.minexp) + 2, int(limits.maxexp) - 2)
    return jnp.ldexp(jnp.ones((), largest.dtype), within)


def rms(tree: PyTree) -> Float[Array, ""]:
    """The root mean square of all entries of a tree."""
    return norm(tree) / sqrt(sum(leaf.size for leaf in jax.tree.leaves(tree)))


def distance(tree: PyTree, other: PyTree) -> Float[Array, ""]:
    """The Euclidean norm of the difference of two trees."""
    return norm(add_scaled(tree, -1, other))


def is_finite(tree: PyTree) -> Array:
    """Whether every entry of every leaf is finite."""
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]).all()


def is_concrete(tree: PyTree) -> bool:
    """Whether the values are at hand, that is, no leaf is being traced by a JAX transformation."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def on_device(tree: PyTree) -> PyTree:
    """The tree with JAX's arrays in place of NumPy's, so that data move once and not per call."""
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, tree)


def rounding_of(tree: PyTree) -> float:
    """The relative rounding error of the coarsest dtype in a tree."""
    return max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(tree))


def inside_transformation() -> bool:
    """Whether a function is being traced, so that even known values cannot be computed with."""
    return isinstance(jnp.zeros(()), Tracer)


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves of a tree by their path, written as JAX users write it: `['hidden'][0]`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path) or "(the only leaf)": leaf for path, leaf in leaves}
