"""Do two ways to the same number agree? Gradient and loss, Jacobian and transpose, the methods."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...problem.problem import Problem
from ...problem.tree import add_scaled, inner, norm, rounding_of, scaled
from .. import orbit, taylor
from ..counter_terms import SERIES_METHODS
from .smoothness import gradient_direction, random_direction, size_of


@dataclass(frozen=True)
class GradientError:
    """How far a gradient is from the finite differences of its loss.

    Attributes:
        error: The relative difference in the worst direction, each with its best step size.
        rounding: How much of that the rounding of the loss may explain.
        accepted: Whether every direction agrees, within tolerance and rounding.
    """

    error: float
    rounding: float
    accepted: bool


def gradient_error(problem: Problem, params: PyTree, gradient: PyTree) -> GradientError:
    """The gradient against central differences of the loss, in random directions and along it."""
    single = rounding_of(params) > 1e-10
    tolerance = 2e-2 if single else 1e-5
    steps = 10.0 ** -np.arange(1, 4 if single else 10)
    slope = add_scaled(gradient, -problem.weight_decay, params)  # `loss` is without weight decay
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    directions = [random_direction(params, seed) for seed in range(3)]
    directions.append(gradient_direction(params, slope))
    dtype = jax.tree.leaves(params)[0].dtype
    found = []
    for direction in directions:
        both = jnp.asarray(np.stack([steps, -steps]), dtype)
        losses = np.asarray(_losses(problem, params, direction, both.reshape(-1)), float)
        ahead, behind = losses.reshape(2, -1)
        expected = float(inner(slope, direction))
        # A direction may happen to be orthogonal to the gradient: then its size is the measure.
        usual = size_of(slope) * size_of(direction) / size**0.5
        scale = max(abs(expected), usual, 1e-300)
        error = np.abs((ahead - behind) / (2 * steps) - expected) / scale
        magnitude = np.maximum(np.abs(ahead), np.abs(behind))
        rounding = 10 * rounding_of(params) * magnitude / steps / scale
        error = np.where(np.isfinite(error), error, np.inf)
        best = int(np.argmin(error))
        accepted = bool(np.any(error <= tolerance + rounding))
        found.append(GradientError(float(error[best]), float(rounding[best]), accepted))
    return max(found, key=lambda one: (not one.accepted, one.error))


@eqx.filter_jit
def _losses(
    problem: Problem, params: PyTree, direction: PyTree, steps: Float[Array, " steps"]
) -> Float[Array, " steps"]:
    return jax.lax.map(lambda s: problem.loss(add_scaled(params, s, direction)), steps)


def asymmetry(problem: Problem, params: PyTree) -> float:
    """How far a field's Jacobian `J` is from symmetric: 0 for a gradient, about 1 for a rotation.

    It is `|u·Jv − v·Ju|` for random `u` and `v`, in multiples of what two unrelated numbers of
    that size would differ by.
    """
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    worst = 0.0
    for seed in range(3):
        u, v = (random_direction(params, 2 * seed + i, unit=True) for i in (0, 1))
        left, right, a, b = map(float, _bilinear(problem, params, u, v))
        scale = float(np.sqrt((a**2 + b**2) / (2 * size)))
        worst = max(worst, abs(left - right) / scale if scale else 0.0)
    return worst


@eqx.filter_jit
def _bilinear(problem: Problem, params: PyTree, u: PyTree, v: PyTree) -> tuple[Array, ...]:
    forward = problem.hessian_vector_product(params, v)
    swapped = problem.hessian_vector_product(params, u)
    return (
        inner(u, forward),
        inner(v, swapped),
        norm(u) * norm(forward),
        norm(v) * norm(swapped),
    )


@dataclass(frozen=True)
class Methods:
    """Which methods for counter terms work for a problem, and how well they agree.

    Attributes:
        failed: The methods that raised, and what.
        nested: The operations that `taylor` differentiates by nested forward derivatives.
        differences: Pairs of methods and how far apart they are, relative, in the worse of ξ̃_0
            and ξ̃_1.
    """

    failed: Mapping[str, Exception]
    nested: tuple[str, ...]
    differences: Mapping[str, float]


def try_methods(problem: Problem, params: PyTree, gradient: PyTree) -> Methods:
    """Every method for counter terms, tried for two of them at `params`."""
    results: dict[str, tuple[PyTree, ...]] = {}
    failed: dict[str, Exception] = {}
    for method in SERIES_METHODS:
        try:
            results[method] = _first_two(problem, params, method)
        except Exception as error:  # it is the user's function that raises: anything may come
            failed[method] = error
    try:
        jax.block_until_ready(_orbit(problem, params))
    except Exception as error:
        failed["orbit"] = error
    try:
        product = _product(problem, params, gradient)
        results["½(g·∇)g"] = (scaled(0.5, product),)
    except Exception as error:
        failed["hessian_vector_product"] = error
    nested = () if "taylor" in failed else _nested_operations(problem, params)
    return Methods(failed, nested, _differences(results, gradient))


@eqx.filter_jit
def _first_two(problem: Problem, params: PyTree, method: str) -> tuple[PyTree, ...]:
    return SERIES_METHODS[method](problem.gradient, params, 2)[1:]


@eqx.filter_jit
def _orbit(problem: Problem, params: PyTree) -> PyTree:
    return orbit.velocity(problem.gradient, params, 1e-6, 1)


@eqx.filter_jit
def _product(problem: Problem, params: PyTree, vector: PyTree) -> PyTree:
    return problem.hessian_vector_product(params, vector)


def _differences(results: dict[str, tuple[PyTree, ...]], gradient: PyTree) -> dict[str, float]:
    def difference(one: tuple[PyTree, ...], other: tuple[PyTree, ...]) -> float:
        # The counter terms of a linear field at rest vanish: then the gradient is the measure.
        return max(
            size_of(jax.tree.map(jnp.subtract, a, b))
            / max(size_of(a), size_of(b), 1e-6 * size_of(gradient), 1e-300)
            for a, b in zip(one, other, strict=False)
        )

    names = list(results)
    return {
        f"{a} and {b}": difference(results[a], results[b])
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    }


def _nested_operations(problem: Problem, params: PyTree) -> tuple[str, ...]:
    """The operations without a rule in Taylor mode, as its warnings name them."""

    def first_term(params: PyTree) -> Any:
        return taylor.counter_terms(problem.gradient, params, 1)

    # A function made anew is traced anew: one that JAX has already traced would not warn again.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.eval_shape(first_term, params)
    names = [re.search(r"operation '([^']+)'", str(warning.message)) for warning in caught]
    return tuple(sorted({name.group(1) for name in names if name}))
