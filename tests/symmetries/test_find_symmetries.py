"""Symmetries are found by measuring the loss: those of known networks, and no others."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from users import import_as_users_do

(as_users,) = import_as_users_do("counterflow")
SAMPLES = 12


def weights(*shape, seed=0):
    random = np.random.default_rng([*shape, seed])
    return jnp.asarray(random.normal(size=shape) / np.sqrt(shape[0]))


INPUTS = weights(SAMPLES, 4, seed=1) * np.sqrt(SAMPLES)
TARGETS = jax.nn.one_hot(np.arange(SAMPLES) % 3, 3)


def misfit(logits):
    return -jnp.mean(jnp.sum(TARGETS * jax.nn.log_softmax(logits), axis=1))


def squares(outputs):
    return jnp.mean((outputs - TARGETS) ** 2)


def normalized(values, axis, epsilon=0.0):
    centred = values - jnp.mean(values, axis, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis, keepdims=True) + epsilon)


def row(values):
    """Along the units of a batch of activations."""
    return values[None, :]


class Network(NamedTuple):
    loss: Any
    params: Any
    found: set[cf.Symmetry]
    unused: tuple[str, ...] = ()


def layers(activation, widths, bias, head=misfit):
    """A multi-layer perceptron."""
    count = len(widths) - 1
    params = {f"w{i}": weights(widths[i], widths[i + 1], seed=i) for i in range(count)}
    if bias:
        params |= {f"b{i}": jnp.zeros(widths[i + 1]) for i in range(count)}

    def loss(params):
        hidden = INPUTS
        for i in range(count):
            hidden = hidden @ params[f"w{i}"]
            hidden = hidden + row(params[f"b{i}"]) if bias else hidden
            hidden = activation(hidden) if i < count - 1 else hidden
        return head(hidden)

    return loss, params


# --- batch normalization --------------------------------------------------------------------


def batch_normalized(epsilon):
    def loss(params):
        hidden = normalized(INPUTS @ params["w0"] + row(params["b0"]), 0, epsilon)
        hidden = jnp.tanh(hidden * row(params["gain"]))
        return misfit(hidden @ params["w1"])

    return loss


NORMALIZED = {
    "w0": weights(4, 5),
    "b0": jnp.zeros(5),
    "gain": jnp.ones(5),
    "w1": weights(5, 3),
}
READOUT = cf.Translation("w1", axis=0)

# --- others ---------------------------------------------------------------------------------


def weight_normalized(params):
    direction = params["v"] / jnp.sqrt(jnp.sum(params["v"] ** 2, axis=0, keepdims=True))
    return squares(jnp.tanh(INPUTS @ (direction * row(params["g"]))) @ params["w1"])


def layer_normalized(epsilon):
    def loss(params):
        hidden = normalized(INPUTS @ params["w0"] + row(params["b0"]), 1, epsilon)
        return squares(jnp.tanh(hidden) @ params["w1"])

    return loss


def attention(params):
    tokens = INPUTS.reshape(4, 3, 4)
    query, key, value = (tokens @ params[name] for name in "qkv")
    mixed = jax.nn.softmax(query @ jnp.swapaxes(key, 1, 2)) @ value
    outputs = jnp.tanh(mixed @ params["o"])
    return jnp.mean((outputs.reshape(SAMPLES, 3) - TARGETS) ** 2)


def convolution(params):
    images = INPUTS.reshape(3, 4, 4, 1)
    dimensions = ("NHWC", "HWIO", "NHWC")
    maps = jax.lax.conv_general_dilated(
        images, params["kernel"], (1, 1), "SAME", dimension_numbers=dimensions
    )
    features = jnp.mean(jnp.tanh(normalized(maps, (0, 1, 2))), axis=(1, 2))
    return jnp.mean((features @ params["w1"]) ** 3)


RELU = cf.Rescale("w0", "w1", axis={"w0": 1, "w1": 0})
BIASED: set[cf.Symmetry] = {
    cf.Rescale(("b0", "w0"), "w1", axis={"b0": 0, "w0": 1, "w1": 0}),
    cf.Rescale(("b1", "w1"), "w2", axis={"b1": 0, "w1": 1, "w2": 0}),
    cf.Rescale(("b0", "b1", "w0"), "w2"),
}
NETWORKS = {
    "batch normalization": Network(
        batch_normalized(0.0), NORMALIZED, {READOUT, cf.Scale("w0", axis=1)}, ("b0",)
    ),
    "weight normalization": Network(
        weight_normalized,
        {"v": weights(4, 5), "g": jnp.ones(5), "w1": weights(5, 3)},
        {cf.Scale("v", axis=1)},
    ),
    "layer normalization": Network(
        layer_normalized(0.0),
        {"w0": weights(4, 5), "b0": jnp.zeros(5), "w1": weights(5, 3)},
        {cf.Translation("b0"), cf.Translation("w0", axis=0), cf.Scale(("b0", "w0"))},
    ),
    "deep linear": Network(
        *layers(lambda hidden: hidden, (4, 5, 6, 3), False, squares),
        {
            RELU,
            cf.Rescale("w1", "w2", axis={"w1": 1, "w2": 0}),
            cf.Rescale("w0", "w2"),
        },
    ),
    "ReLU": Network(
        *layers(jax.nn.relu, (4, 5, 3), False),
        {READOUT, RELU},
    ),
    "leaky ReLU with biases": Network(
        *layers(jax.nn.leaky_relu, (4, 5, 6, 3), True, squares), BIASED
    ),
    "ReLU with biases, of equal widths": Network(
        *layers(jax.nn.relu, (4, 5, 5, 3), True, squares), BIASED
    ),
    "tanh": Network(*layers(jnp.tanh, (4, 5, 3), True), {READOUT, cf.Translation("b1")}),
    "attention": Network(
        attention,
        {"q": weights(4, 2), "k": weights(4, 2, seed=1), "v": weights(4, 5), "o": weights(5, 3)},
        {
            cf.Rescale("k", "q", axis={"k": 1, "q": 1}),
            cf.Rescale("o", "v", axis={"o": 0, "v": 1}),
        },
    ),
    "convolution": Network(
        convolution,
        {"kernel": weights(3, 3, 1, 5), "w1": weights(5, 2)},
        {cf.Scale("kernel", axis=3)},
    ),
    "none": Network(
        lambda params: jnp.sum(jnp.sin(params["a"])) * jnp.exp(params["b"]),
        {"a": weights(3), "b": jnp.array(0.2)},
        set(),
    ),
}


@cache
def search(name, **options):
    network = NETWORKS[name]
    return cf.find_symmetries(cf.Problem(network.loss), network.params, **options)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_symmetries_of_known_networks(name):
    network, found = NETWORKS[name], search(name)
    assert set(found) == network.found
    assert found.unused == network.unused
    assert len(found) == len(network.found)
    assert found.tolerance == 1e-6
    assert found.nearly == ()


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_found_holds(name):
    network = NETWORKS[name]
    problem = cf.Problem(network.loss)
    for item in search(name).found:
        assert item.residual < 1e-12
        assert item.symmetry.residual(problem, network.params) < 1e-6
        assert item.units == np.size(item.symmetry.charge(network.params))


def test_weight_decay_is_left_out():
    network = NETWORKS["ReLU"]
    problem = cf.Problem(network.loss, weight_decay=0.5)
    assert set(cf.find_symmetries(problem, network.params)) == set(search("ReLU"))


def test_a_small_number_inside_a_normalization_breaks_it():
    problem = cf.Problem(batch_normalized(1e-5))
    strict = cf.find_symmetries(problem, NORMALIZED)
    assert set(strict) == {READOUT}
    loose = cf.find_symmetries(problem, NORMALIZED, tolerance=1e-3)
    assert set(loose) == {READOUT, cf.Scale("w0", axis=1)}
    (scale,) = [item for item in loose.found if isinstance(item.symmetry, cf.Scale)]
    assert 1e-7 < scale.residual < 1e-3
    assert loose.tolerance == 1e-3
    # The tolerance is what it says: just above the residual is enough.
    again = cf.find_symmetries(problem, NORMALIZED, tolerance=3 * scale.residual)
    assert set(again) == set(loose)


@pytest.mark.parametrize("name", ["batch normalization", "layer normalization"])
def test_what_an_epsilon_breaks_holds_nearly(name):
    normalization = {"batch": batch_normalized, "layer": layer_normalized}[name.split()[0]]
    exact, params = search(name), NETWORKS[name].params
    problem = cf.Problem(normalization(1e-5))
    found = cf.find_symmetries(problem, params)
    (scale,) = [symmetry for symmetry in exact if isinstance(symmetry, cf.Scale)]
    assert set(found) == set(exact) - {scale}
    (item,) = found.nearly
    assert (item.symmetry, item.units) == (scale, np.size(scale.charge(params)))
    assert 1e-6 < item.residual < 1e-3
    assert scale.residual(problem, params) < 10 * item.residual
    # One transformation, and nothing where nothing is near.
    assert found.gradient_evaluations == exact.gradient_evaluations + 2
    assert f"nearly {scale!r}  {item.units:>5}  {item.residual:>8.1e}" in repr(found)


def test_nothing_holds_nearly_by_chance():
    """The product of two vectors of 1e5 entries is 3e-3 of what it could be."""
    direction = weights(100_000, seed=2)
    problem = cf.Problem(lambda theta: jnp.sin(direction @ theta))
    assert cf.find_symmetries(problem, weights(100_000, seed=3)).nearly == ()


def test_a_bias_that_is_small_belongs_to_its_group_all_the_same():
    """The weights alone hold nearly, too, off by a little more."""
    params = NETWORKS["layer normalization"].params | {"b0": 1e-4 * jnp.arange(1.0, 6.0)}
    (item,) = cf.find_symmetries(cf.Problem(layer_normalized(1e-5)), params).nearly
    assert item.symmetry == cf.Scale(("b0", "w0"))


def test_the_seed_does_not_matter():
    network = NETWORKS["layer normalization"]
    again = cf.find_symmetries(cf.Problem(network.loss), network.params, seed=5)
    assert set(again) == set(search("layer normalization"))
    assert again.found != search("layer normalization").found  # other points, other residuals


def test_params_of_zero_say_as_much():
    network = NETWORKS["ReLU"]
    nothing = jax.tree.map(jnp.zeros_like, network.params)
    assert set(cf.find_symmetries(cf.Problem(network.loss), nothing)) == set(search("ReLU"))


def test_a_homogeneity_of_another_power_is_no_rescaling():
    """`f(a²b)` is invariant under `a → αa, b → b/α²`, whose charge is not `a² − b²`."""
    problem = cf.Problem(lambda p: (p["a"] ** 2 * p["b"] - 1) ** 2)
    params = {"a": jnp.array(1.2), "b": jnp.array(0.4)}
    assert len(cf.find_symmetries(problem, params)) == 0
    linear = cf.Problem(lambda p: (p["a"] * p["b"] - 1) ** 2)
    assert set(cf.find_symmetries(linear, params)) == {cf.Rescale("a", "b")}


def test_single_precision():
    network = NETWORKS["ReLU"]
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), network.params)
    inputs, targets = INPUTS.astype(jnp.float32), TARGETS.astype(jnp.float32)

    def loss(params, data):
        logits = jax.nn.relu(data[0] @ params["w0"]) @ params["w1"]
        return -jnp.mean(jnp.sum(data[1] * jax.nn.log_softmax(logits), axis=1))

    found = cf.find_symmetries(cf.Problem(loss, (inputs, targets)), single)
    assert found.tolerance == 1e-3
    assert set(found) == set(search("ReLU"))
    assert all(1e-9 < item.residual < 1e-5 for item in found.found)


def test_a_vector_field():
    """The plane going round, whose field is no gradient, and a weight beside it."""

    def field(params):
        x, y = params["plane"]
        return {
            "plane": jnp.stack([-y, x]) / (x**2 + y**2) * (1 + params["rest"] ** 2),
            "rest": params["rest"] ** 3 - x / jnp.sqrt(x**2 + y**2),
        }

    problem = cf.Problem.from_gradient(field)
    params = {"plane": jnp.array([0.6, 0.8]), "rest": jnp.array(0.5)}
    assert set(cf.find_symmetries(problem, params)) == {cf.Scale("plane")}


def test_the_only_leaf():
    found = cf.find_symmetries(cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p)), jnp.array([0.6, 0.8]))
    assert set(found) == {cf.Scale("")}
    assert found.gradient_evaluations == (1 + 4) + 1 + 2


def test_repr():
    found = search("batch normalization")
    first, second = found.found
    assert repr(found) == (
        "symmetry                   units  residual\n"
        f"Translation('w1', axis=0)      5  {first.residual:>8.1e}\n"
        f"Scale('w0', axis=1)            5  {second.residual:>8.1e}\n"
        "the loss does not depend on 'b0'"
    )
    assert repr(search("none")) == "no symmetry within the tolerance 1e-06"
    assert found.symmetries == tuple(found)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -1e-3, float("nan")])
def test_the_tolerance_is_a_fraction(tolerance):
    with pytest.raises(ValueError, match=r"`tolerance` must be between 0 and 1, got .*: 1e-6 is u"):
        cf.find_symmetries(cf.Problem(jnp.sum), jnp.ones(2), tolerance=tolerance)


def test_bad_input():
    with pytest.raises(TypeError, match="`problem` must be a `Problem`, got function"):
        as_users.find_symmetries(lambda p: p, jnp.ones(2))
    with pytest.raises(ValueError, match="without leaves"):
        as_users.find_symmetries(as_users.Problem(jnp.sum), {})
    nearby = as_users.Problem(lambda p: jnp.sum(jnp.sqrt(p - 0.99)))
    with pytest.raises(ValueError, match="gradient must be finite at most points around the param"):
        as_users.find_symmetries(nearby, jnp.ones(5))


# --- where a gradient alone would be deceived -------------------------------------------------


def test_a_leaf_whose_gradient_vanishes_may_matter_all_the_same():
    def signs(params):
        return misfit(INPUTS @ jnp.sign(params["w"]) + row(params["b"]))

    params = {"w": weights(4, 3), "b": jnp.zeros(3)}
    found = cf.find_symmetries(cf.Problem(signs), params)
    assert found.unused == ()
    assert set(found) == {cf.Translation("b"), cf.Scale("w", axis=0), cf.Scale("w", axis=1)}


def test_sizes_of_leaves_do_not_matter():
    def far_apart(params):
        return jnp.sin(params["a"] / 1e8) + jnp.sin(1e5 * params["b"])

    found = cf.find_symmetries(cf.Problem(far_apart), {"a": jnp.array(1e8), "b": jnp.array(1e-5)})
    assert found.unused == ()
    assert len(found) == 0

    def saturating(params):
        hidden = jnp.tanh(INPUTS @ params["w"] + row(params["b"]))
        return misfit(hidden) + jnp.mean(jnp.sin(params["large"] / 1e3))

    params = {"w": weights(4, 3), "b": jnp.zeros(3), "large": jnp.full(50, 1e3)}
    assert cf.find_symmetries(cf.Problem(saturating), params).unused == ()


def test_an_unused_bias_in_single_precision():
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), NORMALIZED)
    inputs, targets = INPUTS.astype(jnp.float32), TARGETS.astype(jnp.float32)

    def loss(params, data):
        hidden = jnp.tanh(normalized(data[0] @ params["w0"] + row(params["b0"]), 0))
        return -jnp.mean(jnp.sum(data[1] * jax.nn.log_softmax(hidden @ params["w1"]), axis=1))

    params = {name: single[name] for name in ("w0", "w1")} | {
        "b0": jnp.zeros(single["w0"].shape[1], jnp.float32)
    }
    found = cf.find_symmetries(cf.Problem(loss, (inputs, targets)), params)
    assert set(found) == {cf.Translation("w1", axis=0), cf.Scale("w0", axis=1)}
    assert found.unused == ("b0",)


@pytest.mark.parametrize("names", [("w", "w.shift"), ("a.b", "a/b"), ("", "w")])
def test_names_that_look_like_paths(names):
    first, second = names

    def loss(params):
        return squares(jax.nn.relu(INPUTS @ params[first]) @ params[second])

    params = {first: weights(4, 5), second: weights(5, 3)}
    (found,) = cf.find_symmetries(cf.Problem(loss), params)
    assert isinstance(found, cf.Rescale)
    charge = found.charge(params)
    sums = jnp.sum(params[first] ** 2, axis=0) - jnp.sum(params[second] ** 2, axis=1)
    np.testing.assert_allclose(np.abs(charge), np.abs(sums))
