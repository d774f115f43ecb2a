"""What is asked of params and of a problem at the door, before anything is compiled or computed."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import PyTree

from .problem import Problem
from .tree import inside_transformation, is_concrete, is_finite, named_leaves

# Above this size a closed-over array is worth a word: as a constant of a compiled program it slows
# compilation down, from seconds to minutes at some hundred megabytes.
LARGE_CLOSURE_BYTES = 2**20


def as_params(params: PyTree) -> PyTree:
    """`params` as JAX arrays; raises unless they are a pytree of finite floats, not empty."""
    leaves = named_leaves(params)
    if not leaves:
        raise ValueError(
            "`params` must hold at least one float array, got a pytree without leaves: "
            f"{jax.tree.structure(params)}"
        )
    for path, leaf in leaves.items():
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | float):
            raise TypeError(
                f"`params` must be a pytree of float arrays, but the leaf {path} is a "
                f"{type(leaf).__name__}: of an Equinox module, pass the arrays alone "
                "(`eqx.partition(model, eqx.is_inexact_array)`) and combine them inside the loss; "
                "make a dataclass a pytree by `jax.tree_util.register_dataclass`"
            )
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise TypeError(
                f"`params` must be a pytree of float arrays, but the leaf {path} has dtype "
                f"{jnp.result_type(leaf)}: convert it with `.astype(float)`"
            )
    if sum(np.size(leaf) for leaf in leaves.values()) == 0:
        raise ValueError("`params` must hold at least one number, got only empty arrays")
    if is_concrete(params):
        for path, leaf in leaves.items():
            if not np.all(np.isfinite(np.asarray(leaf))):
                raise ValueError(
                    f"`params` must be finite, but the leaf {path} contains NaN or infinity"
                )
    # Without weak types, which would make `jit` compile everything a second time.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.result_type(leaf)), params)


def require_problem(problem: Problem) -> Problem:
    """The problem; raises unless it is a `Problem`."""
    if not isinstance(problem, Problem):
        raise TypeError(
            f"`problem` must be a `Problem`, got {type(problem).__name__}: "
            "wrap a loss as `Problem(loss, data)`"
        )
    return problem


def at_the_door(problem: Problem, params: PyTree) -> PyTree:
    """`params` as JAX arrays; raises unless loss and gradient exist there and are finite.

    Inside a JAX transformation, where there may be no values to look at, only the structure is
    checked.
    """
    require_problem(problem)
    params = as_params(params)
    if not is_concrete((problem, params)) or inside_transformation():
        return params
    _tell_large_closure(problem, params)
    loss, finite = _evaluate(problem, params)
    if loss is not None and not np.isfinite(loss):
        raise ValueError(
            f"`loss` must be finite at `params`, got {loss}: check the data and the initial params"
        )
    if not bool(finite):
        raise ValueError(
            "the gradient must be finite at `params`, got NaN or infinity: check the data and the "
            "initial params, and look for 0/0 or sqrt(0) inside the function"
        )
    return params


@eqx.filter_jit
def _evaluate(problem: Problem, params: PyTree):
    loss = problem.loss(params) if problem.has_loss else None
    return loss, is_finite(problem.gradient(params))


def closure_bytes(problem: Problem, params: PyTree) -> int:
    """The size of the arrays that the problem's function closes over, outside of `data`."""
    return _constant_bytes(jax.make_jaxpr(Problem.evaluate)(problem, params))


def _constant_bytes(value: Any) -> int:
    """The size of the constants of a jaxpr, those of functions jitted inside included."""
    if isinstance(value, ClosedJaxpr):
        return sum(const.nbytes for const in value.consts) + _constant_bytes(value.jaxpr)
    if isinstance(value, Jaxpr):
        inner = [list(equation.params.values()) for equation in value.eqns]
        return sum(map(_constant_bytes, inner))
    if isinstance(value, list | tuple):
        return sum(map(_constant_bytes, value))
    return 0


def _tell_large_closure(problem: Problem, params: PyTree) -> None:
    size = closure_bytes(problem, params)
    if size >= LARGE_CLOSURE_BYTES:
        warnings.warn(
            f"the loss closes over {size / 2**20:.1f} MiB of arrays, which become constants of "
            "every compiled program and slow compilation down: pass them as `data=…` and take "
            "them as the second argument, `loss(params, data)`",
            stacklevel=4,
        )
