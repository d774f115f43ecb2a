"""Flax modules, NNX and Linen: the same numbers as plain JAX, and what is refused."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import counterflow as cf
import counterflow.flax
import same_network
from users import import_as_users_do

INPUTS = np.random.default_rng(0).normal(size=(6, 4))
TARGETS = np.random.default_rng(1).normal(size=(6, 2))
CROSS_ENTROPY = optax.softmax_cross_entropy_with_integer_labels
COMPILED = jax.jit(cf.Problem.loss)


# --- the same network -----------------------------------------------------------------------


class Network(nnx.Module):
    def __init__(self):
        weights = same_network.weights()
        options = {"use_bias": False, "param_dtype": float, "rngs": nnx.Rngs(0)}
        for name, initial in weights.items():
            setattr(self, name, nnx.Linear(*initial.shape, **options))
            getattr(self, name).kernel[...] = initial
        width = weights["hidden"].shape[1]
        self.norm = nnx.BatchNorm(width, epsilon=same_network.EPSILON, use_scale=False, **options)

    def __call__(self, x):
        return self.readout(self.norm(self.hidden(jax.nn.silu(self.input(x)))))


def test_the_same_network_in_nnx_gives_the_same_numbers():
    problem, params = cf.flax.problem(
        Network(), CROSS_ENTROPY, *same_network.data(), weight_decay=same_network.WEIGHT_DECAY
    )
    leaves = lambda p: [p[name]["kernel"] for name in ("input", "hidden", "readout")]  # noqa: E731
    same_network.assert_same(problem, params, leaves)


class LinenNetwork(linen.Module):
    @linen.compact
    def __call__(self, x):
        sizes = {name: initial.shape[1] for name, initial in same_network.weights().items()}
        dense = {
            name: linen.Dense(size, use_bias=False, param_dtype=float, name=name)
            for name, size in sizes.items()
        }
        x = dense["hidden"](jax.nn.silu(dense["input"](x)))
        x = linen.BatchNorm(
            use_running_average=False, epsilon=same_network.EPSILON, use_bias=False, use_scale=False
        )(x)
        return dense["readout"](x)


def apply_linen(params, inputs):
    # Batch normalization writes its running averages, which are of no use here.
    return LinenNetwork().apply({"params": params}, inputs, mutable=["batch_stats"])[0]


def test_the_same_network_in_linen_gives_the_same_numbers():
    problem = cf.Problem.from_model(
        apply_linen, CROSS_ENTROPY, same_network.data(), same_network.WEIGHT_DECAY
    )
    params = {name: {"kernel": initial} for name, initial in same_network.weights().items()}
    own = LinenNetwork().init(jax.random.key(0), same_network.data()[0])["params"]
    assert jax.tree.map(jnp.shape, own) == jax.tree.map(jnp.shape, params)
    leaves = lambda p: [p[name]["kernel"] for name in ("input", "hidden", "readout")]  # noqa: E731
    same_network.assert_same(problem, params, leaves)


# --- modules --------------------------------------------------------------------------------


class Perceptron(nnx.Module):
    """With a list of layers, batch normalization and dropout that is turned off."""

    def __init__(self, rate=0.5, deterministic=True, param_dtype=float):
        options = {"param_dtype": param_dtype, "rngs": nnx.Rngs(0)}
        self.layers = nnx.List([nnx.Linear(4, 5, **options), nnx.Linear(5, 2, **options)])
        self.norm = nnx.BatchNorm(5, **options)
        self.dropout = nnx.Dropout(rate, deterministic=deterministic, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.layers[1](self.dropout(jnp.tanh(self.norm(self.layers[0](x)))))


def by_hand(params, inputs):
    first, second, norm = params["layers"][0], params["layers"][1], params["norm"]
    x = inputs @ first["kernel"] + first["bias"][None]
    x = (x - x.mean(0, keepdims=True)) / jnp.sqrt(x.var(0, keepdims=True) + 1e-5)
    return jnp.tanh(x * norm["scale"][None] + norm["bias"][None]) @ second["kernel"]


def test_params_have_the_names_of_the_module_and_the_module_stays_as_it_is():
    module = Perceptron()
    before = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(module, nnx.BatchStat)))
    problem, params = cf.flax.problem(module, optax.l2_loss, INPUTS, TARGETS)
    assert jax.tree.map(jnp.shape, params) == {
        "layers": {0: {"kernel": (4, 5), "bias": (5,)}, 1: {"kernel": (5, 2), "bias": (2,)}},
        "norm": {"scale": (5,), "bias": (5,)},
    }
    expected = jnp.mean((by_hand(params, INPUTS) - TARGETS) ** 2) / 2
    np.testing.assert_allclose(problem.loss(params), expected, rtol=1e-13)
    cf.counter_term(problem, params, 0)
    after = nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))
    jax.tree.map(np.testing.assert_array_equal, before, after)
    assert cf.Scale("layers.0.kernel", axis=1).charge(params).shape == (5,)


def test_params_come_back_into_the_module():
    module = Perceptron()
    _, params = cf.flax.problem(module, optax.l2_loss, INPUTS, TARGETS)
    loaded = cf.flax.load(module, jax.tree.map(lambda leaf: leaf + 1, params))
    assert loaded is module
    np.testing.assert_array_equal(module.layers[1].bias[...], np.ones(2))


@pytest.mark.parametrize("kind", ["nnx", "linen"])
def test_a_problem_built_twice_is_compiled_once(kind):
    traced = []

    def loss(outputs, targets):
        traced.append(1)
        return optax.l2_loss(outputs, targets)

    dense = linen.Dense(2, param_dtype=float)
    for _ in range(2):
        if kind == "nnx":
            problem, params = cf.flax.problem(Perceptron(), loss, INPUTS, TARGETS)
        else:
            problem = cf.Problem.from_model(dense.apply, loss, (INPUTS, TARGETS))
            params = dense.init(jax.random.key(0), INPUTS)
        COMPILED(problem, params)
    assert len(traced) == 1


def test_apply_takes_the_place_of_the_call():
    problem, params = cf.flax.problem(
        Perceptron(), optax.l2_loss, INPUTS, TARGETS, apply=lambda module, x: 0 * module(x)
    )
    np.testing.assert_allclose(problem.loss(params), np.mean(TARGETS**2) / 2, rtol=1e-14)


# --- what is refused ------------------------------------------------------------------------

(cf_of_users, _) = import_as_users_do("counterflow", "counterflow.flax")


def build(module, loss=optax.l2_loss, inputs=INPUTS, targets=TARGETS, **options):
    return cf_of_users.flax.problem(module, loss, inputs, targets, **options)


def in_inference_mode():
    module = Perceptron()
    module.eval()
    return module


class Integers(nnx.Module):
    def __init__(self):
        self.weight = nnx.Param(jnp.arange(4))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: build(Perceptron), TypeError, "a module of Flax NNX, got the class Perceptron"),
        (lambda: build(lambda x: x), TypeError, "a module of Flax NNX, got function"),
        (
            lambda: build(linen.Dense(2)),
            TypeError,
            r"got Dense of Flax Linen.*from_model\(module.apply, .*module.init",
        ),
        (
            lambda: build(in_inference_mode()),
            ValueError,
            r"full batch, but the layer norm is in inference mode.*module.train\(\)",
        ),
        (
            lambda: build(Perceptron(deterministic=False)),
            ValueError,
            "deterministic, but draws random numbers.*deterministic=True",
        ),
        (
            lambda: build(Integers()),
            TypeError,
            r"pytree of float arrays, but the leaf \['weight'\] has dtype int",
        ),
        (
            lambda: build(Perceptron(), apply=lambda x: x),
            TypeError,
            r"accept apply\(module, inputs\)",
        ),
        (
            lambda: build(Perceptron(), targets=TARGETS[1:]),
            ValueError,
            r"as many samples in every array, got 6 in \[0\], 5 in \[1\]",
        ),
        (
            lambda: cf_of_users.flax.load(Perceptron(), {"layers": {}}),
            ValueError,
            r"the leaf \['layers'\]\[0\]\['bias'\] is missing and in the model has shape",
        ),
        (
            lambda: build(Perceptron(param_dtype=jnp.float32)),
            UserWarning,  # warnings are errors in tests
            "the params are float32.*jax_enable_x64.*`param_dtype=float`",
        ),
    ],
)
def test_bad_input_is_told(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("averaged", [False, True], ids=["training mode", "eval mode"])
def test_running_averages_of_linen_are_no_params(averaged, wrapped):
    module = linen.BatchNorm(use_running_average=averaged, param_dtype=float)
    apply = (lambda params, inputs: module.apply(params, inputs)) if wrapped else module.apply
    problem = cf.Problem.from_model(apply, optax.l2_loss, (INPUTS, INPUTS), weight_decay=0.1)
    with pytest.raises(ValueError, match=r"'batch_stats', which .* decay would change.*full batch"):
        problem.gradient(module.init(jax.random.key(0), INPUTS))


def test_a_layer_may_be_called_params():
    problem = cf.Problem.from_model(
        lambda params, inputs: inputs @ params["params"] + params["shift"],
        optax.l2_loss,
        (INPUTS, TARGETS),
    )
    assert problem.loss({"params": jnp.ones((4, 2)), "shift": jnp.ones((1, 2))}) > 0


def test_without_flax_the_library_works_and_says_what_to_install():
    program = """
import sys
sys.modules["flax"] = None  # as if it were not installed
import counterflow
try:
    import counterflow.flax
except ImportError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "needs Flax" in run.stdout
    assert "pip install '.[flax]' in a clone" in run.stdout
