"""The first layer with its data transposed too, or in blocks: the same network and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.data.digits import digits
from counterflow.networks.blocks import in_blocks
from counterflow.networks.paper_network import cross_entropy, glorot_uniform

PARAMS = glorot_uniform((64, 5, 4, 10))


def arranged(how):
    """The problem with its data arranged in a way."""
    inputs, targets = digits().inputs, digits().targets
    blocks, order = in_blocks(inputs)
    data = {
        "plain": (inputs, targets),
        "transposed": (inputs, targets, inputs.T.copy()),
        "blocks": (blocks, targets[order]),
    }
    return cf.Problem(cross_entropy, jax.tree.map(jnp.asarray, data[how]), weight_decay=0.01)


@pytest.fixture(scope="module")
def plain():
    return arranged("plain")


@pytest.fixture(scope="module", params=["transposed", "blocks"])
def problem(request):
    return arranged(request.param)


def close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14), a, b)


def test_loss_gradient_and_products_are_the_same(plain, problem):
    close(plain.loss(PARAMS), problem.loss(PARAMS))
    close(plain.gradient(PARAMS), problem.gradient(PARAMS))
    close(*(p.hessian_vector_product(PARAMS, PARAMS) for p in (plain, problem)))


@pytest.mark.filterwarnings("error")  # of an operation without a rule
@pytest.mark.parametrize("method", ["taylor", "lie"])
def test_counter_terms_are_the_same(plain, problem, method):
    close(*(cf.counter_terms(p, PARAMS, 3, method=method) for p in (plain, problem)))


def test_the_gradient_uses_the_transposed_data():
    inputs, targets, transposed = arranged("transposed").data
    wrong = cf.Problem(cross_entropy, (inputs, targets, 0 * transposed)).gradient(PARAMS)
    assert not np.any(wrong["input"])
    assert np.any(wrong["hidden"])
