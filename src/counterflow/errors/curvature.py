"""The extreme curvatures of the loss at a point, from products with the Hessian alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree
from scipy.linalg import eigh_tridiagonal

from ..problem.problem import Problem

# Below this dimension Lanczos iterations have nothing to gain, and may fail.
_SMALL = 64
# How small a residual must be, relative to the eigenvalue that is farthest from zero.
_RESIDUAL = 3e-3
# The vectors that are kept, and how often the iterations may begin anew.
_BASIS, _RESTARTS = 40, 10


def extreme_curvatures(problem: Problem, params: PyTree) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of `H + λI` at `params`.

    Only for a problem given by a loss, whose Hessian is symmetric. By Lanczos iterations, to about
    three digits, without a dense Hessian (except in a few dimensions).
    """
    product, size = _hessian(problem, params)
    if size <= _SMALL:
        eigenvalues = np.linalg.eigvalsh(_matrix(product, size))
        return float(eigenvalues[0]), float(eigenvalues[-1])
    smallest = -_largest(lambda vector: -product(vector), _noise(size)).value
    return smallest, _largest(product, _noise(size)).value


class Sharpness(NamedTuple):
    """The largest eigenvalue of `H + λI`, a flat eigenvector, and the products it took."""

    value: float
    direction: np.ndarray
    products: int


def sharpness(problem: Problem, params: PyTree, direction: np.ndarray | None = None) -> Sharpness:
    """The largest eigenvalue of `H + λI` at `params`, as `extreme_curvatures`, at half the cost.

    From the `direction` found at params nearby it takes a few products with the Hessian instead of
    some twenty.
    """
    product, size = _hessian(problem, params)
    if size <= _SMALL:
        values, vectors = np.linalg.eigh(_matrix(product, size))
        return Sharpness(float(values[-1]), vectors[:, -1], size)
    start = _noise(size)
    if direction is not None:
        # With something of all the others: the largest here may have been another one there.
        start = direction / np.linalg.norm(direction) + 0.1 * start
    return _largest(product, start)


def _noise(size: int) -> np.ndarray:
    """A fixed random vector of length one."""
    vector = np.random.default_rng(0).normal(size=size)
    return vector / np.linalg.norm(vector)


def _largest(product: Callable[[Any], np.ndarray], start: np.ndarray) -> Sharpness:
    """The largest eigenvalue of a symmetric operator, by Lanczos iterations from a vector."""
    found, converged = _lanczos(product, start)
    products = found.products
    for _ in range(_RESTARTS):
        if converged:
            break
        found, converged = _lanczos(product, found.direction)
        products += found.products
    return found._replace(products=products)


def _lanczos(product: Callable[[Any], np.ndarray], start: np.ndarray) -> tuple[Sharpness, bool]:
    """The best approximation in a basis of limited length, and whether it is good enough."""
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
        weights = vectors[:, -1]
        # The square of the residual is about the error of the value.
        converged = bool(left * abs(weights[-1]) <= _RESIDUAL * np.max(np.abs(values)))
        if converged or len(basis) == _BASIS:
            direction = np.tensordot(weights, np.array(basis), 1)
            return Sharpness(float(values[-1]), direction, len(basis)), converged
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


@eqx.filter_jit
def _product(problem: Problem, params: PyTree, direction: PyTree) -> Array:
    return ravel_pytree(problem.hessian_vector_product(params, direction))[0]
