"""Flax NNX modules as problems: `problem, params = problem(module, loss, inputs, targets)`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .problem.function import require_function
from .problem.model import Constant, require_fitting
from .problem.problem import Problem
from .problem.requirements import as_model_params

try:
    from flax import linen, nnx
except ImportError as error:
    raise ImportError(
        "`counterflow.flax` needs Flax, which is not installed: pip install '.[flax]' in a clone "
        "of counterflow"
    ) from error


def problem(
    module: nnx.Module,
    loss: Callable[..., Any],
    inputs: PyTree,
    targets: PyTree,
    weight_decay: Any = 0.0,
    apply: Callable[..., Any] | None = None,
) -> tuple[Problem, PyTree]:
    """The problem of a Flax NNX module, and its params: nested dictionaries of its `nnx.Param`s.

    The module is copied: what calls change in it, such as running averages, changes nowhere else.
    Modules of Flax Linen are functions already: `Problem.from_model(module.apply, …)`.

    Args:
        module: The module, in training mode, so that batch normalization uses the full batch.
        loss: `loss(outputs, targets)`, as for `Problem.from_model`.
        inputs: All inputs; samples are numbered along the first axis.
        targets: The targets, as many.
        weight_decay: The λ ≥ 0 of `g = ∇f + λθ`.
        apply: The outputs for all inputs, `apply(module, inputs)`; by default `module(inputs)`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from flax import nnx
        >>> import counterflow as cf
        >>> import counterflow.flax
        >>> module = nnx.Linear(2, 1, use_bias=False, param_dtype=float, rngs=nnx.Rngs(0))
        >>> inputs, targets = jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.array([[1.0], [2.0]])
        >>> square = lambda outputs, targets: (outputs - targets) ** 2
        >>> problem, params = cf.flax.problem(module, square, inputs, targets)
        >>> {name: leaf.shape for name, leaf in params.items()}
        {'kernel': (2, 1)}
        >>> trajectory = cf.solve(cf.GradientFlow(problem), params, [0.0, 30.0])
        >>> end = jax.tree.map(lambda leaf: leaf[-1], trajectory.params)
        >>> cf.flax.load(module, end).kernel[...].round(6)
        Array([[2.], [1.]], dtype=float64)
    """
    _require_module(module)
    if apply is not None:
        require_function(apply, "apply", "module, inputs", "it must take the inputs second")
    _require_training_mode(module)
    graph, state, rest = nnx.split(module, nnx.Param, ...)
    params = as_model_params(nnx.to_pure_dict(state), "make the layers with `param_dtype=float`")
    # What a layer keeps besides, such as running averages, takes what is computed with the params.
    dtype = jnp.result_type(*jax.tree.leaves(params))
    others = jax.tree.map(
        lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf,
        nnx.to_pure_dict(rest),
    )
    whole = _Apply(graph, Constant.of(others), apply)
    jax.eval_shape(whole, params, inputs)  # raises where the module draws random numbers
    return Problem.from_model(whole, loss, (inputs, targets), weight_decay), params


def load(module: nnx.Module, params: PyTree) -> nnx.Module:
    """The module itself, with these params written into it.

    Example:
        >>> from flax import nnx
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> import counterflow.flax
        >>> module = nnx.Linear(2, 1, use_bias=False, param_dtype=float, rngs=nnx.Rngs(0))
        >>> cf.flax.load(module, {"kernel": jnp.zeros((2, 1))}).kernel[...]
        Array([[0.], [0.]], dtype=float64)
    """
    _require_module(module)
    state = nnx.state(module, nnx.Param)
    require_fitting(params, nnx.to_pure_dict(state))
    nnx.replace_by_pure_dict(state, params)
    nnx.update(module, state)
    return module


@dataclass(frozen=True)
class _Apply:
    """The module's outputs as a function of params and inputs."""

    graph: Any
    others: Constant
    function: Callable[..., Any] | None

    def __call__(self, params: PyTree, inputs: PyTree) -> Any:
        module = nnx.merge(self.graph, params, self.others.tree())
        before = _random_counts(module)
        outputs = module(inputs) if self.function is None else self.function(module, inputs)
        if any(a is not b for a, b in zip(before, _random_counts(module), strict=True)):
            raise ValueError(
                "`module` must be deterministic, but draws random numbers, as dropout does: the "
                "theory needs the full batch and no randomness, so turn it off by "
                "`module.set_attributes(nnx.Dropout, deterministic=True)`"
            )
        return outputs


def _random_counts(module: nnx.Module) -> list[Any]:
    """How many random numbers each stream of the module has given."""
    return jax.tree.leaves(nnx.to_pure_dict(nnx.state(module, nnx.RngCount)))


def _require_module(module: Any) -> None:
    if isinstance(module, linen.Module):
        raise TypeError(
            f"`module` must be a module of Flax NNX, got {type(module).__name__} of Flax Linen: "
            "that is a function already, `cf.Problem.from_model(module.apply, loss, (inputs, "
            "targets))` with `params = module.init(key, inputs)`"
        )
    if not isinstance(module, nnx.Module):
        came = f"the class {module.__name__}" if isinstance(module, type) else type(module).__name__
        raise TypeError(f"`module` must be a module of Flax NNX, got {came}")


def _require_training_mode(module: nnx.Module) -> None:
    for path, node in nnx.iter_graph(module):
        if isinstance(node, nnx.BatchNorm) and node.use_running_average:
            name = ".".join(map(str, path)) or "module"
            raise ValueError(
                f"batch normalization must use the full batch, but the layer {name} is in "
                "inference mode and uses running averages: call `module.train()`"
            )
