"""A function on the host, called with NumPy arrays from inside a compiled program.

`jax.pure_callback` does the same, but turns the arguments into JAX arrays first. Above 100 KiB that
is left to JAX's own threads, and where all of them are waiting in such calls (on one core, in the
second of two programs under way) none is left to do it, and they wait for ever. Here nothing is
asked of JAX while the function runs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jaxtyping import PyTree

_call = Primitive("host_call")
_call.multiple_results = True


def host_call(function: Callable[..., PyTree], results: PyTree, *arguments: PyTree) -> PyTree:
    """What a pure function of pytrees of NumPy arrays returns; `vmap` calls it one by one.

    It is not called where its results are not used. It has no derivatives: wrap it in a
    `jax.custom_jvp`.

    Args:
        function: The function. The same one must be passed each time, lest everything is compiled
            anew; it may not use JAX.
        results: A pytree with the shapes and dtypes of what it returns.
        arguments: What it is called with.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> def halve(x):
        ...     return x / 2
        >>> jax.jit(lambda x: host_call(halve, x, x))(jnp.array([1.0, 2.0]))
        Array([0.5, 1. ], dtype=float64)
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes, result_structure = jax.tree.flatten(results)
    found = _call.bind(
        *leaves,
        function=function,
        structure=structure,
        shapes=tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in shapes),
    )
    return result_structure.unflatten(found)


def _run(leaves: Sequence[Any], function: Callable[..., PyTree], structure: Any) -> list[Any]:
    found = function(*structure.unflatten([np.asarray(leaf) for leaf in leaves]))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


@_call.def_impl
def _now(*leaves, function, structure, shapes):
    del shapes
    return [jnp.asarray(leaf) for leaf in _run(leaves, function, structure)]


@_call.def_abstract_eval
def _abstract(*leaves, function, structure, shapes):
    del leaves, function, structure
    return [ShapedArray(shape, dtype) for shape, dtype in shapes]


def _lower(context, *leaves, function, structure, shapes):
    del shapes
    results, _, _ = mlir.emit_python_callback(
        context,
        lambda *values: tuple(_run(values, function, structure)),
        None,
        list(leaves),
        context.avals_in,
        context.avals_out,
        has_side_effect=False,
        returns_token=False,
    )
    return results


def _batch(leaves, axes, **options):
    mapped = [axis is not None for axis in axes]
    moving = [
        jnp.moveaxis(x, axis, 0) for x, axis, m in zip(leaves, axes, mapped, strict=True) if m
    ]

    def one(values):
        rest = iter(values)
        return _call.bind(
            *[next(rest) if m else x for x, m in zip(leaves, mapped, strict=True)], **options
        )

    results = jax.lax.map(one, moving)
    return results, [0] * len(results)


mlir.register_lowering(_call, _lower, cacheable=False)
batching.primitive_batchers[_call] = _batch
