"""Counter terms by Taylor mode: exact, shared, and at home in every transformation and pytree."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo
from counterflow.counter_terms import taylor

# --- the zoo itself -------------------------------------------------------------------------


def test_the_exact_solution_of_the_quartic_is_the_published_table():
    gradient = zoo.ONE_DIMENSIONAL["quartic"][1]
    terms = zoo.exact_counter_terms((gradient,), len(zoo.QUARTIC_TABLE))
    expected = [({(2 * a + 5,): c},) for a, c in enumerate(zoo.QUARTIC_TABLE)]
    assert terms == expected


def test_the_exact_solution_of_predator_prey_agrees_with_the_one_by_hand():
    solved = zoo.predator_prey()
    by_hand = zoo.predator_prey_by_hand(np.asarray(solved.params))
    for term, expected in zip(solved.counter_terms, by_hand, strict=False):
        np.testing.assert_allclose(term, expected, rtol=1e-14)


# --- exactness ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", zoo.SOLVED)
def test_exactly_solved_problems(name):
    solved = zoo.SOLVED[name]()
    terms = cf.counter_terms(solved.problem, solved.params, zoo.COUNT)
    assert len(terms) == len(solved.counter_terms) == 7
    for alpha, (term, expected) in enumerate(zip(terms, solved.counter_terms, strict=True)):
        assert zoo.distance(term, expected) < 1e-10, alpha


def test_a_centred_orbit_keeps_its_digits_at_order_eight():
    # Eight orders up, a forward orbit would have lost six digits.
    matrix, params = zoo.symmetric_matrix(), jnp.asarray(np.random.default_rng(8).normal(size=5))
    problem = cf.Problem.from_gradient(lambda theta, a: a @ theta, jnp.asarray(matrix))
    term = cf.counter_term(problem, params, 8)
    expected = np.linalg.matrix_power(matrix, 10) @ params / 10
    assert zoo.distance(term, expected) < 5e-14


@cache
def network_counter_terms(count, method="taylor"):
    problem, params = zoo.network()
    terms = zoo.jit_quickly(lambda p: cf.counter_terms(problem, p, count, method=method))
    return terms(params)


def test_a_network_agrees_with_the_nested_lie_derivatives():
    for taylor_term, lie_term in zip(
        network_counter_terms(zoo.COUNT), network_counter_terms(3, "lie"), strict=False
    ):
        assert zoo.distance(taylor_term, lie_term) < 1e-13


def test_a_network_with_normalization_is_exact_to_every_order():
    independent = zoo.network_counter_terms_in_decimals(zoo.COUNT)
    terms = network_counter_terms(zoo.COUNT)
    for alpha, (term, expected) in enumerate(zip(terms, independent, strict=True)):
        assert zoo.distance(term, expected) < 1e-13, alpha


@pytest.mark.parametrize("count", range(zoo.COUNT + 1))
def test_nodes_are_centred_and_as_many_as_needed(count):
    nodes = taylor.nodes_for(count)
    assert len(nodes) == count + 1
    assert 0 in nodes
    assert nodes == tuple(range(nodes[0], nodes[-1] + 1))
    assert abs(nodes[0] + nodes[-1]) <= 1


# --- the front door -------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["taylor", "lie"])
def test_single_terms_are_the_shared_ones(method):
    solved = zoo.predator_prey()
    shared = cf.counter_terms(solved.problem, solved.params, 3, method=method)
    for alpha, term in enumerate(shared):
        alone = cf.counter_term(solved.problem, solved.params, alpha, method=method)
        assert zoo.distance(alone, term) < 1e-13


def test_no_terms_and_the_default_method():
    solved = zoo.predator_prey()
    assert cf.counter_terms(solved.problem, solved.params, 0) == ()
    default = cf.counter_terms(solved.problem, solved.params, 2)
    named = cf.counter_terms(solved.problem, solved.params, 2, method="taylor")
    assert zoo.distance(default, named) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["taylor", "lie"])
def test_the_precision_of_the_params_is_kept(dtype, method):
    params = jnp.array([0.3, -0.7], dtype)
    problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4)
    terms = cf.counter_terms(problem, params, 3, method=method)
    tolerance = 20 * float(jnp.finfo(dtype).eps)
    for alpha, term in enumerate(terms):
        assert term.dtype == dtype
        exact = float(zoo.QUARTIC_TABLE[alpha]) * np.asarray(params) ** (2 * alpha + 5)
        np.testing.assert_allclose(term, exact, rtol=tolerance)


def test_single_precision_without_x64():
    with jax.enable_x64(False):
        params = jnp.array([0.3, -0.7])
        assert params.dtype == "float32"
        terms = cf.counter_terms(cf.Problem(lambda theta: jnp.sum(theta**4) / 4), params, 3)
        for alpha, term in enumerate(terms):
            exact = float(zoo.QUARTIC_TABLE[alpha]) * np.asarray(params) ** (2 * alpha + 5)
            np.testing.assert_allclose(term, exact, rtol=3e-6)


# --- transformations ------------------------------------------------------------------------


def quartic(theta, scale):
    return scale * jnp.sum(theta**4) / 4


def quartic_terms(params, scale=1.0):
    """`ξ̃_0` and `ξ̃_1` of `scale · θ⁴/4`."""
    return 1.5 * scale**2 * params**5, 3.5 * scale**3 * params**7


POINTS = np.array([[0.5, -0.3], [0.1, 0.9], [-0.7, 0.2]])


def test_inside_jit_with_params_and_data_as_arguments():
    @jax.jit
    def terms(params, scale):
        return cf.counter_terms(cf.Problem(quartic, scale), params, 2)

    for scale in (1.0, 2.0):
        expected = quartic_terms(POINTS[0], scale)
        assert zoo.distance(terms(jnp.asarray(POINTS[0]), jnp.array(scale)), expected) < 1e-13
    assert terms._cache_size() == 1


def test_inside_vmap_over_params_and_over_data():
    problem = cf.Problem(quartic, jnp.array(2.0))
    terms = jax.vmap(lambda params: cf.counter_terms(problem, params, 2))(jnp.asarray(POINTS))
    assert zoo.distance(terms, quartic_terms(POINTS, 2.0)) < 1e-13

    scales = np.array([0.5, 1.0, 3.0])
    terms = jax.vmap(
        lambda scale: cf.counter_terms(cf.Problem(quartic, scale), jnp.asarray(POINTS[0]), 2)
    )(jnp.asarray(scales))
    assert zoo.distance(terms, quartic_terms(POINTS[:1], scales[:, None])) < 1e-13


def test_inside_scan_over_params():
    problem = cf.Problem(quartic, jnp.array(1.0))

    def body(total, params):
        first, second = cf.counter_terms(problem, params, 2)
        return total + first, second

    total, seconds = jax.lax.scan(body, jnp.zeros(2), jnp.asarray(POINTS))
    firsts, expected = quartic_terms(POINTS)
    assert zoo.distance((total, seconds), (firsts.sum(axis=0), expected)) < 1e-13


def test_counter_terms_can_themselves_be_differentiated():
    problem = cf.Problem(quartic, jnp.array(1.0))
    jacobian = jax.jit(jax.jacobian(lambda params: cf.counter_term(problem, params, 1)))
    expected = np.diag(24.5 * POINTS[0] ** 6)
    assert zoo.distance(jacobian(jnp.asarray(POINTS[0])), expected) < 1e-13


# --- pytrees --------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Weights:
    kernel: Any
    bias: Any


class Layer(eqx.Module):
    kernel: jax.Array
    name: str = eqx.field(static=True)


KERNEL, BIAS = np.arange(1.0, 7.0).reshape(2, 3) / 7, np.array(0.25)
TREES = {
    "array": KERNEL,
    "nested dict": {"outer": {"kernel": KERNEL, "bias": BIAS}, "rest": BIAS},
    "list": [KERNEL, BIAS],
    "tuple": (KERNEL, (BIAS, KERNEL)),
    "dataclass": Weights(KERNEL, [BIAS]),
    "equinox module": Layer(jnp.asarray(KERNEL), "first"),
    "missing leaf": (KERNEL, None),
    "float": 0.5,
}


@pytest.mark.parametrize(
    ("kind", "method"), [*((kind, "taylor") for kind in TREES), ("nested dict", "lie")]
)
def test_params_are_any_pytree(kind, method):
    params = TREES[kind]

    def loss(tree):
        return sum(jnp.sum(leaf**4) for leaf in jax.tree.leaves(tree)) / 4

    first, second = cf.counter_terms(cf.Problem(loss), params, 2, method=method)
    assert zoo.distance(first, jax.tree.map(lambda x: 1.5 * x**5, params)) < 1e-13
    assert zoo.distance(second, jax.tree.map(lambda x: 3.5 * x**7, params)) < 1e-13
