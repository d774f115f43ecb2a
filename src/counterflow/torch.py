"""Problems from PyTorch modules: PyTorch computes loss, gradient and Hessian-vector products.

    import counterflow as cf
    import counterflow.torch

    problem, params = cf.torch.problem(module, loss, inputs, targets)
    params = cf.torch.params(module)
    module = cf.torch.load(module, params)

Hessian-vector products are taken backward through the gradient (reverse over reverse), so that
every operation with a double backward works; forward mode lacks common ones. Derivatives of them
are refused: PyTorch's third derivatives of fused normalization layers are wrong without a word.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .counter_terms.checks.smoothness import random_direction, size_of
from .problem.host_call import host_call
from .problem.problem import Problem
from .problem.tree import add_scaled, distance, inner, scaled

try:
    import torch  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]
    from torch.nn.attention import (  # pyright: ignore[reportMissingImports]
        SDPBackend,
        sdpa_kernel,
    )
except ImportError as error:
    raise ImportError(
        "`counterflow.torch` needs PyTorch 2.3 or newer, which cannot be imported here: "
        "pip install 'counterflow[torch]'"
    ) from error

Params = dict[str, Array]

# A call swaps the parameters of a module and settings of PyTorch, so there is one call at a time.
_ONE_CALL = threading.Lock()
_EPSILON = float(np.finfo(np.float64).eps)


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
        module: The module, in double precision (`module.double()`) and on the CPU. Parameters with
            `requires_grad=False` are no params and stay as they are.
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
    _require_module(module)
    if not callable(loss):
        raise TypeError(
            f"`loss` must be a function loss(outputs, targets), got {type(loss).__name__}"
        )
    _require_threads(threads)
    model = _Model(module, loss, _copied(inputs, "inputs"), _copied(targets, "targets"), threads)
    start = params(module)
    model.require_usable(start)
    found = Problem(_as_jax_function(model, start), weight_decay=weight_decay)
    _require_derivatives(found, start)
    return found, start


def params(module: nn.Module) -> Params:
    """The trainable parameters of a module as they are now, by name; as `problem` gives them.

    They are copied: a training loop may go on. For a `Monitor` of such a loop,
    `monitor(step, lambda: cf.torch.params(module))`.

    Args:
        module: The module.

    Example:
        >>> import torch
        >>> import counterflow.torch
        >>> layer = torch.nn.Linear(2, 1, bias=False).double()
        >>> counterflow.torch.params(layer)["weight"].shape
        (1, 2)
    """
    _require_is_module(module)
    return {name: jnp.array(_as_array(p)) for name, p in _trainable(module).items()}


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
    _require_is_module(module)
    parameters = _trainable(module)
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


# --- PyTorch's side -------------------------------------------------------------------------


class _Model:
    """The loss of a module and its derivatives, as functions of NumPy arrays by name."""

    def __init__(
        self, module: nn.Module, loss: Any, inputs: Any, targets: Any, threads: int | None
    ):
        # What the user does to the module later, say `module.eval()`, must not change the problem.
        self._module, self._loss = copy.deepcopy((module, loss))
        self._inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        self._targets = targets
        self._threads = threads

    def value(self, params: Mapping[str, np.ndarray]) -> np.ndarray:
        with self._settings():
            return _as_array(self._value(_tensors(params)))

    def value_and_gradient(self, params: Mapping[str, np.ndarray]) -> tuple[np.ndarray, PyTree]:
        with self._settings():
            tensors = _tensors(params)
            value = self._value(tensors)
            return _as_array(value), _named(tensors, _gradient([value], tensors))

    def hessian_vector_product(
        self, params: Mapping[str, np.ndarray], vector: Mapping[str, np.ndarray]
    ) -> PyTree:
        with self._settings():
            tensors, along = _tensors(params), [torch.tensor(vector[name]) for name in params]
            gradient = _gradient([self._value(tensors)], tensors, create_graph=True)
            # Of a loss that is linear in a parameter, that part of the gradient does not vary.
            varying = [(g, v) for g, v in zip(gradient, along, strict=True) if g.requires_grad]
            if not varying:
                return {name: np.zeros_like(leaf) for name, leaf in params.items()}
            slopes, vectors = zip(*varying, strict=True)
            return _named(tensors, _gradient(slopes, tensors, grad_outputs=vectors))

    def require_usable(self, params: Params) -> None:
        """Raises unless the loss is one number, depends on the params and on nothing else."""
        arrays = {name: np.asarray(leaf) for name, leaf in params.items()}
        with self._settings():
            first, second = (self._value(_tensors(arrays)) for _ in range(2))
            _require_scalar(first)
            _require_deterministic(first.item(), second.item(), self._module)
            modes = {part: part.training for part in self._module.modules()}
            if not all(modes.values()):
                self._module.train()
                training = self._value(_tensors(arrays)).item()
                for part, mode in modes.items():
                    part.training = mode
                _require_training_mode(first.item(), training)

    def _value(self, tensors: Mapping[str, Any]) -> Any:
        # A call may write into the buffers, as batch normalization does.
        buffers = {name: buffer.clone() for name, buffer in self._module.named_buffers()}
        outputs = torch.func.functional_call(self._module, {**tensors, **buffers}, self._inputs)
        return self._loss(outputs, self._targets)

    @contextmanager
    def _settings(self) -> Iterator[None]:
        with _ONE_CALL:
            before = torch.get_num_threads()
            torch.set_num_threads(self._threads or before)
            try:
                # The fused kernels for attention have no double backward.
                with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
                    yield
            finally:
                torch.set_num_threads(before)


def _trainable(module: nn.Module) -> dict[str, Any]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: torch.tensor(a, requires_grad=True) for name, a in arrays.items()}


def _gradient(values: Any, tensors: Mapping[str, Any], **options: Any) -> Any:
    return torch.autograd.grad(
        values, list(tensors.values()), allow_unused=True, materialize_grads=True, **options
    )


def _named(tensors: Mapping[str, Any], values: Any) -> dict[str, np.ndarray]:
    return {name: _as_array(value) for name, value in zip(tensors, values, strict=True)}


def _as_array(tensor: Any) -> np.ndarray:
    return tensor.detach().numpy()


# --- JAX's side -----------------------------------------------------------------------------


def _as_jax_function(model: _Model, params: Params) -> Callable[[Params], Array]:
    """The loss as a function that JAX can differentiate twice."""
    number = jax.ShapeDtypeStruct((), np.float64)
    alike = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in params.items()}

    @jax.custom_jvp
    def loss(params: Params) -> Array:
        return host_call(model.value, number, params)

    @jax.custom_jvp
    def value_and_gradient(params: Params) -> tuple[Array, Params]:
        return host_call(model.value_and_gradient, (number, alike), params)

    @jax.custom_jvp
    def hessian_vector_product(params: Params, vector: Params) -> Params:
        return host_call(model.hessian_vector_product, alike, params, vector)

    @loss.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        value, gradient = value_and_gradient(*primals)
        return value, inner(gradient, *tangents)

    @value_and_gradient.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        value, gradient = value_and_gradient(*primals)
        product = hessian_vector_product(*primals, *tangents)
        return (value, gradient), (inner(gradient, *tangents), product)

    @hessian_vector_product.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise NotImplementedError(
            'a PyTorch problem has no third derivatives: use method="orbit", which needs gradients '
            "alone, for orders from 2 and for predictions of the error from order 1; of single "
            "counter terms there is ξ̃_0"
        )

    return loss


def _require_derivatives(problem: Problem, params: Params) -> None:
    """Raises unless gradient and Hessian-vector product agree with finite differences.

    Along one random direction as large as the params, with smaller and smaller steps until they
    agree: between two kinks there is room for a step that is small enough.
    """
    direction = random_direction(params, seed=0)
    loss, slope = jax.jvp(problem.loss, (params,), (direction,))
    gradient = problem.loss_gradient(params)
    # A direction may happen to be orthogonal to the gradient: then its size is the measure.
    count = sum(leaf.size for leaf in params.values())
    usual = size_of(gradient) * size_of(direction) / count**0.5
    _require_agreement(
        "gradient",
        lambda step: problem.loss(add_scaled(params, step, direction)),
        slope,
        max(abs(float(slope)), usual),
        abs(float(loss)),
    )
    try:
        product = jax.jvp(problem.loss_gradient, (params,), (direction,))[1]
    except RuntimeError as error:
        raise ValueError(
            "the loss must be twice differentiable by PyTorch, which it is not: "
            f"{error}. Replace the operation by one that has a double backward"
        ) from error
    _require_agreement(
        "Hessian-vector product",
        lambda step: problem.loss_gradient(add_scaled(params, step, direction)),
        product,
        size_of(product),
        size_of(gradient),
    )


def _require_agreement(
    name: str, function: Callable[[float], PyTree], expected: PyTree, size: float, values: float
) -> None:
    """Raises unless the central differences of a function come close to its derivative."""
    tolerance, errors = 1e-4, {}
    for step in (1e-5, 1e-6, 1e-7, 1e-8, 1e-9):
        difference = scaled(0.5 / step, add_scaled(function(step), -1, function(-step)))
        errors[step] = float(distance(difference, expected))
        if errors[step] <= tolerance * size + 100 * _EPSILON * values / step:
            return
    step = min(errors, key=lambda step: errors[step])
    raise ValueError(
        f"the {name} that PyTorch computes must be the derivative it stands for, but along a "
        f"random direction it is off a central finite difference by {errors[step]:.3g}, where its "
        f"own size is {size:.3g} (step {step:g}, the best of {len(errors)}): look for `.detach()`, "
        "`torch.no_grad()` or a custom backward inside the module or the loss, and for a kink "
        "exactly at these params, as of a ReLU at 0"
    )


# --- what is asked of modules and data ------------------------------------------------------


def _require_is_module(module: Any) -> None:
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"`module` must be a `torch.nn.Module`, got {type(module).__name__}: the problem of a "
            "JAX function is `cf.Problem(loss, data)`"
        )


def _require_module(module: Any) -> None:
    _require_is_module(module)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        _require_cpu(tensor, f"`module` must be on the CPU, but {name!r}", "module")
    parameters = dict(module.named_parameters())
    for name, parameter in parameters.items():
        inexact = parameter.is_floating_point() or parameter.is_complex()
        if inexact and parameter.dtype != torch.float64:
            raise TypeError(
                f"the parameters of `module` must be of float64, but {name!r} is of "
                f"{_name(parameter.dtype)}: convert them with `module.double()`"
            )
    if not _trainable(module):
        listed = ", ".join(f"{name!r} of {_name(p.dtype)}" for name, p in parameters.items())
        raise ValueError(
            "`module` must have a trainable parameter, got "
            + (f"none that requires a gradient among {listed}" if parameters else "none at all")
            + ": `parameter.requires_grad_()` makes one trainable, if it holds floats"
        )


def _require_cpu(tensor: Any, what: str, name: str) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"{what} is on {str(tensor.device)!r}: move it with `{name}.cpu()`")


def _copied(value: Any, name: str) -> Any:
    """Tensors, arrays and containers of them as new tensors; raises unless their floats fit."""
    if isinstance(value, tuple | list):
        return type(value)([_copied(part, name) for part in value])
    if isinstance(value, dict):
        return {key: _copied(part, name) for key, part in value.items()}
    if isinstance(value, np.ndarray | jax.Array):
        value = torch.tensor(np.asarray(value))
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"`{name}` must be a tensor or an array, or a tuple, list or dictionary of them, got "
            f"{type(value).__name__}"
        )
    _require_cpu(value, f"`{name}` must be on the CPU, but", name)
    if value.is_floating_point() and value.dtype != torch.float64:
        raise TypeError(
            f"`{name}` must be of float64, as the module is, or integers, got "
            f"{_name(value.dtype)}: convert them with `{name}.double()`"
        )
    return value.detach().clone()


def _require_threads(threads: Any) -> None:
    if threads is None or (type(threads) is int and threads > 0):
        return
    raise ValueError(f"`threads` must be None or an integer of at least 1, got {threads!r}")


def _require_scalar(value: Any) -> None:
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


def _require_deterministic(first: float, second: float, module: nn.Module) -> None:
    if _differ(first, second):
        layers = [name for name, part in module.named_modules() if "Dropout" in type(part).__name__]
        culprits = f" take out {', '.join(map(repr, layers))}, or set p=0;" if layers else ""
        raise ValueError(
            f"`loss` must be deterministic, but two evaluations gave {first:.9g} and {second:.9g}: "
            f"the theory is one of the full batch without dropout or noise;{culprits} draw random "
            "numbers once, outside of the module"
        )


def _require_training_mode(value: float, training: float) -> None:
    if _differ(value, training):
        raise ValueError(
            f"`module` must be in training mode, got one in eval mode, where the loss is "
            f"{value:.9g} instead of {training:.9g}: call `module.train()`; batch normalization "
            "then uses the statistics of all inputs, and dropout has to go (p=0)"
        )


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
