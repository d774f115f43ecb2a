"""Products of tall matrices: those of any library, with all derivatives, on any processor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.networks import machine_code
from counterflow.networks.blocks import in_blocks
from counterflow.networks.tall_products import inner, own_inner, times

SHAPES = [(1, 1, 1), (7, 3, 5), (63, 1, 10), (64, 4, 4), (129, 41, 7), (1000, 100, 10)]


def tall(*shape, precision="float64"):
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape).astype(precision))


@pytest.mark.parametrize(("precision", "rtol"), [("float64", 1e-13), ("float32", 1e-5)])
@pytest.mark.parametrize(("samples", "rows", "outputs"), SHAPES)
def test_of_any_shape_in_both_precisions(samples, rows, outputs, precision, rtol):
    left, right = (tall(samples, width, precision=precision) for width in (rows, outputs))
    weights = tall(rows, outputs, precision=precision)
    exact_left, exact_right, exact_weights = (
        np.asarray(array, np.longdouble) for array in (left, right, weights)
    )
    for found, expected in (
        (inner(left, right), exact_left.T @ exact_right),
        (own_inner(left), exact_left.T @ exact_left),
        (own_inner(right), exact_right.T @ exact_right),
        (times(left, weights), exact_left @ exact_weights),
    ):
        assert found.dtype == precision
        assert found.shape == expected.shape
        assert np.max(np.abs(np.asarray(found) - expected)) < rtol * np.max(np.abs(expected))


def test_both_halves_of_a_second_moment_are_the_same():
    moment = own_inner(tall(500, 61))
    np.testing.assert_array_equal(moment, moment.T)


def test_derivatives_are_those_of_a_library():
    def by_code(values, weights):
        return jnp.sum(jnp.sin(inner(jnp.tanh(times(values, weights)), values)))

    def by_library(values, weights):
        return jnp.sum(jnp.sin(jnp.tanh(values @ weights).T @ values))

    point, along = (tall(30, 4), tall(4, 3)), (tall(30, 4) ** 2, tall(4, 3) + 1)

    def second(loss):
        gradient = jax.jit(jax.grad(loss, (0, 1)))
        return gradient(*point), jax.jvp(gradient, point, along)[1]

    for found, expected in zip(
        jax.tree.leaves(second(by_code)), jax.tree.leaves(second(by_library)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


# By its vector registers: how many bytes, and how many of them. With other numbers of outputs each,
# because code is made once for all that is alike.
@pytest.mark.parametrize(
    ("bytes_", "registers", "outputs"), [(16, 16, 51), (32, 16, 52), (16, 32, 53)]
)
def test_on_other_processors(bytes_, registers, outputs, monkeypatch):
    own = machine_code._processor()
    other = machine_code._Processor(own.name, own.features, bytes_, registers)
    monkeypatch.setattr(machine_code, "_processor", lambda: other)
    left, right = tall(200, outputs), tall(200, outputs + 10)
    np.testing.assert_allclose(inner(left, right), left.T @ right, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(own_inner(left), left.T @ left, rtol=1e-11, atol=1e-11)
    blocks, order = in_blocks(np.asarray(left))
    (product,), back = jax.vjp(blocks.times, jnp.eye(outputs))
    np.testing.assert_allclose(product, left[order], atol=1e-14)
    np.testing.assert_allclose(*back((product,)), left.T @ left, rtol=1e-11, atol=1e-11)
