"""A charge under descent beside what every order predicts, and the law that is exact."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from users import import_as_users_do

(as_users,) = import_as_users_do("counterflow")
LEARNING_RATE, WEIGHT_DECAY, STEPS = 0.05, 0.4, 60
RECORDS = [0, 1, 20, STEPS]


def turned(units):
    """Two scale-invariant units, coupled by their directions."""
    lengths = jnp.sqrt(jnp.sum(units**2, axis=1))
    return (units[0, 0] * units[1, 1] + 2 * units[0, 1] * units[1, 0]) / (lengths[0] * lengths[1])


def apart(pair):
    """The sum of two weights does not matter."""
    return jnp.sin(pair[0] - pair[1])


SCALE, TRANSLATION = cf.Scale("", axis=0), cf.Translation("")
UNITS, PAIR = jnp.array([[0.5, 1.0], [-0.8, 0.6]]), jnp.array([1.3, 0.2])
SCALED = cf.Problem(turned, weight_decay=WEIGHT_DECAY), SCALE, UNITS, LEARNING_RATE, STEPS
SHIFTED = cf.Problem(apart, weight_decay=WEIGHT_DECAY), TRANSLATION, PAIR, LEARNING_RATE, STEPS


@cache
def scales():
    return cf.compare_charges(*SCALED, orders=range(4), records=RECORDS)


@cache
def translations():
    return cf.compare_charges(*SHIFTED, orders=(1,), records=RECORDS)


@cache
def descent(loss, start):
    """Params and gradients of the loss alone at every step, one step after the other."""
    gradient = jax.jit(jax.grad(loss))
    params, found = jnp.array(start), []
    for _ in range(STEPS + 1):
        bare = gradient(params)
        found.append((np.asarray(params), np.asarray(bare)))
        params = params - LEARNING_RATE * (bare + WEIGHT_DECAY * params)
    return found


def of_units():
    return descent(turned, tuple(map(tuple, UNITS.tolist())))


def squares(units):
    return np.sum(np.asarray(units) ** 2, axis=1)


def test_measured_is_the_charge_of_descent():
    expected = [squares(of_units()[step][0]) for step in RECORDS]
    np.testing.assert_allclose(scales().measured, expected, rtol=1e-13)
    sums = [np.sum(descent(apart, tuple(PAIR.tolist()))[step][0]) for step in RECORDS]
    np.testing.assert_allclose(translations().measured, sums, rtol=1e-13)


def test_the_exact_law_is_exact():
    for found in (scales(), translations()):
        assert found.status == cf.Status.COMPLETED
        np.testing.assert_allclose(found.exact_law, found.measured, rtol=1e-12)
    kept = (1 - LEARNING_RATE * WEIGHT_DECAY) ** np.array(RECORDS)
    np.testing.assert_allclose(translations().measured, 1.5 * kept, rtol=1e-12)


def test_the_gap_shrinks_with_every_order():
    found = scales()
    np.testing.assert_array_equal(found.gap, np.abs(found.predicted - found.measured))
    gaps = np.max(found.gap[:, -1], axis=1)
    assert gaps[0] > 5e-4
    assert np.all(gaps[1:] < 0.5 * gaps[:-1])
    # What is compared is above the error of the solver.
    assert np.all(found.solver_error[:, 1:] > 0)
    assert np.max(found.solver_error) < 1e-3 * gaps[-1]


def test_recorded_gradients_are_theorem_5_1_as_a_sum():
    """`e^{−2Γt} r²(0) + η Σ_j e^{−2Γ(t − t_j)} η‖∇_A f(θ_j)‖²` at order 1 (Kunin et al.)."""
    rate = 2 * cf.decay_rate(LEARNING_RATE, WEIGHT_DECAY, 1)
    start = squares(UNITS)
    for record, step in enumerate(RECORDS):
        expected = np.exp(-rate * step) * start
        for j in range(step):
            force = squares(of_units()[j][1])
            expected = expected + LEARNING_RATE**2 * np.exp(-rate * (step - j)) * force
        np.testing.assert_allclose(scales().recorded_gradients[record], expected, rtol=1e-12)
    # The surrogate is no better than the flow of order 1 it stands for, here.
    found = scales()
    np.testing.assert_array_equal(
        found.recorded_gap, np.abs(found.recorded_gradients - found.measured)
    )
    assert np.max(found.recorded_gap[-1]) > 1e-5


def test_recorded_gradients_of_a_translation_are_its_flow_of_order_1():
    found = translations()
    np.testing.assert_allclose(found.recorded_gradients, found.predicted[0], rtol=1e-12)
    assert np.min(found.recorded_gap[1:]) > 1e-7


# --- what comes back ------------------------------------------------------------------------


def test_as_a_labelled_dataset():
    found = scales().to_xarray()
    assert found["predicted"].dims == found["gap"].dims == ("order", "step", "unit")
    assert found["measured"].dims == found["exact_law"].dims == ("step", "unit")
    assert set(found.data_vars) == {
        "measured",
        "exact_law",
        "recorded_gradients",
        "predicted",
        "gap",
        "solver_error",
    }
    np.testing.assert_array_equal(found["order"], range(4))
    np.testing.assert_array_equal(found["step"], RECORDS)
    np.testing.assert_array_equal(found["time"], np.array(RECORDS) * LEARNING_RATE)
    assert found.attrs == {
        "symmetry": "Scale('', axis=0)",
        "learning_rate": LEARNING_RATE,
        "weight_decay": WEIGHT_DECAY,
        "status": "completed",
    }
    assert found["measured"].attrs["units"] == "squared parameter units"
    assert all(variable.attrs["description"] for variable in found.variables.values())
    np.testing.assert_array_equal(found["gap"].sel(order=2, step=20), scales().gap[2, 2])
    whole = translations().to_xarray()
    assert whole["predicted"].dims == ("order", "step")
    assert whole["measured"].attrs["units"] == "parameter units"


def test_repr():
    rows = repr(scales()).splitlines()
    assert rows[0] == "ChargeComparison of Scale('', axis=0) at η = 0.05, λ = 0.4; completed"
    assert rows[1] == "at step 60, t = 3:"
    assert rows[2].startswith(f"largest over units: charge {scales().measured[-1].max():.6g}; by")
    assert [row.split()[0] for row in rows[3:]] == ["order", "0", "1", "2", "3", "recorded"]
    assert "largest over units" not in repr(translations())


def test_progress_counts_descent_and_two_runs_for_each_order():
    calls = []
    cf.compare_charges(
        *SHIFTED,
        orders=(1,),
        records=RECORDS,
        progress=lambda done, to_do: calls.append((done, to_do)),
    )
    assert calls == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("runs", [1, 2])
def test_an_interruption_keeps_what_was_computed(runs):
    def interrupt(done, to_do):
        if done == runs:
            raise KeyboardInterrupt

    with pytest.raises(cf.RunInterrupted) as caught:
        cf.compare_charges(*SHIFTED, orders=(1,), records=RECORDS, progress=interrupt)
    found = caught.value.result
    assert found.status == cf.Status.INTERRUPTED
    np.testing.assert_array_equal(found.measured, translations().measured)
    predicted = translations().predicted if runs > 1 else np.nan
    np.testing.assert_array_equal(found.predicted, np.broadcast_to(predicted, (1, len(RECORDS))))
    assert np.all(np.isnan(found.solver_error))


# --- when descent or a flow fails -----------------------------------------------------------


def blind(p):
    return 0 * p[0] / jnp.sqrt(p @ p)


@pytest.mark.parametrize(("records", "reached"), [([0, 1, 500], 2), ([500], 0)])
def test_descent_that_diverges_ends_the_comparison(records, reached):
    problem = cf.Problem(blind, weight_decay=1e3)  # (1 − ηλ)^k, and beyond all numbers at k = 155
    params = jnp.array([0.6, 0.8])
    found = cf.compare_charges(
        problem, cf.Scale(""), params, 0.1, 500, orders=(0,), records=records
    )
    assert found.status == cf.Status.NON_FINITE
    np.testing.assert_array_equal(found.steps, records[:reached])
    for values in (found.measured, found.exact_law, found.recorded_gradients):
        assert values.shape == (reached,)
    assert found.predicted.shape == found.solver_error.shape == (1, reached)
    np.testing.assert_allclose(found.measured[1:], [99.0**2] * (reached // 2), rtol=1e-12)
    assert repr(found).splitlines()[0].endswith("; non-finite values")
    assert found.to_xarray().sizes["step"] == reached


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"orders": ()}, ValueError, "`orders` must name at least one order, got none"),
        ({"orders": (0, -1)}, ValueError, "`orders` must be at least 0, got -1"),
        ({"orders": (0, 1.0)}, TypeError, "`orders` must be an integer, got 1.0"),
        ({"orders": 2}, TypeError, r"`orders` must be a list of orders, got 2: for one order γ"),
        ({"orders": (1, 1)}, ValueError, r"`orders` must name each order once, got \(1, 1\)"),
        ({"steps": 0}, ValueError, "`steps` must be from 1 to"),
        ({"records": [3, 2]}, ValueError, "`records` must be increasing step numbers"),
        ({"progress": 1}, TypeError, "`progress` must be a function"),
        ({"symmetry": None}, TypeError, "`symmetry` must be a symmetry, got NoneType"),
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
        as_users.compare_charges(**(arguments | options))


def test_the_charge_must_be_known():
    custom = cf.CustomSymmetry(lambda units, alpha: alpha * units, at=1.0)
    with pytest.raises(TypeError, match="for Translation, Scale and Rescale, got CustomSymmetry"):
        cf.compare_charges(SCALED[0], custom, *SCALED[2:])
