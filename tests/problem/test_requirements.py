"""Bad input is told at the door: what was required, what came, what to do."""

import json
import subprocess
import sys
import textwrap
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.problem.requirements import LARGE_CLOSURE_BYTES, as_params, at_the_door

# Users run the package without the runtime type checker that the tests run it with, which would
# answer first and hide what the package itself says. So all cases run once in a plain interpreter.
# Each: an expression, the error, and words that its message must contain.
BAD = {
    "negative weight decay": (
        "cf.Problem(square, weight_decay=-0.1)",
        ValueError,
        ["`weight_decay`", "at least 0", "-0.1", "0 means no weight decay"],
    ),
    "NaN weight decay": (
        "cf.Problem(square, weight_decay=float('nan'))",
        ValueError,
        ["`weight_decay`", "finite", "nan"],
    ),
    "infinite weight decay": (
        "cf.Problem(square, weight_decay=jnp.inf)",
        ValueError,
        ["`weight_decay`", "finite", "inf"],
    ),
    "weight decay in words": (
        "cf.Problem(square, weight_decay='small')",
        TypeError,
        ["`weight_decay`", "must be a number", "'small'", "str"],
    ),
    "several weight decays": (
        "cf.Problem(square, weight_decay=[0.1, 0.2])",
        ValueError,
        ["`weight_decay`", "one number", "(2,)", "vmap"],
    ),
    "loss not callable": (
        "cf.Problem(3.0)",
        TypeError,
        ["`loss` must be a function loss(params)", "float"],
    ),
    "gradient not callable": (
        "cf.Problem.from_gradient('g')",
        TypeError,
        ["`gradient` must be a function gradient(params)", "str"],
    ),
    "loss without data": (
        "cf.Problem(lambda params, data: 0.0)",
        TypeError,
        ["`loss` must accept loss(params)", "(params, data)", "pass `data=…`"],
    ),
    "loss that takes no data": (
        "cf.Problem(square, data=X)",
        TypeError,
        ["`loss` must accept loss(params, data)", "(params)", "second"],
    ),
    "gradient that takes nothing": (
        "cf.Problem.from_gradient(lambda: 0.0)",
        TypeError,
        ["`gradient` must accept gradient(params)", "()"],
    ),
    "loss that cannot be hashed": (
        "cf.Problem(eqx.nn.Linear(2, 1, key=jax.random.key(0)))",
        TypeError,
        ["`loss` must be hashable", "Linear", "`params` or `data`"],
    ),
    "unknown method": (
        "cf.counter_terms(problem, X, 1, method='magic')",
        ValueError,
        ["`method` must be 'taylor' or 'lie'", "'magic'"],
    ),
    "orbit for single terms": (
        "cf.counter_term(problem, X, 1, method='orbit')",
        ValueError,
        ["`method` must be 'taylor' or 'lie'", "'orbit'", "velocity", "EquationOfMotion"],
    ),
    "method of another type": (
        "cf.counter_terms(problem, X, 1, method=None)",
        ValueError,
        ["`method` must be 'taylor' or 'lie'", "None"],
    ),
    "negative count": (
        "cf.counter_terms(problem, X, -1)",
        ValueError,
        ["`count` must be at least 0", "-1", "number of counter terms"],
    ),
    "negative alpha": (
        "cf.counter_term(problem, X, -1)",
        ValueError,
        ["`alpha` must be at least 0", "-1", "ξ̃_0"],
    ),
    "fractional count": (
        "cf.counter_terms(problem, X, 1.5)",
        TypeError,
        ["`count` must be an integer", "1.5", "float"],
    ),
    "whole number as a float": (
        "cf.counter_term(problem, X, 2.0)",
        TypeError,
        ["`alpha` must be an integer", "2.0", "float"],
    ),
    "bool for a count": (
        "cf.counter_terms(problem, X, True)",
        TypeError,
        ["`count` must be an integer", "True", "bool"],
    ),
    "bool of NumPy for alpha": (
        "cf.counter_term(problem, X, np.True_)",
        TypeError,
        ["`alpha` must be an integer", "True", "bool"],
    ),
    "word for a count": (
        "cf.counter_terms(problem, X, '2')",
        TypeError,
        ["`count` must be an integer", "'2'", "str"],
    ),
    "params without leaves": (
        "cf.counter_terms(problem, {'a': []}, 1)",
        ValueError,
        ["`params` must hold at least one float array", "without leaves"],
    ),
    "params without numbers": (
        "cf.counter_terms(problem, jnp.zeros((0, 3)), 1)",
        ValueError,
        ["`params` must hold at least one number", "empty arrays"],
    ),
    "integer params": (
        "cf.counter_terms(problem, {'w': jnp.arange(3)}, 1)",
        TypeError,
        ["`params` must be a pytree of float arrays", "['w']", "int", "astype(float)"],
    ),
    "boolean params": (
        "cf.counter_terms(problem, np.array([True]), 1)",
        TypeError,
        ["`params` must be a pytree of float arrays", "bool"],
    ),
    "complex params": (
        "cf.counter_terms(problem, jnp.array([1j]), 1)",
        TypeError,
        ["`params` must be a pytree of float arrays", "complex"],
    ),
    "NaN in params": (
        "cf.counter_terms(problem, {'a': X, 'b': [X, jnp.array([1.0, jnp.nan])]}, 1)",
        ValueError,
        ["`params` must be finite", "['b'][1]", "NaN"],
    ),
    "infinity in params": (
        "cf.counter_terms(problem, np.array([np.inf]), 1)",
        ValueError,
        ["`params` must be finite", "infinity"],
    ),
    "params with a function": (
        "cf.counter_terms(problem, eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0)), 1)",
        TypeError,
        ["`params` must be a pytree of float arrays", "activation", "cf.equinox.problem"],
    ),
    "params with a word": (
        "cf.counter_terms(problem, {'w': X, 'name': 'first'}, 1)",
        TypeError,
        ["`params` must be a pytree of float arrays", "['name']", "str"],
    ),
    "loss that returns an array": (
        "cf.counter_terms(cf.Problem(lambda x: x**2), X, 1)",
        ValueError,
        ["`loss` must return one float", "shape (2,)", "mean or the sum"],
    ),
    "loss that returns an array of one": (
        "cf.counter_terms(cf.Problem(lambda x: jnp.sum(x, keepdims=True)), X, 1)",
        ValueError,
        ["`loss` must return one float", "shape (1,)"],
    ),
    "loss that returns an integer": (
        "cf.counter_terms(cf.Problem(lambda x: jnp.argmax(x)), X, 1)",
        ValueError,
        ["`loss` must return one float", "int"],
    ),
    "loss that returns a pair": (
        "cf.counter_terms(cf.Problem(lambda x: (jnp.sum(x), x)), X, 1)",
        ValueError,
        ["`loss` must return one float", "tuple"],
    ),
    "loss that returns nothing": (
        "cf.counter_terms(cf.Problem(lambda x: None), X, 1)",
        ValueError,
        ["`loss` must return one float", "NoneType"],
    ),
    "loss that is not finite": (
        "cf.counter_terms(cf.Problem(lambda x: jnp.sum(jnp.log(-x))), X, 1)",
        ValueError,
        ["`loss` must be finite at `params`", "nan", "check the data"],
    ),
    "gradient of a loss that is not finite": (
        "cf.counter_terms(cf.Problem(lambda x: jnp.sqrt(jnp.sum(x - X))), X, 1)",
        ValueError,
        ["the gradient must be finite at `params`", "infinity", "sqrt(0)"],
    ),
    "field that is not finite": (
        "cf.counter_terms(cf.Problem.from_gradient(lambda x: x / (x - X)), X, 1)",
        ValueError,
        ["the gradient must be finite at `params`"],
    ),
    "gradient of another structure": (
        "cf.counter_terms(cf.Problem.from_gradient(lambda x: [x]), X, 1)",
        ValueError,
        ["the gradient must have the structure of params", "PyTreeDef(*)", "PyTreeDef([*])"],
    ),
    "gradient of another shape": (
        "cf.counter_terms(cf.Problem.from_gradient(lambda x: x[:1]), X, 1)",
        ValueError,
        ["the gradient must have the shapes and dtypes of params", "(2,)", "(1,)"],
    ),
    "gradient of another dtype": (
        "cf.counter_terms(cf.Problem.from_gradient(lambda x: x.astype('float32')), X, 1)",
        ValueError,
        ["the gradient must have the shapes and dtypes of params", "float64", "float32"],
    ),
    "a loss for a problem": (
        "cf.counter_terms(square, X, 1)",
        TypeError,
        ["`problem` must be a `Problem`", "function", "Problem(loss, data)"],
    ),
}

