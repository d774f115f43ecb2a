"""From a module to a problem, and back."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from ..problem.problem import Problem
from .differentiation import as_jax_function, require_derivatives
from .model import Model, Params, as_array
from .requirements import (
    copied,
    require_is_module,
    require_module,
    require_numbers,
    require_threads,
    trainable,
)


def problem(
    module: nn.Module,
    loss: Callable[[Any, Any], Any],
    inputs: Any,
    targets: Any,
    weight_decay: Any = 0.0,
    threads: int | None = None,
) -> tuple[Problem, Params]:
    """The problem of training a PyTorch module on one full batch, and the module's parameters.

    The module and the data are copied once and never changed; a call copies the parameters and the
    buffers. A module in training mode stays so: batch normalization uses the statistics of all
    inputs, and leaves the running ones alone (it refuses eps=0, for which eps=1e-300 will do).
    Gradient and Hessian-vector product are compared here with finite differences.

    Orders 0 and 1 work with every method, higher ones and predictions of the error of order 1 with
    `method="orbit"`.

    Args:
        module: The module, in double precision and on the CPU; of another one, a copy that is,
            `copy.deepcopy(module).cpu().double()`. Parameters with `requires_grad=False` are no
            params and stay as they are.
        loss: `loss(outputs, targets)`, a scalar tensor: `nn.CrossEntropyLoss()`, `F.mse_loss`, any
            function.
        inputs: What the module is called with: a tensor or an array, a tuple for several arguments.
        targets: What the loss is called with besides.
        weight_decay: The λ ≥ 0 of `g = ∇f + λθ`.
        threads: How many threads PyTorch may use, by default as many as it is set to.

    Returns:
        The problem and its params, a dictionary with the names of `module.named_parameters()`.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import counterflow as cf
        >>> import counterflow.torch
        >>> layer = nn.Linear(2, 1, bias=False).double()
        >>> inputs, targets = torch.eye(2, dtype=torch.float64), torch.ones(2, 1).double()
        >>> problem, params = cf.torch.problem(layer, nn.MSELoss(), inputs, targets)
        >>> list(params)
        ['weight']
        >>> problem.gradient({"weight": params["weight"] * 0})
        {'weight': Array([[-1., -1.]], dtype=float64)}
    """
    if jnp.result_type(float) != np.float64:
        raise ValueError(
            "JAX must be in double precision, as the module is, got float32: "
            '`jax.config.update("jax_enable_x64", True)` before anything else'
        )
    require_module(module)
    if not callable(loss):
        raise TypeError(
            f"`loss` must be a function loss(outputs, targets), got {type(loss).__name__}"
        )
    require_threads(threads)
    model = Model(module, loss, copied(inputs, "inputs"), copied(targets, "targets"), threads)
    start = params(module)
    model.require_usable(start)
    found = Problem(as_jax_function(model, start), weight_decay=weight_decay)
    require_derivatives(found, start)
    return found, start


def params(module: nn.Module) -> Params:
    """The trainable parameters of a module as they are now, by name; as `problem` gives them.

    They are copied, to double precision and from wherever the module is: a training loop may go on
    as it is. For a `Monitor` of such a loop, `monitor(step, lambda: cf.torch.params(module))`.

    Args:
        module: The module, in any precision and on any device.

    Example:
        >>> import torch
        >>> import counterflow.torch
        >>> layer = torch.nn.Linear(2, 1, bias=False)
        >>> found = counterflow.torch.params(layer)["weight"]
        >>> found.shape, found.dtype
        ((1, 2), dtype('float64'))
    """
    require_is_module(module)
    found = trainable(module)
    for name, parameter in found.items():
        require_numbers(parameter, f"{name!r} of `module`")
    return {name: jnp.array(as_array(p.detach().cpu().double())) for name, p in found.items()}


def load(module: nn.Module, params: Mapping[str, Any]) -> nn.Module:
    """The module itself, with `params` written into its trainable parameters.

    Running statistics of batch normalization are not params and stay as they are: `module(inputs)`
    in training mode brings them up to date.

    Args:
        module: The module, changed in place.
        params: Params as `problem` gives them.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> import counterflow.torch
        >>> layer = torch.nn.Linear(2, 1, bias=False)
        >>> counterflow.torch.load(layer, {"weight": np.array([[3.0, 4.0]])}).weight
        Parameter containing:
        tensor([[3., 4.]], requires_grad=True)
    """
    require_is_module(module)
    parameters = trainable(module)
    if not isinstance(params, Mapping) or set(params) != set(parameters):
        given = sorted(map(str, params)) if isinstance(params, Mapping) else type(params).__name__
        raise ValueError(
            "`params` must be a dictionary with the names of the module's trainable parameters, "
            f"{sorted(parameters)}, got {given}"
        )
    for name, parameter in parameters.items():
        if np.shape(params[name]) != tuple(parameter.shape):
            raise ValueError(
                f"`params` must have the shapes of the module's parameters, {name!r} that of "
                f"{tuple(parameter.shape)}, got {np.shape(params[name])}: of the params of several "
                "records, take one (`jax.tree.map(lambda leaf: leaf[-1], run.params)`)"
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.tensor(np.asarray(params[name])))
    return module
