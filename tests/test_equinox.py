"""Equinox models: the same numbers as plain JAX, compiled once, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import counterflow as cf
import counterflow.equinox
import same_network
import zoo
from users import import_as_users_do

INPUTS = np.random.default_rng(0).normal(size=(6, 4))
TARGETS = np.random.default_rng(1).normal(size=(6, 2))


# --- the same network -----------------------------------------------------------------------


class Network(eqx.Module):
    input: eqx.nn.Linear
    hidden: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    readout: eqx.nn.Linear

    def __init__(self):
        weights = same_network.weights()
        self.input, self.hidden, self.readout = (
            with_weights(eqx.nn.Linear(*w.shape, use_bias=False, key=jax.random.key(0)), w)
            for w in weights.values()
        )
        self.norm = eqx.nn.BatchNorm(
            weights["hidden"].shape[1],
            "batch",
            eps=same_network.EPSILON,
            channelwise_affine=False,
            mode="batch",
        )

    def __call__(self, x, state):
        x, state = self.norm(self.hidden(jax.nn.silu(self.input(x))), state)
        return self.readout(x), state


def with_weights(linear, weights):
    return eqx.tree_at(lambda layer: layer.weight, linear, weights.T)


def test_the_same_network_gives_the_same_numbers():
    model, state = eqx.nn.make_with_state(Network)()

    def apply(model, inputs):
        mapped = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        return mapped(inputs, state)[0]

    problem, params = cf.equinox.problem(
        model,
        optax.softmax_cross_entropy_with_integer_labels,
        *same_network.data(),
        weight_decay=same_network.WEIGHT_DECAY,
        apply=apply,
    )
    leaves = lambda p: (p.input.weight.T, p.hidden.weight.T, p.readout.weight.T)  # noqa: E731
    same_network.assert_same(problem, params, leaves)


COMPILED = jax.jit(cf.Problem.loss)


# --- models of every kind -------------------------------------------------------------------


def perceptron(seed=0):
    return eqx.nn.MLP(4, 2, 5, 2, activation=jnp.tanh, key=jax.random.key(seed))


def sequence():
    keys = jax.random.split(jax.random.key(0))
    return eqx.nn.Sequential(
        [
            eqx.nn.Linear(4, 5, key=keys[0]),
            eqx.nn.Lambda(jnp.tanh),
            eqx.nn.Dropout(0.5, inference=True),
            eqx.nn.Linear(5, 2, key=keys[1]),
        ]
    )


class Convolutional(eqx.Module):
    convolution: eqx.nn.Conv1d
    order: jax.Array  # integers, which are no params

    def __init__(self):
        self.convolution = eqx.nn.Conv1d(1, 1, 3, key=jax.random.key(0))
        self.order = jnp.array([1, 0])

    def __call__(self, x):
        return jnp.tanh(self.convolution(x[None, :])[0])[self.order]


@pytest.mark.parametrize("make", [perceptron, sequence, Convolutional])
def test_loss_gradient_and_counter_term_are_those_of_the_model(make):
    model = make()
    problem, params = cf.equinox.problem(model, optax.l2_loss, INPUTS, TARGETS, 0.1)
    by_hand = lambda model: jnp.mean((jax.vmap(model)(INPUTS) - TARGETS) ** 2) / 2  # noqa: E731
    np.testing.assert_allclose(problem.loss(params), by_hand(model), rtol=1e-14)
    expected = eqx.filter_grad(by_hand)(model)
    decayed = jax.tree.map(lambda g, leaf: g + 0.1 * leaf, expected, params)
    assert zoo.distance(problem.gradient(params), decayed) < 1e-14
    assert jax.tree.structure(cf.counter_term(problem, params, 0)) == jax.tree.structure(params)


def test_params_come_back_into_the_model():
    model = perceptron()
    _, params = cf.equinox.problem(model, optax.l2_loss, INPUTS, TARGETS)
    doubled = cf.equinox.load(model, jax.tree.map(lambda leaf: 2 * leaf, params))
    np.testing.assert_array_equal(doubled.layers[1].weight, 2 * model.layers[1].weight)
    assert doubled.activation is model.activation
    assert jax.vmap(doubled)(INPUTS).shape == (6, 2)


def test_a_layer_is_named_by_its_path():
    _, params = cf.equinox.problem(perceptron(), optax.l2_loss, INPUTS, TARGETS)
    assert cf.Scale("layers.0.weight", axis=0).charge(params).shape == (5,)


@pytest.mark.parametrize("make", [perceptron, sequence, Convolutional])
def test_a_model_built_twice_is_compiled_once(make):
    traced = []

    def loss(outputs, targets):
        traced.append(1)
        return optax.l2_loss(outputs, targets)

    for _ in range(2):
        problem, params = cf.equinox.problem(make(), loss, INPUTS, TARGETS)
        COMPILED(problem, params)
    assert len(traced) == 1


def test_another_activation_is_another_problem():
    losses = []
    for activation in (jnp.tanh, jnp.sin):
        model = eqx.nn.MLP(4, 2, 5, 2, activation=activation, key=jax.random.key(0))
        losses.append(COMPILED(*cf.equinox.problem(model, optax.l2_loss, INPUTS, TARGETS)))
    assert losses[0] != losses[1]


# --- what is refused ------------------------------------------------------------------------

(cf_of_users, _) = import_as_users_do("counterflow", "counterflow.equinox")
KEY = jax.random.key(0)
LINEAR = eqx.nn.Linear(4, 2, key=KEY)
NORM = eqx.nn.BatchNorm(4, "batch", mode="batch")


def build(model, loss=optax.l2_loss, inputs=INPUTS, targets=TARGETS, **options):
    return cf_of_users.equinox.problem(model, loss, inputs, targets, **options)


def load(params):
    return cf_of_users.equinox.load(LINEAR, params)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: build(eqx.nn.MLP), TypeError, "`model` must be a model, got the class MLP"),
        (lambda: build({"w": jnp.ones(4)}), TypeError, "must be callable, got dict: pass `apply"),
        (lambda: build(NORM), ValueError, "a layer with a state.*BatchNorm.*pass `apply`"),
        (lambda: build(eqx.nn.Dropout(0.5)), ValueError, "deterministic.*inference_mode"),
        (
            lambda: build(eqx.nn.inference_mode(NORM), apply=lambda model, x: x),
            ValueError,
            "full batch.*inference mode and uses running averages.*value=False",
        ),
        (lambda: build(eqx.nn.Identity()), ValueError, "`params` must hold at least one float"),
        (lambda: build(LINEAR, apply=lambda x: x), TypeError, r"accept apply\(model, inputs\)"),
        (
            lambda: build(LINEAR, "square"),
            TypeError,
            r"a function loss\(outputs, targets\), got str",
        ),
        (
            lambda: build(LINEAR, targets=TARGETS[1:]),
            ValueError,
            r"as many samples in every array, got 6 in \[0\], 5 in \[1\]",
        ),
        (
            lambda: load(eqx.nn.Linear(3, 2, key=KEY)),
            ValueError,
            r"those of the model, but the leaf \.weight has shape \(2, 3\).*model has.*\(2, 4\)",
        ),
        (
            lambda: load(eqx.nn.Linear(4, 2, use_bias=False, key=KEY)),
            ValueError,
            r"the leaf \.bias is missing and in the model has",
        ),
        (
            lambda: build(eqx.nn.Linear(4, 2, dtype=jnp.float32, key=KEY)),
            UserWarning,  # warnings are errors in tests
            "the params are float32.*jax_enable_x64.*`dtype=float`",
        ),
    ],
)
def test_bad_input_is_told(call, error, text):
    with pytest.raises(error, match=text):
        call()
