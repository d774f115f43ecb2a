"""Images in blocks: every image, with fewer numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.data.digits import digits
from counterflow.networks.blocks import in_blocks
from counterflow.networks.paper_network import cross_entropy, glorot_uniform


def test_every_image_is_in_one_block_with_all_of_its_ink():
    inputs = digits().inputs
    blocks, order = in_blocks(inputs)
    assert sorted(order) == list(range(len(inputs)))
    assert len(blocks.parts) == 2
    (product,) = blocks.times(jnp.eye(64))
    np.testing.assert_allclose(product, inputs[order], atol=1e-15)


@pytest.mark.parametrize("width", [5, 450])  # the latter: more than a quarter of the samples
def test_the_products_of_many_blocks_are_several_arrays(width, monkeypatch):
    monkeypatch.setattr("counterflow.networks.blocks._TOGETHER", 1)
    data, params = digits(), glorot_uniform((64, width, 4, 10))
    blocks, order = in_blocks(data.inputs)
    assert len(blocks.times(params["input"])) == 2
    plain = cf.Problem(cross_entropy, (data.inputs, data.targets))
    blocked = cf.Problem(cross_entropy, (blocks, data.targets[order]))
    for name, leaf in plain.gradient(params).items():
        np.testing.assert_allclose(blocked.gradient(params)[name], leaf, rtol=1e-11, atol=1e-14)


def test_images_that_are_alike_share_a_block_and_leave_out_what_is_blank_in_them():
    random = np.random.default_rng(0)
    kind = random.permutation(np.repeat([0, 1], 1000))
    ink = np.stack([np.r_[np.ones(20), np.zeros(20)], np.r_[np.zeros(20), np.ones(20)]])[kind]
    inputs = ink * random.uniform(0.1, 1, (2000, 40)) - 1
    blocks, order = in_blocks(inputs)
    assert [part.shape for part in blocks.parts] == [(1000, 20), (1000, 20)]
    assert len(set(kind[order[:1000]])) == len(set(kind[order[1000:]])) == 1
    assert sorted(np.asarray(blocks.pixels)) == list(range(40))


def test_with_more_weight_on_rare_ink_fewer_numbers_are_left():
    inputs = digits().inputs

    def left(**options):
        return sum(part.size for part in in_blocks(inputs, **options)[0].parts)

    assert left() < 0.96 * left(rarity=0.0)
    assert left(least=100) < 0.9 * left()
