"""The extreme curvatures of the loss at a point, from products with the Hessian alone."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree
from scipy.sparse.linalg import LinearOperator, eigsh

from ..problem.problem import Problem

# Below this dimension Lanczos iterations have nothing to gain, and may fail.
_SMALL = 64


def extreme_curvatures(problem: Problem, params: PyTree) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of `H + λI` at `params`.

    Only for a problem given by a loss, whose Hessian is symmetric. By Lanczos iterations, to about
    three digits, without a dense Hessian (except in a few dimensions).
    """
    product, size = _hessian(problem, params)
    if size <= _SMALL:
        eigenvalues = _all_eigenvalues(product, size)
        return float(eigenvalues[0]), float(eigenvalues[-1])
    # The end farther from zero first; seen from there, the other end is the farthest.
    first = _farthest(product, size)
    second = first - _farthest(lambda vector: first * vector - product(vector), size)
    return min(first, second), max(first, second)


def sharpness(problem: Problem, params: PyTree) -> float:
    """The largest eigenvalue of `H + λI` at `params`, as `extreme_curvatures`, at half the cost."""
    product, size = _hessian(problem, params)
    if size <= _SMALL:
        return float(_all_eigenvalues(product, size)[-1])
    return _farthest(product, size, "LA")


def _hessian(problem: Problem, params: PyTree) -> tuple[Callable[[Any], np.ndarray], int]:
    """The product of `H + λI` with a flat vector, and the number of its entries."""
    flat, unravel = ravel_pytree(params)
    size, dtype = flat.size, flat.dtype

    def product(vector: Any) -> np.ndarray:
        direction = unravel(jnp.asarray(vector, dtype).reshape(size))
        return np.asarray(_product(problem, params, direction), dtype=float)

    return product, size


def _all_eigenvalues(product: Callable[[Any], np.ndarray], size: int) -> np.ndarray:
    matrix = np.stack([product(column) for column in np.eye(size)])
    return np.linalg.eigvalsh((matrix + matrix.T) / 2)


def _farthest(product: Callable[[Any], np.ndarray], size: int, which: str = "LM") -> float:
    """The eigenvalue that is the largest in absolute value, or the largest."""
    start = np.random.default_rng(0).normal(size=size)
    if not np.any(product(start)):
        return 0.0  # ARPACK refuses an operator that vanishes
    operator = LinearOperator((size, size), matvec=lambda v: product(np.ravel(v)), dtype=float)  # pyright: ignore
    options: dict[str, Any] = {"k": 1, "v0": start, "tol": 1e-4, "return_eigenvectors": False}
    return float(eigsh(operator, which=which, **options)[0])


@eqx.filter_jit
def _product(problem: Problem, params: PyTree, direction: PyTree) -> Array:
    return ravel_pytree(problem.hessian_vector_product(params, direction))[0]
