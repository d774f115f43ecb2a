"""The loss of a module and its derivatives, computed by PyTorch."""

import copy
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from jaxtyping import Array, PyTree
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn.attention import (  # pyright: ignore[reportMissingImports]
    SDPBackend,
    sdpa_kernel,
)

from .requirements import require_deterministic, require_scalar, require_training_mode

Params = dict[str, Array]

# A call swaps the parameters of a module and settings of PyTorch, so there is one call at a time.
_ONE_CALL = threading.Lock()


class Model:
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
            return as_array(self._value(_tensors(params)))

    def value_and_gradient(self, params: Mapping[str, np.ndarray]) -> tuple[np.ndarray, PyTree]:
        with self._settings():
            tensors = _tensors(params)
            value = self._value(tensors)
            return as_array(value), _named(tensors, _gradient([value], tensors))

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
            require_scalar(first)
            require_deterministic(first.item(), second.item(), self._module)
            modes = {part: part.training for part in self._module.modules()}
            if not all(modes.values()):
                self._module.train()
                training = self._value(_tensors(arrays)).item()
                for part, mode in modes.items():
                    part.training = mode
                require_training_mode(first.item(), training)

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


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: torch.tensor(a, requires_grad=True) for name, a in arrays.items()}


def _gradient(values: Any, tensors: Mapping[str, Any], **options: Any) -> Any:
    return torch.autograd.grad(
        values, list(tensors.values()), allow_unused=True, materialize_grads=True, **options
    )


def _named(tensors: Mapping[str, Any], values: Any) -> dict[str, np.ndarray]:
    return {name: as_array(value) for name, value in zip(tensors, values, strict=True)}


def as_array(tensor: Any) -> np.ndarray:
    """A tensor as an array, which shares its memory."""
    return tensor.detach().numpy()
