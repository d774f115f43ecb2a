"""What is asked of params and of a problem at the door, before anything is compiled or computed."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Array, PyTree

from .chunks import Chunks
from .problem import Problem
from .tree import (
    add_scaled,
    inside_transformation,
    is_concrete,
    is_finite,
    named_leaves,
    norm,
    rounding_of,
    weighted_sum,
)

# Above this size a closed-over array is worth a word: as a constant of a compiled program it slows
# compilation down, from seconds to minutes at some hundred megabytes.
LARGE_CLOSURE_BYTES = 2**20

# On how many samples a loss given per chunk is tried: few, so that what mixes them shows.
_TRIED_SAMPLES = 64


def as_params(params: PyTree, finite: bool = True) -> PyTree:
    """`params` as JAX arrays; raises unless they are a pytree of floats, not empty, and finite.

    Whether they are finite is not asked where `finite` is false.
    """
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
                f"{type(leaf).__name__}: problem and params of an Equinox model come from "
                "`cf.equinox.problem`, those of a Flax module from `cf.flax.problem`; make a "
                "dataclass a pytree by `jax.tree_util.register_dataclass`"
            )
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise TypeError(
                f"`params` must be a pytree of float arrays, but the leaf {path} has dtype "
                f"{jnp.result_type(leaf)}: convert it with `.astype(float)`"
            )
    if sum(np.size(leaf) for leaf in leaves.values()) == 0:
        raise ValueError("`params` must hold at least one number, got only empty arrays")
    if finite and is_concrete(params):
        for path, leaf in leaves.items():
            if not np.all(np.isfinite(np.asarray(leaf))):
                raise ValueError(
                    f"`params` must be finite, but the leaf {path} contains NaN or infinity"
                )
    # Without weak types, which would make `jit` compile everything a second time.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.result_type(leaf)), params)


def as_model_params(params: PyTree, remedy: str) -> PyTree:
    """The params of a model as JAX arrays, as `as_params`; single precision is told.

    Args:
        params: The params, found in the model.
        remedy: What else it takes to make a model of this kind in double precision.
    """
    params = as_params(params)
    told = single_precision(params)
    if told is not None:
        warnings.warn(f"the params are {told}; {remedy}", stacklevel=3)
    return params


def single_precision(params: PyTree) -> str | None:
    """What is lost with params that are not in double precision and what to do, if they are not."""
    names = sorted({leaf.dtype.name for leaf in jax.tree.leaves(params)})
    if names == ["float64"]:
        return None
    return (
        f"{' and '.join(names)}: relative rounding is {rounding_of(params):.2g}, and what an order "
        "adds to the velocity is lost where it is smaller, often from the second counter term on; "
        'use `jax.config.update("jax_enable_x64", True)` before making params and data'
    )


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
    _require_one_place(problem, params)
    _tell_large_closure(problem, params)
    require_loss_per_sample(problem, params)
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


def _require_one_place(problem: Problem, params: PyTree) -> None:
    # Only arrays that were put somewhere stay there; JAX moves the others by itself.
    places = {
        f"`{name}`{'' if path == '(the only leaf)' else path}": leaf.sharding.device_set
        for name, tree in (("params", params), ("data", problem.data))
        for path, leaf in named_leaves(tree).items()
        if isinstance(leaf, jax.Array) and leaf.committed
    }
    for path, place in places.items():
        first = next(iter(places))
        if place != places[first]:
            raise ValueError(
                f"params and data must lie on the same devices, but {first} lies on "
                f"{_listed(places[first])} and {path} on {_listed(place)}: move one of them, "
                "`params = jax.device_put(params, device)`"
            )


def _listed(devices: set[Any]) -> str:
    return ", ".join(sorted(map(str, devices)))


def require_loss_per_sample(problem: Problem, params: PyTree) -> None:
    """Raises where a loss given per chunk is not the mean over the samples of the chunk."""
    function = problem.function
    if not isinstance(function, Chunks):
        return
    most = min(max(function.size, 2), _TRIED_SAMPLES, function.count(problem.data))
    if most < 2:
        return
    loss, off_loss, gradient, off_gradient = map(float, _halves(problem, params, most // 2))
    tolerance = 1e-6 if rounding_of(params) < 1e-10 else 1e-2
    # Not NaN, which is told by itself.
    if off_loss > tolerance * loss or off_gradient > tolerance * gradient:
        raise ValueError(
            "`loss` must be the mean over the samples of a chunk, but on "
            f"{2 * (most // 2)} samples it differs from the mean over their two halves: by "
            f"{off_loss / max(loss, 1e-300):.1g} of its value, its gradient by "
            f"{off_gradient / max(gradient, 1e-300):.1g}. Take the mean, not the sum; and what "
            "mixes samples, such as batch normalization, needs the full batch in one piece: "
            "`Problem(loss, data)`"
        )


@eqx.filter_jit
def _halves(problem: Problem, params: PyTree, half: int) -> tuple[Array, Array, Array, Array]:
    """The sizes of a loss and of its gradient on few samples, each with its distance from halves.

    With a rounding error of the loss added to the gradient's size, as it may vanish.
    """
    function = problem.function
    assert isinstance(function, Chunks)
    parts = [
        jax.value_and_grad(function.mean)(params, problem.data, start, size)
        for start, size in ((0, 2 * half), (0, half), (half, half))
    ]
    (loss, gradient), (first, first_gradient), (second, second_gradient) = parts
    mean = weighted_sum((0.5, 0.5), (first_gradient, second_gradient))
    sizes = jnp.abs(first) + jnp.abs(second)
    return (
        sizes,
        jnp.abs(loss - (first + second) / 2),
        norm(first_gradient) + norm(second_gradient) + rounding_of(params) * sizes,
        norm(add_scaled(gradient, -1, mean)),
    )


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
