"""The data of the paper's network, arranged so that gradients are fast."""

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.data.dataset import Dataset
from counterflow.experiments.paper.setting import PaperSetting
from counterflow.networks.blocks import Blocks
from counterflow.networks.paper_network import cross_entropy
from counterflow.runs.configuration import Configuration

IMAGES = 1_700


@pytest.fixture(scope="module")
def setting():
    """Drawings on 784 pixels, half of which are blank."""
    random = np.random.default_rng(0)
    pixels = random.uniform(0, 1, (IMAGES, 784)) * (random.random((IMAGES, 784)) < 0.5)
    targets = np.eye(10)[random.integers(0, 10, IMAGES)]
    return PaperSetting(Configuration(), Dataset(pixels, 1, targets))


def test_many_images_are_in_blocks_and_have_the_same_gradient(setting):
    problem, params = setting.problem(0.01, seed=7)
    assert isinstance(problem.data[0], Blocks)
    data = tuple(map(jnp.asarray, (setting.dataset.inputs, setting.dataset.targets)))
    plain = cf.Problem(cross_entropy, data, weight_decay=0.01)
    for name, leaf in plain.gradient(params).items():
        np.testing.assert_allclose(problem.gradient(params)[name], leaf, atol=1e-15)


def test_few_images_are_left_as_they_are(setting):
    problem, _ = setting.problem(0.01, seed=7, samples=50)
    inputs, targets = problem.data
    np.testing.assert_array_equal(inputs, setting.dataset.inputs[:50])
    np.testing.assert_array_equal(targets, setting.dataset.targets[:50])
