"""What is asked of modules, data and losses."""

from typing import Any

import jax
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

_EPSILON = float(np.finfo(np.float64).eps)


def trainable(module: nn.Module) -> dict[str, Any]:
    """The parameters of a module that it trains, by name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def require_is_module(module: Any) -> None:
    """Raises unless it is a module of PyTorch."""
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"`module` must be a `torch.nn.Module`, got {type(module).__name__}: the problem of a "
            "JAX function is `cf.Problem(loss, data)`"
        )


def require_module(module: Any) -> None:
    """Raises unless a module is on the CPU, in double precision and has something to train."""
    require_is_module(module)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        require_numbers(tensor, f"{name!r} of `module`")
        _require_cpu(
            tensor, f"`module` must be on the CPU, but {name!r}", "copy.deepcopy(module).cpu()"
        )
    parameters = dict(module.named_parameters())
    for name, parameter in parameters.items():
        inexact = parameter.is_floating_point() or parameter.is_complex()
        if inexact and parameter.dtype != torch.float64:
            raise TypeError(
                f"the parameters of `module` must be of float64, but {name!r} is of "
                f"{_name(parameter.dtype)}: convert a copy, `copy.deepcopy(module).double()`, and "
                "your own module stays as it is"
            )
    if not trainable(module):
        listed = ", ".join(f"{name!r} of {_name(p.dtype)}" for name, p in parameters.items())
        raise ValueError(
            "`module` must have a trainable parameter, got "
            + (f"none that requires a gradient among {listed}" if parameters else "none at all")
            + ": `parameter.requires_grad_()` makes one trainable, if it holds floats"
        )


def require_numbers(tensor: Any, what: str) -> None:
    """Raises if a tensor has a shape alone."""
    if tensor.device.type == "meta":
        raise ValueError(
            f"{what} must hold numbers, but is on 'meta', where there are none: make the module on "
            "a device, or `module.to_empty(device='cpu')` and load its parameters"
        )


def _require_cpu(tensor: Any, what: str, remedy: str) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"{what} is on {str(tensor.device)!r}: take a copy that is, `{remedy}`")


def copied(value: Any, name: str) -> Any:
    """Tensors, arrays and containers of them as new tensors; raises unless their floats fit."""
    if isinstance(value, tuple | list):
        return type(value)([copied(part, name) for part in value])
    if isinstance(value, dict):
        return {key: copied(part, name) for key, part in value.items()}
    if isinstance(value, np.ndarray | jax.Array):
        value = torch.tensor(np.asarray(value))
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"`{name}` must be a tensor or an array, or a tuple, list or dictionary of them, got "
            f"{type(value).__name__}"
        )
    require_numbers(value, f"`{name}`")
    _require_cpu(value, f"`{name}` must be on the CPU, but", f"{name}.cpu()")
    if value.is_floating_point() and value.dtype != torch.float64:
        raise TypeError(
            f"`{name}` must be of float64, as the module is, or integers, got "
            f"{_name(value.dtype)}: convert them with `{name}.double()`"
        )
    return value.detach().clone()


def require_threads(threads: Any) -> None:
    """Raises unless it is a number of threads, or none."""
    if threads is None or (type(threads) is int and threads > 0):
        return
    raise ValueError(f"`threads` must be None or an integer of at least 1, got {threads!r}")


def require_scalar(value: Any) -> None:
    """Raises unless a loss is one finite number that depends on the parameters."""
    if not isinstance(value, torch.Tensor) or value.shape != ():
        got = f"shape {tuple(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        raise ValueError(
            f"`loss` must return one number, a tensor of shape (), got {got}: take the mean or the "
            'sum over the samples, as reduction="mean" does'
        )
    if value.dtype != torch.float64:
        raise TypeError(
            f"`loss` must return a number of float64, got {_name(value.dtype)}: look for `.float()`"
            " and the like inside the module or the loss"
        )
    if not torch.isfinite(value):
        raise ValueError(
            f"`loss` must be finite at the parameters of the module, got {value.item()}: check the "
            "inputs and the initial parameters"
        )
    if not value.requires_grad:
        raise ValueError(
            "`loss` must depend on the parameters of the module, but PyTorch sees no dependence: "
            "look for `.detach()`, `.item()` or `torch.no_grad()` inside the module or the loss"
        )


def _differ(one: float, other: float) -> bool:
    return not abs(one - other) <= 1e3 * _EPSILON * max(abs(one), abs(other))


def require_deterministic(first: float, second: float, module: nn.Module) -> None:
    """Raises unless two evaluations of a loss agree."""
    if _differ(first, second):
        layers = [name for name, part in module.named_modules() if "Dropout" in type(part).__name__]
        culprits = f" take out {', '.join(map(repr, layers))}, or set p=0;" if layers else ""
        raise ValueError(
            f"`loss` must be deterministic, but two evaluations gave {first:.9g} and {second:.9g}: "
            f"the theory is one of the full batch without dropout or noise;{culprits} draw random "
            "numbers once, outside of the module"
        )


def require_training_mode(value: float, training: float) -> None:
    """Raises unless a loss is the same in training mode."""
    if _differ(value, training):
        raise ValueError(
            f"`module` must be in training mode, got one in eval mode, where the loss is "
            f"{value:.9g} instead of {training:.9g}: call `module.train()`; batch normalization "
            "then uses the statistics of all inputs, and dropout has to go (p=0)"
        )


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
