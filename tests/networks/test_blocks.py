"""Images in blocks: every image, with fewer numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.data.digits import digits
from counterflow.networks.block_products import IMAGES
from counterflow.networks.blocks import in_blocks
from counterflow.networks.paper_network import cross_entropy, glorot_uniform


@pytest.mark.parametrize("count", [1797, 1796, 5, 4, 1])
def test_every_image_is_in_one_block_with_all_of_its_ink(count):
    inputs = digits().inputs[:count]
    blocks, order = in_blocks(inputs)
    assert sorted(order) == list(range(count))
    (product,) = blocks.times(jnp.eye(64))
    np.testing.assert_allclose(product, inputs[order], atol=1e-15)


@pytest.mark.parametrize("width", [5, 450])  # the latter: more than a quarter of the samples
def test_the_products_of_many_blocks_are_several_arrays(width, monkeypatch):
    monkeypatch.setattr("counterflow.networks.blocks._TOGETHER", 200)
    data, params = digits(), glorot_uniform((64, width, 4, 10))
    blocks, order = in_blocks(data.inputs)
    assert [len(some) for some in blocks.times(params["input"])] == [452, 452, 452, 441]
    plain = cf.Problem(cross_entropy, (data.inputs, data.targets))
    blocked = cf.Problem(cross_entropy, (blocks, data.targets[order]))
    for name, leaf in plain.gradient(params).items():
        np.testing.assert_allclose(blocked.gradient(params)[name], leaf, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(("precision", "rtol"), [("float64", 1e-13), ("float32", 1e-5)])
@pytest.mark.parametrize("outputs", [1, 2, 3, 7, 16, 33, 100, 129])
def test_products_with_any_number_of_outputs_in_both_precisions(outputs, precision, rtol):
    inputs = digits().inputs[:301]
    blocks, order = in_blocks(inputs)
    random = np.random.default_rng(0)
    weights, rows = (
        random.normal(size=(count, outputs)).astype(precision) for count in (64, len(inputs))
    )
    (product,), back = jax.vjp(blocks.times, jnp.asarray(weights))
    (transposed,) = back((jnp.asarray(rows),))
    assert product.dtype == transposed.dtype == precision
    for found, expected in (
        (product, inputs[order] @ weights),
        (transposed, inputs[order].T @ rows),
    ):
        assert np.max(np.abs(found - expected)) < rtol * np.max(np.abs(expected))


def test_images_that_are_alike_share_a_block_and_leave_out_what_is_blank_in_them():
    random = np.random.default_rng(0)
    kind = random.permutation(np.repeat([0, 1], 1000))
    ink = np.stack([np.r_[np.ones(20), np.zeros(20)], np.r_[np.zeros(20), np.ones(20)]])[kind]
    inputs = ink * random.uniform(0.1, 1, (2000, 40)) - 1
    blocks, order = in_blocks(inputs)
    assert len(set(kind[order[:1000]])) == len(set(kind[order[1000:]])) == 1
    (part,) = blocks.parts
    np.testing.assert_array_equal(np.diff(part.starts), 20)
    assert part.values.size == inputs.size / 2


def test_an_image_that_is_blank_has_the_product_of_a_blank_one():
    inputs = np.ones((9, 3))
    blocks, _ = in_blocks(inputs)
    assert blocks.parts[0].values.size == 0
    np.testing.assert_array_equal(blocks.times(jnp.ones((3, 2)))[0], np.full((9, 2), 3))
    gradient = jax.grad(lambda weights: jnp.sum(blocks.times(weights)[0]))(jnp.ones((3, 2)))
    np.testing.assert_array_equal(gradient, np.full((3, 2), 9))


def test_blocks_leave_out_half_of_the_digits_and_more_than_blocks_of_images_as_they_come():
    inputs = digits().inputs
    parts = in_blocks(inputs)[0].parts
    left = sum(part.values.size for part in parts) / inputs.size
    ink = inputs != inputs.min(axis=0)
    whole = ink[: len(ink) // IMAGES * IMAGES].reshape(-1, IMAGES, ink.shape[1])
    assert ink.mean() < left < 0.62 < whole.any(axis=1).mean()


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_whole_numbers_do_not_overflow(kind):
    pixels = np.random.default_rng(0).integers(-128, 128, (30, 7)).astype(kind)
    blocks, order = in_blocks(pixels)
    (product,) = blocks.times(jnp.eye(7))
    np.testing.assert_array_equal(product, pixels[order].astype(float))


def test_no_images_at_all_are_refused():
    with pytest.raises(ValueError, match="at least one image"):
        in_blocks(np.ones((0, 3)))


def test_images_without_targets_are_told(monkeypatch):
    monkeypatch.setattr("counterflow.networks.blocks._TOGETHER", 100)
    data, params = digits(), glorot_uniform((64, 5, 4, 10))
    blocks, order = in_blocks(data.inputs[:1000])
    # As many are missing as leave one for the images of the last part, which it would serve for.
    missing = blocks.parts[-1].images - 1
    targets = data.targets[:1000][order][:-missing]
    with pytest.raises(ValueError, match="one row of targets for each image"):
        cross_entropy(params, (blocks, targets))
