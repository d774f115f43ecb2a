"""A model and its loss as a problem: means, compiled once, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import counterflow as cf
from counterflow.problem.model import Constant
from users import import_as_users_do

GENERATOR = np.random.default_rng(3)
INPUTS = GENERATOR.normal(size=(7, 4))
CLASSES = GENERATOR.integers(0, 3, size=7)
TARGETS = np.eye(3)[CLASSES]
PARAMS = {"first": GENERATOR.normal(size=(4, 5)), "second": GENERATOR.normal(size=(5, 3))}


def apply(params, inputs):
    return jnp.tanh(inputs @ params["first"]) @ params["second"]


def outputs_of(params):
    return np.tanh(INPUTS @ params["first"]) @ params["second"]


def entropies(params):
    logits = outputs_of(params)
    return np.log(np.sum(np.exp(logits), axis=1)) - logits[np.arange(7), CLASSES]


@pytest.mark.parametrize(
    ("loss", "targets", "expected"),
    [
        (
            optax.softmax_cross_entropy_with_integer_labels,
            CLASSES,
            lambda: np.mean(entropies(PARAMS)),
        ),
        (optax.softmax_cross_entropy, TARGETS, lambda: np.mean(entropies(PARAMS))),
        (optax.l2_loss, TARGETS, lambda: np.mean((outputs_of(PARAMS) - TARGETS) ** 2) / 2),
        (
            lambda outputs, targets: jnp.sum((outputs - targets) ** 2),
            TARGETS,
            lambda: np.sum((outputs_of(PARAMS) - TARGETS) ** 2),
        ),
    ],
    ids=["per sample, integers", "per sample", "per sample and output", "one number"],
)
def test_the_mean_over_everything_is_taken(loss, targets, expected):
    problem = cf.Problem.from_model(apply, loss, (INPUTS, targets))
    np.testing.assert_allclose(problem.loss(PARAMS), expected(), rtol=1e-14)


def test_a_problem_built_twice_is_compiled_once():
    traced = []

    def loss(outputs, targets):
        traced.append(1)
        return optax.l2_loss(outputs, targets)

    compiled = jax.jit(cf.Problem.loss)
    for _ in range(2):
        compiled(cf.Problem.from_model(apply, loss, (INPUTS, TARGETS), 0.1), PARAMS)
    assert len(traced) == 1


def test_outputs_may_be_a_pytree():
    problem = cf.Problem.from_model(
        lambda params, inputs: {"a": inputs @ params, "b": inputs},
        lambda outputs, targets: jnp.sum(outputs["a"], axis=1) - targets,
        (INPUTS, INPUTS[:, 0]),
    )
    params = np.ones((4, 2))
    expected = np.mean(2 * INPUTS.sum(1) - INPUTS[:, 0])
    np.testing.assert_allclose(problem.loss(params), expected, rtol=1e-13)


def test_random_numbers_in_the_loss_are_found():
    generator = np.random.default_rng(0)

    def noisy(outputs, targets):
        return optax.l2_loss(outputs, targets + generator.normal(size=targets.shape))

    problem = cf.Problem.from_model(apply, noisy, (INPUTS, TARGETS))
    params = jax.tree.map(jnp.asarray, PARAMS)
    check = cf.check_problem(problem, params)["determinism"]
    assert check.level == "failure"
    assert "no random batches" in check.message


# --- constants ------------------------------------------------------------------------------


def test_constants_are_equal_by_content():
    def make(value=1.0, function=jnp.tanh, integer=3):
        return Constant.of({"a": np.array([value, 2.0]), "f": function, "n": integer, "no": None})

    assert make() == make()
    assert hash(make()) == hash(make())
    assert make() != make(value=1.5)
    assert make() != make(function=jnp.sin)
    assert make() != make(integer=3.0)  # equal as numbers, but another dtype
    tree = make().tree()
    np.testing.assert_array_equal(tree["a"], [1.0, 2.0])
    assert tree["no"] is None


def test_what_cannot_be_hashed_is_equal_to_itself_alone():
    unhashable = {1, 2}
    assert Constant.of([unhashable]) != Constant.of([{1, 2}])
    hash(Constant.of([unhashable]))


# --- what is refused ------------------------------------------------------------------------

(cf_of_users,) = import_as_users_do("counterflow")
build = cf_of_users.Problem.from_model


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: build("net", optax.l2_loss, (INPUTS, TARGETS)),
            TypeError,
            "`apply` must be a fun",
        ),
        (
            lambda: build(apply, lambda outputs: 0.0, (INPUTS, TARGETS)),
            TypeError,
            r"`loss` must accept loss\(outputs, targets\), got the signature \(outputs\)",
        ),
        (
            lambda: build(apply, optax.l2_loss, INPUTS),
            TypeError,
            r"`data` must be a pair `\(inputs, targets\)`, got ndarray: .*`Problem\(loss, data\)`",
        ),
        (lambda: build(apply, optax.l2_loss, (INPUTS,)), TypeError, "a pair .*got 1 parts"),
        (
            lambda: build(apply, optax.l2_loss, (INPUTS, TARGETS[1:])),
            ValueError,
            r"as many samples in every array, got 7 in \[0\], 6 in \[1\]: .*first axis",
        ),
        (
            lambda: build(apply, optax.l2_loss, (INPUTS, [1, 2, 3])),
            ValueError,
            r"first axis of every array, but the leaf \[1\]\[0\] is a single number: .*jnp.array",
        ),
        (
            lambda: build(apply, optax.l2_loss, (INPUTS, "labels")),
            TypeError,
            r"`data` must be a pytree of arrays, but the leaf \[1\] is a str",
        ),
        (
            lambda: build(apply, optax.l2_loss, (INPUTS[:0], TARGETS[:0])),
            ValueError,
            "at least one sample",
        ),
        (
            # outputs (7, 1) less targets (7,) are 7 × 7 numbers
            lambda: build(
                lambda p, x: x @ p, lambda a, b: (a[:, None, 0] - b[None]) ** 2, (INPUTS, CLASSES)
            ).loss(np.ones((4, 1))),
            ValueError,
            r"leading axes of the outputs.*got an array of shape \(7, 7\).*\(7, 1\).*\(7,\)",
        ),
        (
            lambda: build(apply, lambda outputs, targets: "none", (INPUTS, TARGETS)).loss(PARAMS),
            ValueError,
            "`loss` must return one float.*str",
        ),
    ],
)
def test_bad_input_is_told(call, error, text):
    with pytest.raises(error, match=text):
        call()
