"""Products of tall matrices: those of any library, with all derivatives, on any processor."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.networks import machine_code
from counterflow.networks.block_products import product
from counterflow.networks.blocks import in_blocks
from counterflow.networks.tall_products import _write, inner, own_inner, times
from users import import_as_users_do

(unchecked,) = import_as_users_do("counterflow.networks.tall_products")
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


@pytest.mark.parametrize(("precision", "rtol"), [("float64", 4e-15), ("float32", 2e-6)])
def test_sums_over_many_samples_keep_their_digits(precision, rtol):
    # A running sum of positive numbers is off by as much as the root of their number, or worse.
    values = jnp.asarray(np.random.default_rng(0).uniform(size=(200_000, 3)).astype(precision))
    exact = np.asarray(values, np.longdouble)
    exact = exact.T @ exact
    for found in (own_inner(values), inner(values, values)):
        assert np.max(np.abs(np.asarray(found) / exact - 1)) < rtol


def test_precisions_may_differ_as_for_a_library():
    left, right = tall(70, 3, precision="float32"), tall(70, 2)
    found = inner(left, right)
    assert found.dtype == "float64"
    np.testing.assert_allclose(found, left.T @ right, rtol=1e-12)
    product, back = jax.vjp(times, left, tall(3, 2))
    assert product.dtype == "float64"
    assert [leaf.dtype for leaf in back(product)] == ["float32", "float64"]


def test_nothing_has_products_of_zeros():
    assert inner(tall(5, 0), tall(5, 3)).shape == (0, 3)
    np.testing.assert_array_equal(inner(tall(0, 2), tall(0, 3)), np.zeros((2, 3)))
    np.testing.assert_array_equal(own_inner(tall(0, 2)), np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (
            lambda own: own.inner(tall(10, 3), tall(5, 2)),
            ValueError,
            r" \(10, 3\) and \(5, 2\)",
        ),
        (lambda own: own.times(tall(10, 3), tall(2, 2)), ValueError, "axis 1 of one matrix and 0"),
        (lambda own: own.inner(tall(10), tall(10)), ValueError, "must be as long"),
        (lambda own: own.own_inner(tall(9, 3).astype("bfloat16")), TypeError, "got bfloat16"),
    ],
)
def test_what_does_not_fit_is_told(call, error, said):
    for run in (call, jax.jit(call, static_argnums=0)):
        with pytest.raises(error, match=said):
            run(unchecked)


def test_arrays_that_the_code_would_misread_are_refused():
    starts, pixels, values = jnp.array([0, 1]), jnp.array([0]), jnp.ones((1, 4))
    short = [array.astype("int32") for array in (starts, pixels)]
    np.testing.assert_array_equal(product(*short, values, jnp.ones((1, 2))), np.ones((4, 2)))
    for arrays in ((starts, pixels, values), (*short, values.astype("float32"))):
        with pytest.raises(TypeError, match="one precision, and indices be of int32"):
            product(*arrays, jnp.ones((1, 2)))


def test_threads_may_come_with_the_same_product():
    values = tall(64, 59)  # of no other test
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: own_inner(values), range(16)))
    for moment in found:
        np.testing.assert_array_equal(moment, found[0])


@pytest.mark.parametrize(("kind", "answers"), [(1, True), (2, False)])
def test_only_an_extension_that_asks_for_the_version_is_answered(kind, answers):
    # A frame as XLA's C interface has it, with an extension, and one matrix of one number.
    write = partial(_write, rows=1, outputs=1, own=True)
    address = machine_code._compiled(f"answers_{kind}", write, "float64")
    metadata = (ctypes.c_int64 * 8)()
    extension = (ctypes.c_int64 * 4)(32, kind, 0, ctypes.addressof(metadata))
    shape, value, result = (ctypes.c_int64 * 2)(1, 1), ctypes.c_double(3), ctypes.c_double(0)

    def list_of(number):
        buffer = (ctypes.c_int64 * 6)(
            48, 0, 0, ctypes.addressof(number), 2, ctypes.addressof(shape)
        )
        return buffer, (ctypes.c_int64 * 1)(ctypes.addressof(buffer))

    kept = [list_of(number) for number in (value, result)]
    frame = (ctypes.c_int64 * 20)()
    frame[1], frame[9], frame[14] = (
        ctypes.addressof(one) for one in (extension, kept[0][1], kept[1][1])
    )
    assert (
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)(ctypes.addressof(frame)) is None
    )
    assert any(metadata) == answers
    assert result.value == (0 if answers else 9)
