"""Bad input is refused at the door: what was required, what came, what to do."""

import diffrax
import jax.numpy as jnp
import numpy as np
import pytest

from users import import_as_users_do

(cf,) = import_as_users_do("counterflow")
QUADRATIC = cf.Problem(lambda theta: jnp.sum(theta**2) / 2)
FLOW = cf.GradientFlow(QUADRATIC)
DESCENT = cf.GradientDescent(QUADRATIC, 0.1)
ONES = jnp.ones(2)


# --- dynamics -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [cf.GradientDescent, cf.EquationOfMotion])
@pytest.mark.parametrize(
    ("learning_rate", "error", "text"),
    [
        (0, ValueError, "`learning_rate` must be a positive, finite number, got 0.*GradientFlow"),
        (-0.1, ValueError, "`learning_rate` must be a positive, finite number, got -0.1"),
        (float("nan"), ValueError, "`learning_rate` must be a positive, finite number, got nan"),
        (float("inf"), ValueError, "`learning_rate` must be a positive, finite number, got inf"),
        (np.ones(3), ValueError, r"`learning_rate` must be one number, got .*shape \(3,\)"),
        ("fast", TypeError, "`learning_rate` must be a number, got 'fast' of type str"),
        (None, (TypeError, ValueError), "`learning_rate` must be a"),
    ],
)
def test_learning_rate(make, learning_rate, error, text):
    with pytest.raises(error, match=text):
        make(QUADRATIC, learning_rate)


@pytest.mark.parametrize(
    ("order", "error", "text"),
    [
        (-1, ValueError, "`order` must be at least 0, got -1: 0 is gradient flow, 1 the paper's"),
        (1.5, TypeError, "`order` must be an integer, got 1.5 of type float: 0 is gradient flow"),
        (2.0, TypeError, "`order` must be an integer, got 2.0"),
        (True, TypeError, "`order` must be an integer, got True"),
        ("2", TypeError, "`order` must be an integer, got '2'"),
    ],
)
def test_order(order, error, text):
    with pytest.raises(error, match=text):
        cf.EquationOfMotion(QUADRATIC, 0.1, order=order)


def test_order_may_be_a_numpy_integer():
    assert cf.EquationOfMotion(QUADRATIC, 0.1, order=np.int64(2)).order == 2


@pytest.mark.parametrize("method", ["Taylor", "jet", "", None])
def test_method(method):
    with pytest.raises(ValueError, match="`method` must be one of 'taylor', 'lie', 'orbit', got"):
        cf.EquationOfMotion(QUADRATIC, 0.1, method=method)


# --- times ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamics", [FLOW, DESCENT], ids=["flow", "descent"])
@pytest.mark.parametrize(
    ("times", "text"),
    [
        ([0.2, 0.1], "`times` must be finite, increasing and at least 0, .*got"),
        ([0.1, 0.1], "`times` must be finite, increasing"),
        ([-0.1, 0.1], "`times` must be finite, increasing and at least 0.*-0.1"),
        ([0.1, float("nan")], "`times` must be finite.*nan"),
        ([0.1, float("inf")], "`times` must be finite.*inf"),
        ([], r"`times` must be a list of at least one time, got an array of shape \(0,\)"),
        ([[0.1, 0.2]], r"`times` must be a list of at least one time, got .*shape \(1, 2\)"),
        (1.0, r"`times` must be a list of at least one time, got an array of shape \(\)"),
    ],
)
def test_times(dynamics, times, text):
    with pytest.raises(ValueError, match=text):
        cf.solve(dynamics, ONES, times)


def test_times_of_descent_are_multiples_of_the_learning_rate():
    text = "multiples of the learning rate 0.1 .*got 0.26: the nearest multiple is 0.3.*np.arange"
    with pytest.raises(ValueError, match=text):
        cf.solve(DESCENT, ONES, [0.1, 0.26])
    # Rounding is not held against anyone.
    sums = np.cumsum(np.full(1000, 0.1))
    assert cf.solve(DESCENT, ONES, sums[[2, 6, 999]]).statistics.accepted_steps == 1000


def test_descent_has_a_largest_number_of_steps():
    with pytest.raises(ValueError, match="at most 2³¹ − 2 steps can be run, got 3000000000"):
        cf.solve(DESCENT, ONES, [3e8])


# --- options of solve -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"rtol": -1e-3}, ValueError, "`rtol` must be at least 8.9e-16, .*got -0.001"),
        ({"rtol": 0.0}, ValueError, "`rtol` must be at least .*got 0.0"),
        ({"rtol": 1e-16}, ValueError, "`rtol` must be at least 8.9e-16, what the dtype"),
        ({"rtol": float("nan")}, ValueError, "`rtol` must be at least .*got nan"),
        ({"atol": -1e-9}, ValueError, "`atol` must be positive and finite, got -1e-09"),
        ({"atol": float("inf")}, ValueError, "`atol` must be positive and finite, got inf"),
        ({"solver": diffrax.Tsit5}, TypeError, r"an instance, got the class: .*diffrax.Tsit5\(\)"),
        ({"solver": "Tsit5"}, TypeError, r"a diffrax solver, got str: .*diffrax.Dopri8\(\)"),
        ({"max_steps": 0}, ValueError, "`max_steps` must be an integer of at least 1, got 0"),
        ({"max_steps": 10.0}, ValueError, "`max_steps` must be an integer of at least 1, got 10.0"),
        ({"max_steps": True}, ValueError, "`max_steps` must be an integer of at least 1, got True"),
    ],
)
def test_options(options, error, text):
    with pytest.raises(error, match=text):
        cf.solve(FLOW, ONES, [1.0], **options)


