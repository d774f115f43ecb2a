"""A model and its loss as one function of params and data, and what is constant in a model."""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .function import describe, is_floating, require_function
from .tree import named_leaves


@dataclass(frozen=True)
class ModelLoss:
    """The mean of `loss(apply(params, inputs), targets)`, a function of params and data.

    Two are equal where apply and loss are, so that a problem built twice is compiled once.
    """

    apply: Callable[..., Any]
    loss: Callable[..., Any]

    def __post_init__(self) -> None:
        require_function(self.apply, "apply", "params, inputs", "it must take the inputs second")
        require_function(self.loss, "loss", "outputs, targets", "it must take the targets second")

    def __call__(self, params: PyTree, data: tuple[PyTree, PyTree]) -> Any:
        _require_trainable(params, self.apply)
        inputs, targets = data
        outputs = self.apply(params, inputs)
        value = self.loss(outputs, targets)
        if not hasattr(value, "shape") or jnp.shape(value) == () or not is_floating(value):
            return value  # one number, or nothing that a mean could be taken of
        first = jax.tree.leaves(outputs)[0]
        axes = jnp.ndim(value) if first is outputs else 1
        # By broadcasting, outputs (n, 1) less targets (n,) are n × n numbers, of another mean.
        if jnp.shape(value)[:axes] != jnp.shape(first)[:axes]:
            raise ValueError(
                "`loss` must return one number, or numbers along the leading axes of the outputs, "
                f"such as one per sample, got {describe(value)} for outputs that are "
                f"{describe(first)} and targets that are {describe(jax.tree.leaves(targets)[0])}: "
                "give outputs and targets shapes that fit"
            )
        return jnp.mean(value)


def _require_trainable(params: PyTree, apply: Callable[..., Any]) -> None:
    """Raises if they hold what a module of Flax Linen keeps besides its params."""
    if not isinstance(params, Mapping) or "params" not in params:
        return
    linen = sys.modules.get("flax.linen")  # without which no module is one of it
    of_linen = linen is not None and isinstance(getattr(apply, "__self__", None), linen.Module)
    others = [name for name in params if name != "params"]
    if others and (of_linen or "batch_stats" in others):
        raise ValueError(
            "`params` must be what is trained alone, but besides 'params' there is "
            f"{', '.join(map(repr, others))}, which descent and weight decay would change: take "
            '`module.init(key, inputs)["params"]`, and for `apply` a function of them, `lambda '
            'params, inputs: module.apply({"params": params}, inputs, mutable=["batch_stats"])[0]`,'
            " where batch normalization has `use_running_average=False` and uses the full batch"
        )


@dataclass(frozen=True)
class Constant:
    """A pytree that can be hashed, and is equal to another of the same content."""

    content: Any
    leaves: tuple[Any, ...] = field(compare=False)
    structure: Any = field(compare=False)

    @classmethod
    def of(cls, tree: PyTree) -> "Constant":
        """The tree as a constant; what cannot be hashed in it is equal to itself alone."""
        leaves, structure = jax.tree.flatten(tree)
        content = _by_identity_unless_hashable((structure, tuple(map(_content, leaves))))
        return cls(content, tuple(leaves), structure)

    @classmethod
    def by_identity(cls, tree: PyTree) -> "Constant":
        """The tree as a constant that is equal to another of the same arrays, not of equal ones."""
        leaves, structure = jax.tree.flatten(tree)
        return cls((structure, tuple(map(id, leaves))), tuple(leaves), structure)

    def tree(self) -> PyTree:
        """The tree, with containers of its own."""
        return jax.tree.unflatten(self.structure, self.leaves)


def _content(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array | np.ndarray):
        return _by_identity_unless_hashable((type(leaf), leaf))
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        values = np.asarray(jax.random.key_data(leaf))
    else:
        values = np.asarray(leaf)
    return str(leaf.dtype), leaf.shape, hashlib.sha256(values.tobytes()).hexdigest()


def _by_identity_unless_hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return _Identity(value)
    return value


@dataclass(frozen=True, eq=False)
class _Identity:
    """A value that is equal to itself alone."""

    value: Any


def require_fitting(params: PyTree, model_params: PyTree) -> None:
    """Raises unless `params` have the names, shapes and dtypes of those of a model."""
    came, wanted = (
        {path: (jnp.shape(leaf), str(jnp.result_type(leaf))) for path, leaf in leaves.items()}
        for leaves in (named_leaves(params), named_leaves(model_params))
    )
    for path in [*wanted, *came]:
        if came.get(path) != wanted.get(path):
            raise ValueError(
                f"`params` must be those of the model, but the leaf {path} "
                f"{_said(came.get(path))} and in the model {_said(wanted.get(path))}: pass the "
                "params that `problem` returned, or others of the same structure"
            )


def _said(kind: tuple[tuple[int, ...], str] | None) -> str:
    return "is missing" if kind is None else f"has shape {kind[0]} and dtype {kind[1]}"
