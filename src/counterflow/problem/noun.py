"""Nouns: frozen objects that are pytrees."""

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

import equinox as eqx
import jax
import numpy as np

T = TypeVar("T")


def static(**options: Any) -> Any:
    """A field that is part of the noun's structure, not a leaf: a function, an order, a name."""
    return field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static,))
def noun(cls: type[T]) -> type[T]:
    """The class as a frozen dataclass and a pytree, its fields the leaves unless `static`.

    Nouns are equal and hashed by identity, so that their methods can be compiled as they are:
    `jax.jit(problem.gradient)`. (A method of an `equinox.Module` that holds arrays cannot.)
    """
    cls = dataclass(frozen=True, eq=False, repr=False)(cls)
    names = [f.name for f in fields(cls)]  # pyright: ignore[reportArgumentType]
    fixed = {f.name for f in fields(cls) if f.metadata.get("static")}  # pyright: ignore
    moving = [name for name in names if name not in fixed]

    def flatten(noun: T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        leaves = [(jax.tree_util.GetAttrKey(name), getattr(noun, name)) for name in moving]
        return leaves, tuple(getattr(noun, name) for name in names if name in fixed)

    def unflatten(structure: tuple[Any, ...], leaves: Any) -> T:
        noun = object.__new__(cls)
        values = dict(zip(moving, leaves, strict=True))
        values.update(zip([name for name in names if name in fixed], structure, strict=True))
        set_fields(noun, **values)
        return noun

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    cls.__repr__ = lambda self: eqx.tree_pformat(jax.tree.map(_plain, self))
    return cls


def _plain(leaf: Any) -> Any:
    """A single number as it is written; arrays are shown by shape."""
    return float(leaf) if isinstance(leaf, np.ndarray) and leaf.ndim == 0 else leaf


def set_fields(noun: Any, **values: Any) -> None:
    """Sets the fields of a noun while it is being built."""
    for name, value in values.items():
        object.__setattr__(noun, name, value)