PROGRAM = """
    import json, sys
    import equinox as eqx, jax, jax.numpy as jnp, numpy as np
    jax.config.update("jax_enable_x64", True)
    import counterflow as cf

    X = jnp.array([0.5, 0.25])

    def square(params):
        return jnp.sum(params**2)

    problem = cf.Problem(square)
    answers = {}
    for name, expression in json.load(sys.stdin).items():
        try:
            answers[name] = ["nothing", repr(eval(expression))]
        except Exception as error:
            answers[name] = [type(error).__name__, str(error)]
    json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def answers():
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        input=json.dumps({name: expression for name, (expression, _, _) in BAD.items()}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told(name, answers):
    _, error, words = BAD[name]
    kind, message = answers[name]
    assert kind == error.__name__, message
    assert [word for word in words if word not in message] == [], message


# --- what passes ----------------------------------------------------------------------------


def test_params_become_strongly_typed_arrays_of_the_same_structure():
    params = as_params({"a": np.ones(2), "b": (0.5, np.float32(1.0), jnp.array(2.0))})
    leaves = jax.tree.leaves(params)
    assert all(isinstance(leaf, jax.Array) and not leaf.weak_type for leaf in leaves)
    assert [leaf.dtype for leaf in leaves] == ["float64", "float64", "float32", "float64"]
    assert [leaf.shape for leaf in leaves] == [(2,), (), (), ()]


def test_one_empty_array_among_others_passes():
    problem = cf.Problem(lambda p: sum(jnp.sum(x**2) for x in p))
    terms = cf.counter_terms(problem, (jnp.ones(2), jnp.zeros((0, 3))), 1)
    assert [leaf.shape for leaf in jax.tree.leaves(terms)] == [(2,), (0, 3)]


def test_inside_jit_the_structure_is_checked_and_the_values_pass():
    problem = cf.Problem(lambda x: jnp.sum(x**2))
    door = jax.jit(lambda x: at_the_door(problem, x))
    assert np.isnan(door(jnp.array([jnp.nan]))).all()
    with pytest.raises(TypeError, match="pytree of float arrays"):
        door(jnp.arange(3))


# --- large arrays ---------------------------------------------------------------------------

SIDE = int(np.sqrt(3 * LARGE_CLOSURE_BYTES / 8)) + 1  # three times the limit, in float64
LARGE = np.ones((SIDE, SIDE))


def scaled_quartic(theta, array):
    return jnp.mean(jnp.asarray(array)) * jnp.sum(theta**4) / 4


@pytest.mark.parametrize(
    "loss",
    [
        lambda theta: scaled_quartic(theta, LARGE),
        jax.jit(lambda theta: scaled_quartic(theta, LARGE)),
        lambda theta: jax.jit(scaled_quartic)(theta, LARGE),
    ],
    ids=["plain", "jitted", "jitted inside"],
)
def test_a_large_closure_is_told_with_its_size_and_works(loss):
    with pytest.warns(UserWarning, match=r"closes over 3\.0 MiB of arrays.*data=") as told:
        (term,) = cf.counter_terms(cf.Problem(loss), jnp.array([0.5]), 1)
    assert len(told) == 1
    np.testing.assert_allclose(term, 1.5 * 0.5**5, rtol=1e-14)


@pytest.mark.parametrize(
    "problem",
    [
        cf.Problem(scaled_quartic, LARGE),
        cf.Problem(lambda theta: scaled_quartic(theta, np.ones((8, 8)))),
    ],
    ids=["large data", "small closure"],
)
def test_large_data_and_small_closures_are_not_told(problem):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (term,) = cf.counter_terms(problem, jnp.array([0.5]), 1)
    np.testing.assert_allclose(term, 1.5 * 0.5**5, rtol=1e-14)


# --- devices --------------------------------------------------------------------------------


def test_params_and_data_on_different_devices_are_told_and_move_by_themselves_if_they_may():
    program = """
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        import jax, jax.numpy as jnp, numpy as np
        import counterflow as cf

        first, second = jax.devices()
        params = {"w": jax.device_put(jnp.ones(2), second)}
        loss = lambda params, data: jnp.sum((params["w"] * data) ** 2)
        try:
            cf.counter_term(cf.Problem(loss, jax.device_put(jnp.ones(2), first)), params, 0)
        except ValueError as error:
            print(error)
        for data in (np.ones(2), jnp.ones(2), jax.device_put(jnp.ones(2), second)):
            print(cf.counter_term(cf.Problem(loss, data), params, 0)["w"])
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    message, *terms = run.stdout.splitlines()
    for word in ("same devices", "`params`['w']", "`data`", "jax.device_put(params, device)"):
        assert word in message
    assert terms == ["[2. 2.]"] * 3
