"""Does `check_problem` find what is wrong, and nothing where nothing is?"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.counter_terms.checks.questions import check_gradient, check_smoothness
from counterflow.networks.paper_network import cross_entropy, glorot_uniform

NAMES = "params dtype closure finite determinism gradient smoothness methods".split()


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def network(activation, dtype=float, samples=30):
    """A two-layer regression problem, and its params."""
    data = tuple(jnp.asarray(draw(samples, n, seed=n), dtype) for n in (4, 2))
    params = {
        "first": jnp.asarray(draw(4, 8, seed=5), dtype),
        "second": jnp.asarray(draw(8, 2, seed=6), dtype),
    }

    def loss(params, data):
        x, y = data
        return jnp.mean((activation(x @ params["first"]) @ params["second"] - y) ** 2)

    return cf.Problem(loss, data, weight_decay=1e-2), params


def levels(report):
    return {check.name: check.level for check in report.checks}


def assert_clean(report):
    assert levels(report) == dict.fromkeys(NAMES, "ok"), f"\n{report}"
    assert report.ok


def smoothness(problem, params, order):
    """The smoothness check alone: the others take most of the time."""
    return check_smoothness(problem, params, problem.gradient(params), order)


# --- no false alarms ------------------------------------------------------------------------


def test_the_paper_network_passes_every_check():
    inputs, classes = draw(40, 6), np.arange(40) % 3
    problem = cf.Problem(cross_entropy, (inputs, np.eye(3)[classes]), weight_decay=1e-2)
    report = cf.check_problem(problem, glorot_uniform((6, 5, 4, 3)))
    assert_clean(report)
    assert "order 2" in report["smoothness"].message


def several(x):
    """Activations that are built from `max`, `abs` and `where`, and are smooth."""
    exact = jax.nn.gelu(x, approximate=False)
    return jnp.tanh(x) + jax.nn.silu(x) + jax.nn.softplus(x) + exact + jax.nn.gelu(x)


@pytest.mark.parametrize(
    "activation",
    [several, jax.nn.softmax, lambda x: jax.nn.sigmoid(1000 * x), lambda x: x],
    ids="several softmax steep identity".split(),
)
def test_a_smooth_network_has_no_kinks(activation):
    check = smoothness(*network(activation), order=2)
    assert check.level == "ok", check


@pytest.mark.parametrize(
    ("loss", "params"),
    [
        (lambda z: jnp.sum(z**2), jnp.array([1.0, -2.0])),
        (lambda z: jnp.sum(z**4) / 4, jnp.array([0.3])),
        (lambda z: jnp.sum(z * jnp.log(z)), jnp.array([0.3, 2.0])),
        (lambda z: jnp.sum(1 / z**2), jnp.array([0.5])),
        (lambda z: jnp.sum(jnp.cos(z)), jnp.zeros(3)),
        (lambda z: jnp.exp(3 * jnp.sum(z)), jnp.array([2.0, 1.0])),
        (lambda z: 3.0 * jnp.sum(z), jnp.array([1.0, 2.0])),
    ],
    ids="quadratic quartic entropy pole rest exponential linear".split(),
)
def test_a_smooth_function_passes(loss, params):
    problem = cf.Problem(loss)
    for check in (
        smoothness(problem, params, order=3),
        check_gradient(problem, params, problem.gradient(params)),
    ):
        assert check.level == "ok", check


def test_a_smooth_network_in_single_precision_passes_with_a_warning():
    problem, params = network(jnp.tanh, jnp.float32)
    report = cf.check_problem(problem, params, order=3)
    assert report.ok, f"\n{report}"
    assert report["dtype"].level == "warning"
    assert "1.2e-07" in report["dtype"].message
    assert "jax_enable_x64" in report["dtype"].message
    assert report["smoothness"].level == "warning"
    assert "single precision" in report["smoothness"].message


# --- kinks ----------------------------------------------------------------------------------


def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2), (1, 1), "SAME")


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        (jax.nn.relu, "relu"),
        (jax.nn.leaky_relu, "leaky_relu"),
        (lambda x: jnp.clip(x, -1, 1), "clip"),
        (jnp.abs, "abs"),
        (pool, "max-pooling"),
        (lambda x: jnp.where(x > 0, x, 0.1 * jnp.tanh(x)), "where"),
    ],
    ids="relu leaky_relu clip abs pool where".split(),
)
def test_a_jump_of_the_gradient_is_found_and_named(activation, name):
    check = smoothness(*network(activation), order=1)
    assert check.level == "failure"
    assert check.message.startswith("the loss has 0 continuous derivatives only, order 1 needs 2:")
    assert f"probably because of {name}," in check.message
    assert "no counter term is valid" in check.message


def test_a_relu_network_in_single_precision_is_found():
    check = smoothness(*network(jax.nn.relu, jnp.float32), order=1)
    assert check.level == "failure"
    assert "the loss has 0 continuous derivatives only" in check.message


def test_elu_is_smooth_enough_for_gradient_flow_alone():
    problem, params = network(jax.nn.elu)
    assert smoothness(problem, params, order=0).level == "ok"
    check = smoothness(problem, params, order=1)
    assert check.level == "failure"
    assert check.message.startswith("the loss has 1 continuous derivative only, order 1 needs 2: d")
    assert "because of elu," in check.message
    assert "does not apply beyond order 0" in check.message


def test_a_cubed_relu_is_smooth_enough_for_order_one():
    check = smoothness(*network(lambda x: jax.nn.relu(x) ** 3), order=2)
    assert check.message.startswith("the loss has 2 continuous derivatives only, order 2 needs 3")
    assert "does not apply beyond order 1" in check.message


def test_a_loss_with_steps_is_not_continuous():
    problem = cf.Problem(lambda z: jnp.sum(z**2 + jnp.round(3 * z)))
    check = smoothness(problem, jnp.array([1.1, -2.3]), order=1)
    assert check.level == "failure"
    assert "not continuous" in check.message
    assert "because of round," in check.message


def test_one_kink_far_away_is_found():
    problem = cf.Problem(lambda z: jnp.sum(z**2) + 1e-3 * jnp.abs(z[0]))
    check = smoothness(problem, jnp.array([3.0, 1.0, 2.0]), order=1)
    assert check.message.startswith("the loss has 0 continuous derivatives only")


# --- derivatives ----------------------------------------------------------------------------


@jax.custom_jvp
def slightly_wrong(x):
    return jnp.sin(x)


slightly_wrong.defjvps(lambda t, _, x: 1.01 * jnp.cos(x) * t)


@jax.custom_vjp
def clipped_backwards(x):
    return jnp.tanh(x)


clipped_backwards.defvjp(lambda x: (jnp.tanh(x), x), lambda x, t: (0.5 * t * jnp.cos(x),))


@pytest.mark.parametrize("function", [slightly_wrong, clipped_backwards], ids=["jvp", "vjp"])
def test_a_wrong_gradient_is_found(function):
    problem, params = network(function)
    check = check_gradient(problem, params, problem.gradient(params))
    assert check.level == "failure"
    assert "finite differences" in check.message


def test_a_wrong_second_derivative_is_found():
    def field(z):
        return z * jax.lax.stop_gradient(jnp.sum(z**2))

    check = smoothness(cf.Problem.from_gradient(field), jnp.array([0.4, -0.7, 1.1]), order=2)
    assert check.level == "failure"
    assert "derivative 1 of the gradient does not describe it" in check.message


def test_a_field_that_is_no_gradient_is_told_and_passes():
    problem = cf.Problem.from_gradient(lambda z: jnp.array([z[0] * (z[1] - 2), z[1] * (1 - z[0])]))
    report = cf.check_problem(problem, jnp.array([2.0, 3.0]))
    assert_clean(report)
    assert "not a gradient" in report["gradient"].message


def test_a_field_that_is_a_gradient_is_told():
    problem, params = cf.Problem.from_gradient(jax.grad(lambda z: jnp.sum(z) ** 3)), jnp.ones(2)
    check = check_gradient(problem, params, problem.gradient(params))
    assert check.level == "ok"
    assert "which is a gradient" in check.message


# --- values ---------------------------------------------------------------------------------


def test_a_random_loss_is_found():
    generator = np.random.default_rng(0)

    def loss(params):
        mask = generator.uniform(size=params.shape) < 0.5
        return jnp.sum(jnp.where(mask, params, 0.0) ** 2)

    report = cf.check_problem(cf.Problem(loss), jnp.arange(1.0, 20.0))
    assert report["determinism"].level == "failure"
    assert "full batch" in report["determinism"].message
    assert not report.ok


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda z: jnp.sum(jnp.log(z)), "the loss is nan"),
        (lambda z: jnp.sum(1 / (z + 1)), "the loss is inf"),
        (lambda z: jnp.sqrt(jnp.sum((z + 1) ** 2)), "the gradient holds NaN"),
    ],
    ids="nan infinite gradient".split(),
)
def test_values_that_are_not_finite_are_found(loss, words):
    report = cf.check_problem(cf.Problem(loss), jnp.array([-1.0]))
    assert report["finite"].level == "failure"
    assert words in report["finite"].message


def test_a_large_closure_is_told():
    table = jnp.asarray(draw(40_000, 4))
    problem = cf.Problem(lambda z: jnp.mean((table @ z) ** 2))
    report = cf.check_problem(problem, jnp.ones(4), order=0)
    assert report["closure"].level == "warning"
    assert "1.2 MiB" in report["closure"].message
    assert report.ok


# --- methods --------------------------------------------------------------------------------


def test_operations_without_a_taylor_rule_are_named_every_time():
    def loss(z):
        return jnp.sum(jax.lax.cond(z[0] > 0, jnp.sin, jnp.cos, z)) ** 2

    problem = cf.Problem(loss)
    for _ in range(2):
        check = cf.check_problem(problem, jnp.array([0.5, 0.7]), order=1)["methods"]
        assert check.level == "warning"
        assert "nested derivatives for 'cond'" in check.message
        assert "taylor and lie agree" in check.message


def test_a_callback_leaves_orbit():
    def field(z):
        return jax.pure_callback(
            lambda x: np.asarray(x) ** 3, jax.ShapeDtypeStruct((2,), z.dtype), z
        )

    report = cf.check_problem(cf.Problem.from_gradient(field), jnp.array([0.5, 0.7]))
    assert report.ok, f"\n{report}"
    assert report["methods"].level == "warning"
    assert report["methods"].message.startswith("orbit works; taylor and lie are not available (")
    assert "higher derivatives are not available (see methods)" in report["smoothness"].message
    assert "Jacobian is not available" in report["gradient"].message


def test_a_function_that_cannot_be_compiled_fails():
    def field(z):
        return z if float(z[0]) > 0 else -z

    report = cf.check_problem(cf.Problem.from_gradient(field), jnp.array([0.5, 0.7]))
    assert report["determinism"].level == "ok"
    assert report["methods"].level == "failure"
    assert "cannot be compiled" in report["methods"].message


# --- the report -----------------------------------------------------------------------------


def test_a_report_can_be_read():
    report = cf.check_problem(cf.Problem(lambda z: jnp.sum(jnp.abs(z))), jnp.array([1.0, -2.0]))
    lines = str(report).splitlines()
    assert [line.split()[1] for line in lines] == NAMES
    assert [line[0] for line in lines] == [*"✓✓✓✓✓✓✗✓"]
    assert len({line.index(c.message) for line, c in zip(lines, report.checks, strict=True)}) == 1
    assert str(report["dtype"]) == "✓ dtype: float64"
    with pytest.raises(KeyError, match="no check is named 'speed'"):
        report["speed"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.checks = ()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("loss", "params", "name", "words"),
    [
        (lambda z: z**2, jnp.ones(3), "finite", "must return one float"),
        (lambda z: jnp.sum(z @ jnp.ones(7)), jnp.ones(3), "finite", "TypeError"),
        (lambda z: 1 // 0, jnp.ones(3), "finite", "ZeroDivisionError"),
        (jnp.sum, jnp.arange(3), "params", "float arrays"),
        (jnp.sum, {}, "params", "without leaves"),
        (jnp.sum, jnp.array([1.0, np.nan]), "params", "NaN"),
        (jnp.sum, "text", "params", "float arrays"),
    ],
    ids="array shapes raises integer empty nan text".split(),
)
def test_whatever_is_wrong_becomes_a_line(loss, params, name, words):
    report = cf.check_problem(cf.Problem(loss), params)
    assert not report.ok
    assert report[name].level == "failure"
    assert words in report[name].message


def test_wrong_arguments_raise():
    problem = cf.Problem(jnp.sum)
    with pytest.raises(ValueError, match="`order` must be at least 0, got -1"):
        cf.check_problem(problem, jnp.ones(2), order=-1)
    with pytest.raises(TypeError):
        cf.check_problem(jnp.sum, jnp.ones(2))  # pyright: ignore[reportArgumentType]
