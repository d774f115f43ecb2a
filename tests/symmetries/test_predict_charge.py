"""Charges predicted along flows: three ways to the same number, and what they are for."""

from functools import cache

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from users import import_as_users_do

(as_users,) = import_as_users_do("counterflow")
LEARNING_RATE, WEIGHT_DECAY, STEPS = 0.01, 0.3, 100


def problem(loss):
    return cf.Problem(loss, weight_decay=WEIGHT_DECAY)


# Two units of each family, coupled, in few operations.


def shifted(pairs):
    return jnp.sin(2 * (pairs[0, 0] - pairs[0, 1])) * (pairs[1, 0] - pairs[1, 1])


def turned(units):
    lengths = jnp.sqrt(jnp.sum(units**2, axis=1))
    return (units[0, 0] * units[1, 1] + 2 * units[0, 1] * units[1, 0]) / (lengths[0] * lengths[1])


def multiplied(params):
    products = params["first"] * params["second"]
    return (jnp.sum(products) - 2) ** 2 + products[0]


def square(params, alpha):
    return {"a": alpha * params["a"], "b": params["b"] / alpha**2}


CUSTOM = (
    problem(lambda p: (p["a"] ** 2 * p["b"] - 1) ** 2),
    cf.CustomSymmetry(square, at=1.0),
    {"a": jnp.array(1.2), "b": jnp.array(-0.4)},
)
PAIRS = jnp.array([[-0.7, -0.2], [-1.7, 0.6]])
UNITS = jnp.array([[0.5, 0.8], [0.4, -0.7]])
PRODUCTS = {"first": jnp.array([0.2, -0.5]), "second": jnp.array([1.0, -1.6])}
CASES = {
    "translation": (problem(shifted), cf.Translation("", axis=0), PAIRS),
    "scale": (problem(turned), cf.Scale("", axis=0), UNITS),
    "rescale": (problem(multiplied), cf.Rescale("first", "second", axis=0), PRODUCTS),
    "custom": CUSTOM,
}
RECORDS = [0, 30, STEPS]


def predict(name, order=1, **options):
    case, symmetry, params = CASES[name]
    return cf.predict_charge(case, symmetry, params, LEARNING_RATE, STEPS, order, **options)


@cache
def prediction(name, order):
    return predict(name, order, records=RECORDS)


