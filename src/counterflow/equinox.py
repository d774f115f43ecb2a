"""Equinox models as problems: `problem, params = problem(model, loss, inputs, targets)`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from .problem.function import require_function
from .problem.model import Constant, require_fitting
from .problem.problem import Problem
from .problem.requirements import as_model_params


def problem(
    model: PyTree,
    loss: Callable[..., Any],
    inputs: PyTree,
    targets: PyTree,
    weight_decay: Any = 0.0,
    apply: Callable[..., Any] | None = None,
) -> tuple[Problem, PyTree]:
    """The problem of an Equinox model, and its params: the float arrays of the model.

    What else is in the model (functions, integers) becomes part of the problem's function.

    Args:
        model: The model, a module of Equinox or any pytree with float arrays.
        loss: `loss(outputs, targets)`, as for `Problem.from_model`.
        inputs: All inputs; samples are numbered along the first axis.
        targets: The targets, as many.
        weight_decay: The λ ≥ 0 of `g = ∇f + λθ`.
        apply: The outputs for all inputs, `apply(model, inputs)`; by default
            `jax.vmap(model)(inputs)`. A model with a state, such as that of `eqx.nn.BatchNorm`,
            needs one; it drops the new state.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp
        >>> import counterflow as cf
        >>> import counterflow.equinox
        >>> model = eqx.nn.MLP(
        ...     2, 1, width_size=8, depth=1, activation=jnp.tanh, key=jax.random.key(0)
        ... )
        >>> inputs = jnp.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> targets = jnp.array([[1.0], [1.0], [0.0]])
        >>> square = lambda outputs, targets: (outputs - targets) ** 2
        >>> problem, params = cf.equinox.problem(model, square, inputs, targets)
        >>> trajectory = cf.solve(cf.GradientFlow(problem), params, [0.0, 10.0])
        >>> end = jax.tree.map(lambda leaf: leaf[-1], trajectory.params)
        >>> trained = cf.equinox.load(model, end)
        >>> bool(problem.loss(end) < problem.loss(params)), trained(inputs[0]).shape
        (True, (1,))
    """
    if isinstance(model, type):
        raise TypeError(f"`model` must be a model, got the class {model.__name__}: make one of it")
    if apply is None:
        _require_simple(model)
    else:
        require_function(apply, "apply", "model, inputs", "it must take the inputs second")
    _require_training_mode(model)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    params = as_model_params(params, "make the layers with `dtype=float`")
    whole = _Apply(Constant.of(static), apply)
    return Problem.from_model(whole, loss, (inputs, targets), weight_decay), params


def load(model: PyTree, params: PyTree) -> PyTree:
    """The model with these params in place of its own, which stay as they are.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp
        >>> import counterflow as cf
        >>> import counterflow.equinox
        >>> model = eqx.nn.Linear(2, 1, use_bias=False, key=jax.random.key(0))
        >>> params = eqx.filter(model, eqx.is_inexact_array)
        >>> cf.equinox.load(model, jax.tree.map(jnp.zeros_like, params)).weight
        Array([[0., 0.]], dtype=float64)
    """
    own, static = eqx.partition(model, eqx.is_inexact_array)
    require_fitting(params, own)
    return eqx.combine(params, static)


@dataclass(frozen=True)
class _Apply:
    """The model's outputs as a function of params and inputs."""

    static: Constant
    function: Callable[..., Any] | None

    def __call__(self, params: PyTree, inputs: PyTree) -> Any:
        model = eqx.combine(params, self.static.tree())
        return jax.vmap(model)(inputs) if self.function is None else self.function(model, inputs)


def _nodes(model: PyTree, kind: type) -> list[Any]:
    is_one = lambda node: isinstance(node, kind)  # noqa: E731
    return [node for node in jax.tree.leaves(model, is_leaf=is_one) if is_one(node)]


def _require_simple(model: PyTree) -> None:
    """Raises unless the model can be mapped over the inputs as it is."""
    if not callable(model):
        raise TypeError(
            f"`model` must be callable, got {type(model).__name__}: pass `apply(model, inputs)`"
        )
    if _nodes(model, eqx.nn.StateIndex):
        raise ValueError(
            "`model` must map one input to one output, but holds a layer with a state, such as "
            "`eqx.nn.BatchNorm`: pass `apply`, which calls it with the state and drops the new "
            "one: `lambda model, inputs: jax.vmap(model, axis_name=…, in_axes=(0, None), "
            "out_axes=(0, None))(inputs, state)[0]`"
        )
    if any(layer.p > 0 and not layer.inference for layer in _nodes(model, eqx.nn.Dropout)):
        raise ValueError(
            "`model` must be deterministic, but holds an active `eqx.nn.Dropout`: the theory needs "
            "the full batch and no randomness, so turn it off by `eqx.nn.inference_mode(model)`"
        )


def _require_training_mode(model: PyTree) -> None:
    if any(layer.inference for layer in _nodes(model, eqx.nn.BatchNorm)):
        raise ValueError(
            "batch normalization must use the full batch, but a layer of `model` is in inference "
            "mode and uses running averages: `eqx.nn.inference_mode(model, value=False)`"
        )
