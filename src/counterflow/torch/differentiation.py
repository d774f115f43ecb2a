"""The loss of a module as a function that JAX differentiates, and whether it does so rightly."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PyTree

from ..counter_terms.checks.smoothness import random_direction, size_of
from ..problem.host_call import host_call
from ..problem.problem import Problem
from ..problem.tree import add_scaled, distance, inner, scaled
from .model import Model, Params

_EPSILON = float(np.finfo(np.float64).eps)


def as_jax_function(model: Model, params: Params) -> Callable[[Params], Array]:
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


def require_derivatives(problem: Problem, params: Params) -> None:
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
