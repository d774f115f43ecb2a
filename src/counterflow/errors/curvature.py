"""The extreme curvatures of the loss at a point, from products with the Hessian alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.linalg import LinearOperator, eigsh

from ..problem.problem import Problem

# Below this dimension Lanczos iterations have nothing to gain, and may fail.
_SMALL = 64
# How small a residual must be, relative to the eigenvalue, and how many products may be spent.
_RESIDUAL, _MOST_PRODUCTS = 3e-3, 200


def extreme_curvatures(problem: Problem, params: PyTree) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of `H + λI` at `params`.

    Only for a problem given by a loss, whose Hessian is symmetric. By Lanczos iterations, to about
    three digits, without a dense Hessian (except in a few dimensions).
    """
    product, size = _hessian(problem, params)
    if size <= _SMALL:
        eigenvalues = np.linalg.eigvalsh(_matrix(product, size))
        return float(eigenvalues[0]), float(eigenvalues[-1])
    # The end farther from zero first; seen from there, the other end is the farthest.
    first = _farthest(product, size)
    second = first - _farthest(lambda vector: first * vector - product(vector), size)
    return min(first, second), max(first, second)


class Sharpness(NamedTuple):
    """The largest eigenvalue of `H + λI`, and a flat eigenvector of it."""

    value: float
    direction: np.ndarray


def sharpness(problem: Problem, params: PyTree, direction: np.ndarray | None = None) -> Sharpness:
    """The largest eigenvalue of `H + λI` at `params`, to about three digits.

    By Lanczos iterations that look at their own convergence after every product: some twenty of
    them, or a few from the `direction` found at params nearby.
    """
    product, size = _hessian(problem, params)
    if size <= _SMALL:
        values, vectors = np.linalg.eigh(_matrix(product, size))
        return Sharpness(float(values[-1]), vectors[:, -1])
    start = np.random.default_rng(0).normal(size=size)
    if direction is not None:
        # With something of all the others: the largest here may have been another one there.
        start = direction / np.linalg.norm(direction) + 0.1 * start / np.linalg.norm(start)
    basis = [start / np.linalg.norm(start)]
    diagonal: list[float] = []
    beside: list[float] = []
    while True:
        image = product(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        # Against all of the basis, twice: what is left is orthogonal to rounding.
        for _ in range(2):
            for vector in basis:
                image = image - (image @ vector) * vector
        left = float(np.linalg.norm(image))
        values, vectors = eigh_tridiagonal(diagonal, beside)
        largest, ritz = float(values[-1]), vectors[:, -1]
        # The square of the residual is about the error of the value.
        if left * abs(ritz[-1]) <= _RESIDUAL * abs(largest) or len(diagonal) == _MOST_PRODUCTS:
            found = np.tensordot(ritz, np.array(basis[: len(ritz)]), 1)
            return Sharpness(largest, found)
        basis.append(image / left)
        beside.append(left)


def _hessian(problem: Problem, params: PyTree) -> tuple[Callable[[Any], np.ndarray], int]:
    """The product of `H + λI` with a flat vector, and the number of its entries."""
    flat, unravel = ravel_pytree(params)
    size, dtype = flat.size, flat.dtype

    def product(vector: Any) -> np.ndarray:
        direction = unravel(jnp.asarray(vector, dtype).reshape(size))
        return np.asarray(_product(problem, params, direction), dtype=float)

    return product, size


def _matrix(product: Callable[[Any], np.ndarray], size: int) -> np.ndarray:
    matrix = np.stack([product(column) for column in np.eye(size)])
    return (matrix + matrix.T) / 2


def _farthest(product: Callable[[Any], np.ndarray], size: int) -> float:
    """The eigenvalue that is the largest in absolute value."""
    start = np.random.default_rng(0).normal(size=size)
    if not np.any(product(start)):
        return 0.0  # ARPACK refuses an operator that vanishes
    operator = LinearOperator((size, size), matvec=lambda v: product(np.ravel(v)), dtype=float)  # pyright: ignore
    options: dict[str, Any] = {"k": 1, "v0": start, "tol": 1e-4, "return_eigenvectors": False}
    return float(eigsh(operator, which="LM", **options)[0])


@eqx.filter_jit
def _product(problem: Problem, params: PyTree, direction: PyTree) -> Array:
    return ravel_pytree(problem.hessian_vector_product(params, direction))[0]
