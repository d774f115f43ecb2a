"""A training problem: a loss or a vector field, its data and its weight decay."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .noun import noun, set_fields, static
from .numbers import require_weight_decay
from .tree import add_scaled, named_leaves


@noun
class Problem:
    """A loss `f(θ)` with weight decay λ, and its gradient `g(θ) = ∇f(θ) + λθ`.

    A problem is a pytree: `data` and `weight_decay` are leaves that pass through `jit`, `vmap` and
    `scan` as arguments, the function is static. Nothing is compiled or evaluated here. Where the
    data are large, compile functions of the problem (`jax.jit(Problem.gradient)(problem, params)`),
    not its methods, of whose programs the data would be constants.

    Args:
        loss: A scalar function, `loss(params)` or, with `data`, `loss(params, data)`. The params
            are any pytree of float arrays.
        data: Any pytree of arrays, handed to `loss` as its second argument. Large arrays belong
            here and not in a closure, where `jit` would turn them into constants.
        weight_decay: The λ ≥ 0 of `g = ∇f + λθ`.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4, weight_decay=0.1)
        >>> problem.loss(jnp.array([2.0])), problem.gradient(jnp.array([2.0]))
        (Array(4., dtype=float64), Array([8.2], dtype=float64))
    """

    function: Callable[..., Any] = static()
    data: PyTree
    weight_decay: Any

    def __init__(self, loss: Callable[..., Any], data: PyTree = None, weight_decay: Any = 0.0):
        _require_function(loss, "gradient" if isinstance(loss, _VectorField) else "loss", data)
        weight_decay = require_weight_decay(weight_decay)
        set_fields(self, function=loss, data=_as_arrays(data), weight_decay=weight_decay)

    @classmethod
    def from_gradient(
        cls, gradient: Callable[..., Any], data: PyTree = None, weight_decay: Any = 0.0
    ) -> "Problem":
        """The problem of a vector field `g(params)` or `g(params, data)`, a gradient or not.

        Explicit Euler on the differential equation `dθ/dt = −g(θ)` is then what gradient descent
        is for a loss. There is no `loss`; `weight_decay` adds `λθ` to the field.

        Example:
            >>> import jax.numpy as jnp
            >>> import counterflow as cf
            >>> rotation = cf.Problem.from_gradient(lambda z: jnp.array([z[1], -z[0]]))
            >>> rotation.gradient(jnp.array([1.0, 2.0]))
            Array([ 2., -1.], dtype=float64)
        """
        return cls(_VectorField(gradient), data, weight_decay)

    @property
    def has_loss(self) -> bool:
        """Whether the problem was given by a loss, not by a vector field."""
        return not isinstance(self.function, _VectorField)

    def evaluate(self, params: PyTree) -> Any:
        """What the function that was given returns at `params`, unchecked."""
        return self.function(params) if self.data is None else self.function(params, self.data)

    def loss(self, params: PyTree) -> Float[Array, ""]:
        """The loss `f(θ)`, without the weight decay."""
        if not self.has_loss:
            raise ValueError(
                "a problem given by `Problem.from_gradient` has no loss, only a gradient; "
                "use `Problem(loss, …)` where the vector field is the gradient of a loss"
            )
        value = self.evaluate(params)
        if not _is_scalar(value):
            raise ValueError(
                "`loss` must return one float (a scalar array), got "
                f"{_describe(value)}: take the mean or the sum over the samples"
            )
        return value

    def gradient(self, params: PyTree) -> PyTree:
        """The gradient with weight decay, `g(θ) = ∇f(θ) + λθ`, shaped like `params`."""
        return add_scaled(self.loss_gradient(params), self.weight_decay, params)

    def loss_gradient(self, params: PyTree) -> PyTree:
        """The gradient without weight decay, `∇f(θ)`, or the vector field that was given."""
        if self.has_loss:
            return jax.grad(self.loss)(params)
        gradient = self.evaluate(params)
        _require_alike(gradient, params)
        return gradient

    def hessian_vector_product(self, params: PyTree, vector: PyTree) -> PyTree:
        """The derivative of `gradient` along a vector, `(H(θ) + λI) v`, shaped like `params`.

        `H` is the Hessian of the loss; for a problem given by a vector field, its Jacobian.

        Example:
            >>> import jax.numpy as jnp
            >>> import counterflow as cf
            >>> problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4, weight_decay=0.5)
            >>> problem.hessian_vector_product(jnp.array([2.0]), jnp.array([1.0]))
            Array([12.5], dtype=float64)
        """
        return jax.jvp(self.gradient, (params,), (vector,))[1]


@dataclass(frozen=True)
class _VectorField:
    """Marks a function as the gradient itself, not a loss to be differentiated."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def _as_arrays(data: PyTree) -> PyTree:
    """Plain numbers become arrays, so that `jit` does not compile anew for each of them."""
    for path, leaf in named_leaves(data).items():
        if not (hasattr(leaf, "dtype") or isinstance(leaf, bool | int | float)):
            raise TypeError(
                f"`data` must be a pytree of arrays, but the leaf {path} is a "
                f"{type(leaf).__name__}: what is no array belongs into the function"
            )
    return jax.tree.map(lambda x: np.asarray(x) if isinstance(x, (bool, int, float)) else x, data)


def _require_function(function: Any, name: str, data: PyTree) -> None:
    arguments = "params" if data is None else "params, data"
    function = function.function if isinstance(function, _VectorField) else function
    if not callable(function):
        raise TypeError(
            f"`{name}` must be a function {name}({arguments}), got {type(function).__name__}"
        )
    try:
        hash(function)
    except TypeError:
        raise TypeError(
            f"`{name}` must be hashable, got a {type(function).__name__} that is not: if it holds "
            "arrays, pass them as `params` or `data` instead"
        ) from None
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-in functions have no signature
        return
    try:
        signature.bind(*arguments.split(", "))
    except TypeError:
        hint = "pass `data=…` if it takes data" if data is None else "it must take the data second"
        raise TypeError(
            f"`{name}` must accept {name}({arguments}), got the signature {signature}: {hint}"
        ) from None


def _require_alike(gradient: PyTree, params: PyTree) -> None:
    if jax.tree.structure(gradient) != jax.tree.structure(params):
        raise ValueError(
            "the gradient must have the structure of params, "
            f"{jax.tree.structure(params)}, got {jax.tree.structure(gradient)}"
        )
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(gradient), strict=True):
        same_dtype = jnp.result_type(ours) == jnp.result_type(theirs)
        if jnp.shape(ours) != jnp.shape(theirs) or not same_dtype:
            raise ValueError(
                "the gradient must have the shapes and dtypes of params, "
                f"{_describe(ours)}, got {_describe(theirs)}"
            )


def _is_scalar(value: Any) -> bool:
    is_array = isinstance(value, jax.Array | np.ndarray | np.generic | float)
    return (
        is_array and jnp.shape(value) == () and jnp.issubdtype(jnp.result_type(value), jnp.floating)
    )


def _describe(value: Any) -> str:
    if not hasattr(value, "shape"):
        return f"a value of type {type(value).__name__}"
    return f"an array of shape {jnp.shape(value)} and dtype {jnp.result_type(value)}"