def test_rtol_of_single_precision():
    with pytest.raises(ValueError, match=r"`rtol` must be at least 4.8e-07, .*double precision"):
        cf.solve(FLOW, jnp.ones(2, jnp.float32), [1.0], rtol=1e-8)


@pytest.mark.parametrize(
    "solver",
    [
        diffrax.SemiImplicitEuler(),
        diffrax.ItoMilstein(),
        diffrax.KenCarp4(),
        diffrax.SRA1(),
        diffrax.LeapfrogMidpoint(),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_a_solver_that_does_not_fit_is_refused_by_name(solver):
    with pytest.raises(TypeError, match=f"`solver` must .*{type(solver).__name__}"):
        cf.solve(FLOW, ONES, [1.0], solver=solver)


@pytest.mark.parametrize(("dynamics", "name"), [(QUADRATIC, "Problem"), (None, "NoneType")])
def test_dynamics(dynamics, name):
    with pytest.raises(TypeError, match=f"`dynamics` must be a GradientDescent, .*got {name}"):
        cf.solve(dynamics, ONES, [1.0])


# --- params and the loss there --------------------------------------------------------------


@pytest.mark.parametrize("dynamics", [FLOW, DESCENT], ids=["flow", "descent"])
@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        (jnp.array([1.0, jnp.nan]), ValueError, "`params` must be finite, .*contains NaN"),
        (jnp.array([1.0, jnp.inf]), ValueError, "`params` must be finite"),
        (jnp.array([1, 2]), TypeError, r"float arrays, but .*dtype int64: .*astype\(float\)"),
        (3, TypeError, "`params` must be a pytree of float arrays, but .*is a int"),
        ({}, ValueError, "`params` must hold at least one float array"),
        (None, ValueError, "`params` must hold at least one float array"),
        (jnp.ones((0, 3)), ValueError, "`params` must hold at least one number"),
        (jnp.ones(2) * 1j, TypeError, "`params` must be a pytree of float arrays, .*complex128"),
        ("theta", TypeError, "`params` must be a pytree of float arrays, but .*is a str"),
    ],
)
def test_params(dynamics, params, error, text):
    with pytest.raises(error, match=text):
        cf.solve(dynamics, params, [0.1])


def test_params_are_named_by_their_path():
    params = {"layers": [jnp.ones(2), jnp.array([jnp.nan])]}
    with pytest.raises(ValueError, match=r"the leaf \['layers'\]\[1\] contains NaN"):
        cf.solve(FLOW, params, [0.1])


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (cf.Problem(lambda t: t**2), r"`loss` must return one float .*shape \(2,\).*mean or the"),
        (cf.Problem(lambda t: 1), "`loss` must return one float .*got .*int"),
        (cf.Problem(lambda t: jnp.sum(t) * jnp.inf), "`loss` must be finite at `params`, got inf"),
        (cf.Problem(lambda t: jnp.log(jnp.sum(-t))), "`loss` must be finite at `params`, got nan"),
        (
            cf.Problem(lambda t: jnp.sqrt(jnp.sum((t - 1) ** 2))),
            r"the gradient must be finite at `params`.*sqrt\(0\)",
        ),
        (
            cf.Problem.from_gradient(lambda t: {"theta": t}),
            "the gradient must have the structure of params",
        ),
        (
            cf.Problem.from_gradient(lambda t: t[:1]),
            r"the gradient must have the shapes .*shape \(2,\).*got .*shape \(1,\)",
        ),
    ],
)
def test_losses_and_gradients(problem, text):
    for dynamics in (cf.GradientFlow(problem), cf.GradientDescent(problem, 0.1)):
        with pytest.raises(ValueError, match=text):
            cf.solve(dynamics, ONES, [0.1])


@pytest.mark.parametrize(
    ("weight_decay", "text"), [(-0.1, "finite number of at least 0, got -0.1"), (np.nan, "got nan")]
)
def test_weight_decay(weight_decay, text):
    with pytest.raises(ValueError, match=f"`weight_decay` must be a .*{text}"):
        cf.Problem(lambda t: jnp.sum(t), weight_decay=weight_decay)


def test_a_flow_needs_params_of_one_dtype():
    params = {"a": jnp.ones(2, jnp.float32), "b": jnp.ones(2)}
    problem = cf.Problem(lambda p: jnp.sum(p["a"]) ** 2 + jnp.sum(p["b"] ** 2))
    with pytest.raises(TypeError, match="one dtype, got float32 and float64"):
        cf.solve(cf.GradientFlow(problem), params, [1.0])


@pytest.mark.parametrize(
    "options", [{"rtol": 1e-3}, {"atol": 1e-3}, {"solver": diffrax.Tsit5()}], ids=str
)
def test_descent_takes_no_options_of_flows(options):
    descent = cf.GradientDescent(cf.Problem(lambda theta: jnp.sum(theta**2)), 0.1)
    with pytest.raises(TypeError, match="for flows"):
        cf.solve(descent, jnp.ones(1), [0.1], **options)