# --- three ways to the same charge ----------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_the_solved_law_is_the_charge_of_the_flow(name, order):
    found = prediction(name, order)
    symmetry, params = CASES[name][1:]
    assert found.status == cf.Status.COMPLETED
    assert found.charge.shape == (3, *symmetry.charge(params).shape)
    np.testing.assert_allclose(found.charge, found.flow_charge, rtol=1e-9)
    np.testing.assert_allclose(found.charge[0], symmetry.charge(params), rtol=1e-15)
    if name == "custom":
        assert np.all(np.isnan(found.charge_from_gradient))
    else:
        np.testing.assert_allclose(found.charge_from_gradient, found.flow_charge, rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_every_integral_counts(name):
    found = prediction(name, 1)
    size = np.max(np.abs(found.charge[-1]))
    np.testing.assert_allclose(
        found.initial,
        np.exp(-WEIGHT_DECAY * found.times).reshape(-1, *[1] * (found.initial.ndim - 1))
        * found.initial[:1],
        rtol=1e-14,
    )
    assert np.max(np.abs(found.counter[-1])) > 1e-4 * size
    if name == "translation":  # whose generator does not change
        np.testing.assert_array_equal(found.weight_decay, np.zeros((3, 2)))
        assert np.max(np.abs(found.gradient)) < 1e-12 * size
    else:
        assert np.max(np.abs(found.weight_decay[-1])) > 0.1 * size
    np.testing.assert_array_equal(prediction(name, 0).counter, 0 * found.counter)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_translations_charge_in_closed_form(order):
    found = prediction("translation", order)
    rate = cf.decay_rate(LEARNING_RATE, WEIGHT_DECAY, order)
    start = np.asarray(PAIRS).sum(1)
    expected = np.exp(-np.array(RECORDS) * rate)[:, None] * start
    np.testing.assert_allclose(found.charge, expected, rtol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_higher_orders_are_closer_to_descent(name):
    case, symmetry, params = CASES[name]
    run = cf.solve(cf.GradientDescent(case, LEARNING_RATE), params, [STEPS * LEARNING_RATE])
    exact = symmetry.charge(jax.tree.map(lambda leaf: leaf[0], run.params))
    gaps = [np.max(np.abs(prediction(name, order).charge[-1] - exact)) for order in (0, 1, 2)]
    assert gaps[2] < 0.3 * min(gaps[:2])


def test_gradient_flow_without_weight_decay_conserves():
    for name in ("translation", "scale", "rescale"):
        decaying, symmetry, params = CASES[name]
        free = cf.Problem(decaying.function)
        found = cf.predict_charge(free, symmetry, params, LEARNING_RATE, STEPS, 0, records=RECORDS)
        start = np.tile(symmetry.charge(params), (3, 1))
        np.testing.assert_allclose(found.flow_charge, start, rtol=1e-9)
        np.testing.assert_array_equal(found.charge, start)


def test_the_method_of_the_flow():
    taylor, orbit = prediction("scale", 1), predict("scale", 1, method="orbit", records=RECORDS)
    np.testing.assert_allclose(orbit.charge, orbit.flow_charge, rtol=1e-9)
    gap = np.max(np.abs(orbit.charge[-1] / taylor.charge[-1] - 1))
    assert 1e-8 < gap < 1e-2  # they differ at the order left out


# --- records, status, interruption ----------------------------------------------------------


def test_by_default_the_last_step_is_the_only_record():
    found = predict("scale")
    np.testing.assert_array_equal(found.steps, [STEPS])
    np.testing.assert_array_equal(found.times, [STEPS * LEARNING_RATE])
    assert found.order == 1
    assert found.learning_rate == LEARNING_RATE
    assert found.statistics.solver == "Dopri8"
    np.testing.assert_allclose(found.charge[0], prediction("scale", 1).charge[-1], rtol=1e-9)
    charge = np.array2string(found.charge[0], precision=6)
    assert repr(found) == (
        "ChargePrediction(Scale('', axis=0), order 1, η = 0.01; at step 100, t = 1: "
        f"{charge}; completed)"
    )


def test_progress_is_told_after_every_record():
    calls = []
    predict("scale", records=[10, 30], progress=lambda done, to_do: calls.append((done, to_do)))
    assert calls == [(1, 2), (2, 2)]


def test_an_interruption_keeps_the_records_made():
    def interrupt(done, to_do):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(cf.RunInterrupted, match="interrupted: the records before") as caught:
        predict("scale", records=RECORDS, progress=interrupt)
    result = caught.value.result
    assert result.status == cf.Status.INTERRUPTED
    np.testing.assert_array_equal(result.steps, [0, 30])
    np.testing.assert_allclose(result.charge, prediction("scale", 1).charge[:2], rtol=1e-9)


def test_too_few_steps_for_the_solver():
    found = predict("scale", records=RECORDS, max_steps=2)
    assert found.status == cf.Status.TOO_MANY_STEPS
    assert 1 <= len(found.steps) < 3
    assert len(found.charge) == len(found.steps)
    nothing = predict("scale", max_steps=2)
    assert nothing.charge.shape == (0, 2)
    assert repr(nothing).endswith("; too many steps before the first record)")


def test_any_solver_and_tolerance():
    loose = predict("scale", solver=diffrax.Tsit5(), rtol=1e-4)
    assert loose.statistics.solver == "Tsit5"
    error = np.max(np.abs(loose.charge - prediction("scale", 1).charge[-1:]))
    assert 1e-12 < error < 1e-3


# --- what is refused ------------------------------------------------------------------------


def test_a_tanh_layer_is_no_symmetry():
    case = cf.Problem(lambda p: jnp.sum(jnp.tanh(p["w"]) * p["v"]))
    params = {"w": jnp.array([0.5, 1.0]), "v": jnp.array([1.0, -2.0])}
    text = r"Rescale\('w', 'v'\) must leave the loss unchanged, but its residual is .*, above 0.01"
    with pytest.raises(ValueError, match=text):
        cf.predict_charge(case, cf.Rescale("w", "v"), params, 0.1, 10)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"symmetry": "w"}, TypeError, "`symmetry` must be a symmetry, got str"),
        ({"steps": 0}, ValueError, "`steps` must be from 1 to"),
        ({"steps": 1.5}, TypeError, "`steps` must be an integer, got 1.5"),
        ({"order": -1}, ValueError, "`order` must be at least 0, got -1"),
        ({"method": "euler"}, ValueError, "`method` must be one of 'taylor', 'lie', 'orbit'"),
        ({"records": [5, 11]}, ValueError, "`records` must be increasing step numbers from 0"),
        ({"rtol": 1e-20}, ValueError, "`rtol` must be at least"),
        ({"progress": 3}, TypeError, "`progress` must be a function"),
        ({"max_steps": 0}, ValueError, "`max_steps` must be an integer of at least 1"),
        ({"solver": diffrax.Tsit5}, TypeError, "`solver` must be an instance, got the class"),
        ({"learning_rate": 0.0}, ValueError, "`learning_rate` must be a positive"),
    ],
)
def test_bad_input(options, error, text):
    arguments = {
        "problem": as_users.Problem(lambda p: p[0] / jnp.sqrt(p @ p)),
        "symmetry": as_users.Scale(""),
        "params": jnp.array([0.6, 0.8]),
        "learning_rate": 0.1,
        "steps": 10,
    }
    with pytest.raises(error, match=text):
        as_users.predict_charge(**(arguments | options))


def test_a_law_that_fails_on_the_way_is_told():
    # A shear whose generator meets the assumption of Theorem B.1 where the gradient vanishes.
    def shear(params, alpha):
        return params + alpha * jnp.stack([params[1], jnp.zeros_like(params[1])])

    problem = cf.Problem(lambda p: (p[1] - 1) ** 2, weight_decay=0.5)
    symmetry, params = cf.CustomSymmetry(shear, at=0.0), jnp.array([1.0, 1.0])
    with pytest.warns(UserWarning, match="the conservation law of CustomSymmetry.* is off by 0.06"):
        found = cf.predict_charge(problem, symmetry, params, 0.01, steps=100, order=0)
    assert abs(found.charge[-1] - found.flow_charge[-1]) > 0.01
