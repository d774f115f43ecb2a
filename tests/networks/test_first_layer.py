"""The first layer with its data transposed too: the same network, its derivatives and all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.networks.paper_network import cross_entropy, glorot_uniform


@pytest.fixture(scope="module")
def problems():
    random = np.random.default_rng(0)
    inputs = jnp.asarray(random.normal(size=(30, 6)))
    targets = jnp.asarray(np.eye(3)[random.integers(0, 3, 30)])
    plain = cf.Problem(cross_entropy, (inputs, targets), weight_decay=0.01)
    transposed = cf.Problem(cross_entropy, (inputs, targets, inputs.T), weight_decay=0.01)
    return plain, transposed, glorot_uniform((6, 5, 4, 3))


def close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14), a, b)


def test_loss_gradient_and_products_are_the_same(problems):
    plain, transposed, params = problems
    close(plain.loss(params), transposed.loss(params))
    close(plain.gradient(params), transposed.gradient(params))
    close(*(p.hessian_vector_product(params, params) for p in (plain, transposed)))


@pytest.mark.filterwarnings("error")  # of an operation without a rule
def test_counter_terms_are_the_same(problems):
    plain, transposed, params = problems
    for method in ("taylor", "lie"):
        close(*(cf.counter_terms(p, params, 3, method=method) for p in (plain, transposed)))


def test_the_gradient_uses_the_transposed_data(problems):
    _, transposed, params = problems
    wrong = cf.Problem(cross_entropy, (*transposed.data[:2], 0 * transposed.data[2]))
    assert not np.any(wrong.gradient(params)["input"])
    assert np.any(wrong.gradient(params)["hidden"])
