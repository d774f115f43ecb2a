"""Extreme curvatures against the eigenvalues of the dense Hessian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import counterflow as cf
import zoo
from counterflow.errors import curvature
from counterflow.errors.curvature import extreme_curvatures, sharpness


def wide_network(weight_decay):
    """The network of the zoo with 93 parameters: too many for a dense Hessian."""
    generator = np.random.default_rng(8)
    widths = {"input": (8, 6), "hidden": (6, 5), "readout": (5, 3)}
    params = {
        name: jnp.asarray(generator.normal(size=shape) / np.sqrt(shape[0]))
        for name, shape in widths.items()
    }
    inputs = jnp.asarray(generator.normal(size=(20, 8)))
    targets = jax.nn.one_hot(generator.integers(3, size=20), 3)
    return cf.Problem(zoo.network_loss, (inputs, targets), weight_decay), params


@zoo.jit_quickly
def dense_hessian(problem, params):
    """The Hessian of `f + λ‖θ‖²/2`, which is `H + λI`, as a matrix."""
    flat, unravel = ravel_pytree(params)

    def total(theta):
        return problem.loss(unravel(theta)) + problem.weight_decay * jnp.sum(theta**2) / 2

    return jax.hessian(total)(flat)


@pytest.mark.parametrize("weight_decay", [0.0, 0.7])
@pytest.mark.parametrize(
    ("make", "size", "accuracy"),
    [(zoo.network, 62, 1e-12), (wide_network, 93, 2e-3)],
    ids=["dense", "Lanczos"],
)
def test_extreme_curvatures_are_the_extreme_eigenvalues(make, size, accuracy, weight_decay):
    problem, params = make(weight_decay=weight_decay)
    assert ravel_pytree(params)[0].size == size
    eigenvalues = np.linalg.eigvalsh(dense_hessian(problem, params))
    lowest, highest = extreme_curvatures(problem, params)
    assert eigenvalues[0] < weight_decay < eigenvalues[-1]  # a saddle, but for the weight decay
    span = eigenvalues[-1] - eigenvalues[0]
    assert lowest == pytest.approx(eigenvalues[0], abs=accuracy * span)
    assert highest == pytest.approx(eigenvalues[-1], abs=accuracy * span)
    assert sharpness(problem, params).value == pytest.approx(eigenvalues[-1], abs=accuracy * span)


def quadratic(theta, curvatures):
    return jnp.sum(curvatures * theta**2) / 2


CURVATURES = {
    "spread": np.linspace(-1, 3, 100),
    "one": np.ones(100),
    "none": np.zeros(100),
    "negative": -np.linspace(0.1, 1, 100),
    "few large": np.concatenate([np.full(90, 1e-3), np.linspace(1, 100, 10)]),
    "singular": np.concatenate([np.zeros(70), np.linspace(0.1, 1, 30)]),
    "many scales": np.logspace(-8, 0, 100),
    "two": np.concatenate([np.full(50, -1.0), np.full(50, 1.0)]),
}


@pytest.mark.parametrize("curvatures", CURVATURES.values(), ids=CURVATURES)
def test_lanczos_finds_the_ends_of_any_spectrum(curvatures):
    problem = cf.Problem(quadratic, jnp.asarray(curvatures))
    found = extreme_curvatures(problem, jnp.ones(len(curvatures)))
    ends = curvatures.min(), curvatures.max()
    assert found == pytest.approx(ends, abs=2e-3 * abs(curvatures).max())
    # The largest eigenvalue, not the one that is largest in absolute value.
    largest = sharpness(problem, jnp.ones(len(curvatures))).value
    assert largest == pytest.approx(ends[1], abs=2e-3 * abs(curvatures).max())


def test_one_parameter_is_enough():
    problem = cf.Problem(lambda x: jnp.cos(x), weight_decay=0.5)
    assert extreme_curvatures(problem, jnp.array(0.0)) == pytest.approx((-0.5, -0.5), rel=1e-14)
    assert sharpness(problem, jnp.array(0.0)).value == pytest.approx(-0.5, rel=1e-14)


@pytest.fixture
def products(monkeypatch):
    """A list that is longer by one after each product with the Hessian."""
    counted = []
    product = curvature._product

    def counting(*arguments):
        counted.append(arguments)
        return product(*arguments)

    monkeypatch.setattr(curvature, "_product", counting)
    return counted


def test_sharpness_takes_half_the_products(products):
    problem, params = wide_network(0.1)
    extreme_curvatures(problem, params)
    both = len(products)
    found = sharpness(problem, params)
    assert found.products == len(products) - both < 0.7 * both


def test_from_the_direction_found_nearby_sharpness_takes_few_products(products):
    problem, params = wide_network(0.1)
    cold = sharpness(problem, params)
    spent = len(products)
    nearby = jax.tree.map(lambda leaf: 1.001 * leaf, params)
    warm = sharpness(problem, nearby, cold.direction)
    assert len(products) - spent <= spent / 2
    assert warm.value == pytest.approx(sharpness(problem, nearby).value, rel=2e-3)


def test_the_direction_of_another_eigenvalue_does_not_hide_the_largest():
    curvatures = np.linspace(-1, 3, 100)
    problem = cf.Problem(quadratic, jnp.asarray(curvatures))
    found = sharpness(problem, jnp.ones(100), np.eye(100)[40])
    assert found.value == pytest.approx(3.0, rel=2e-3)
    assert abs(found.direction[-1]) == pytest.approx(1.0, abs=0.1)
