"""A problem: its loss, its gradient with weight decay, and its place in JAX's transformations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo

MATRIX = zoo.symmetric_matrix()
THETA = np.random.default_rng(1).normal(size=5)
VECTOR = np.random.default_rng(2).normal(size=5)
DECAY = 0.3
REGULARIZED = MATRIX + DECAY * np.eye(5)


def quadratic_loss(theta, matrix):
    return theta @ matrix @ theta / 2


PROBLEMS = {
    "loss": cf.Problem(lambda theta: quadratic_loss(theta, MATRIX), weight_decay=DECAY),
    "loss with data": cf.Problem(quadratic_loss, MATRIX, DECAY),
    "field": cf.Problem.from_gradient(lambda theta: MATRIX @ theta, weight_decay=DECAY),
    "field with data": cf.Problem.from_gradient(lambda theta, a: a @ theta, MATRIX, DECAY),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradient_and_hessian_vector_product_of_a_quadratic(name):
    problem, theta = PROBLEMS[name], jnp.asarray(THETA)
    assert zoo.distance(problem.gradient(theta), REGULARIZED @ THETA) < 1e-14
    product = problem.hessian_vector_product(theta, jnp.asarray(VECTOR))
    assert zoo.distance(product, REGULARIZED @ VECTOR) < 1e-14


@pytest.mark.parametrize("name", ["loss", "loss with data"])
def test_the_loss_is_without_the_weight_decay(name):
    assert PROBLEMS[name].has_loss
    expected = THETA @ MATRIX @ THETA / 2
    assert float(PROBLEMS[name].loss(jnp.asarray(THETA))) == pytest.approx(expected, rel=1e-14)


def test_a_field_has_no_loss():
    assert not PROBLEMS["field"].has_loss
    with pytest.raises(ValueError, match=r"from_gradient.*no loss.*only a gradient"):
        PROBLEMS["field"].loss(jnp.asarray(THETA))


def test_the_hessian_of_a_quartic_depends_on_params_and_the_jacobian_on_direction():
    quartic = cf.Problem(lambda theta: jnp.sum(theta**4) / 4, weight_decay=0.5)
    theta, vector = jnp.array([1.0, 2.0]), jnp.array([1.0, -1.0])
    product = quartic.hessian_vector_product(theta, vector)
    np.testing.assert_allclose(product, [3.5, -12.5], rtol=1e-15)

    matrix = np.array([[0.0, 1.0], [0.0, 0.0]])  # the Jacobian itself, not its transpose
    shear = cf.Problem.from_gradient(lambda theta, a: a @ theta, matrix)
    np.testing.assert_array_equal(shear.hessian_vector_product(theta, vector), matrix @ vector)


def test_the_gradient_is_shaped_like_params():
    params = {"a": jnp.ones((2, 3)), "b": (jnp.ones(()), [jnp.ones(1)])}
    problem = cf.Problem(lambda p: sum(jnp.sum(x**2) for x in jax.tree.leaves(p)), None, 1.0)
    assert zoo.distance(problem.gradient(params), jax.tree.map(lambda x: 3 * x, params)) < 1e-15


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_has_the_dtype_of_params(dtype):
    problem = cf.Problem(lambda theta: jnp.sum(theta**2), weight_decay=0.1)
    params = jnp.ones(3, dtype)
    assert problem.gradient(params).dtype == dtype
    assert problem.loss(params).dtype == dtype
    assert problem.hessian_vector_product(params, params).dtype == dtype


@pytest.mark.parametrize("given", [0.1, np.float64(0.1), np.array(0.1)], ids=["float", "np", "0-d"])
def test_weight_decay_keeps_double_precision_without_x64(given):
    with jax.enable_x64(False):
        problem = cf.Problem(lambda theta: jnp.sum(theta**2), weight_decay=given)
    assert problem.weight_decay.dtype == "float64"
    assert float(problem.weight_decay) == 0.1
    # 0.1 · 1 − 0.1 would show a rounding to single precision at 1e-9.
    assert float(problem.gradient(jnp.array(1.0))) == 2.1


# --- transformations ------------------------------------------------------------------------


def test_a_problem_passes_through_jit_as_an_argument():
    traces = []

    def loss(theta, matrix):
        traces.append(1)
        return quadratic_loss(theta, matrix)

    @jax.jit
    def gradient(problem, theta):
        return problem.gradient(theta)

    theta = jnp.asarray(THETA)
    for scale, decay in [(1.0, 0.0), (2.0, 0.0), (3.0, 0.5)]:
        problem = cf.Problem(loss, jnp.asarray(scale * MATRIX), decay)
        expected = (scale * MATRIX + decay * np.eye(5)) @ THETA
        assert zoo.distance(gradient(problem, theta), expected) < 1e-14
    assert len(traces) == 1


@pytest.mark.parametrize("data", [lambda s: s, lambda s: {"scale": s, "flag": True}])
def test_plain_numbers_as_data_do_not_compile_anew(data):
    traces = []

    def loss(theta, data):
        traces.append(1)
        scale = data["scale"] if isinstance(data, dict) else data
        return scale * jnp.sum(theta**2)

    # Equinox's `filter_jit`, which the package uses, takes plain numbers for static.
    gradient = eqx.filter_jit(lambda problem, theta: problem.gradient(theta))
    for scale in (1.0, 2.0, 5.0):
        value = gradient(cf.Problem(loss, data(scale)), jnp.ones(2))
        np.testing.assert_allclose(value, 2 * scale * np.ones(2), rtol=1e-15)
    assert len(traces) == 1


def test_counter_terms_do_not_compile_anew_when_the_data_change():
    traces = []

    def loss(theta, scale):
        traces.append(1)
        return scale * jnp.sum(theta**2) / 2

    theta, counts = jnp.ones(2), []
    for scale in (1.0, 2.0, 3.0):
        (term,) = cf.counter_terms(cf.Problem(loss, jnp.array(scale)), theta, 1)
        np.testing.assert_allclose(term, scale**2 * np.ones(2) / 2, rtol=1e-14)
        counts.append(len(traces))
    # The door itself looks at the loss once per call, without compiling.
    assert counts[2] - counts[1] == counts[1] - counts[0] <= 1


def test_vmap_over_params_over_data_and_over_weight_decay():
    thetas = np.stack([THETA, VECTOR])
    gradients = jax.vmap(PROBLEMS["loss with data"].gradient)(jnp.asarray(thetas))
    assert zoo.distance(gradients, thetas @ REGULARIZED) < 1e-14

    matrices = np.stack([MATRIX, 2 * MATRIX])
    stacked = eqx.tree_at(lambda p: p.data, PROBLEMS["loss with data"], jnp.asarray(matrices))
    axes = eqx.tree_at(lambda p: (p.data, p.weight_decay), stacked, (0, None))
    gradients = jax.vmap(lambda p, t: p.gradient(t), (axes, None))(stacked, jnp.asarray(THETA))
    expected = np.stack([(m + DECAY * np.eye(5)) @ THETA for m in matrices])
    assert zoo.distance(gradients, expected) < 1e-14

    decays = np.array([0.0, 0.5, 2.0])

    def gradient(decay):
        return cf.Problem(quadratic_loss, MATRIX, decay).gradient(jnp.asarray(THETA))

    expected = np.stack([(MATRIX + decay * np.eye(5)) @ THETA for decay in decays])
    assert zoo.distance(jax.vmap(gradient)(jnp.asarray(decays)), expected) < 1e-14


def test_scan_over_steps_and_over_data():
    def step(theta, matrix):
        problem = cf.Problem(quadratic_loss, matrix, DECAY)
        return theta - 0.1 * problem.gradient(theta), problem.loss(theta)

    matrices = np.stack([MATRIX, 2 * MATRIX, MATRIX])
    last, losses = jax.lax.scan(step, jnp.asarray(THETA), jnp.asarray(matrices))
    theta, expected = THETA, []
    for matrix in matrices:
        expected.append(theta @ matrix @ theta / 2)
        theta = theta - 0.1 * (matrix + DECAY * np.eye(5)) @ theta
    assert zoo.distance((last, losses), (theta, np.array(expected))) < 1e-14


def test_data_and_weight_decay_are_leaves_and_the_function_is_not():
    problem = cf.Problem(quadratic_loss, {"a": MATRIX, "b": MATRIX}, DECAY)
    assert len(jax.tree.leaves(problem)) == 3
    assert jax.tree.structure(problem) == jax.tree.structure(
        cf.Problem(quadratic_loss, {"a": 2 * MATRIX, "b": MATRIX}, 0.0)
    )
    derivative = jax.grad(lambda p: p.loss(jnp.asarray(THETA)))(
        cf.Problem(quadratic_loss, jnp.asarray(MATRIX), jnp.array(DECAY))
    )
    assert zoo.distance(derivative.data, np.outer(THETA, THETA) / 2) < 1e-14


def test_a_problem_cannot_be_changed():
    with pytest.raises(AttributeError):
        PROBLEMS["loss"].weight_decay = 1.0  # pyright: ignore[reportAttributeAccessIssue]
