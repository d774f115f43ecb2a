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


def turned(params):
    """Two scale-invariant units and a weight that is not; differences of weights besides."""
    units = params["units"] / jnp.sqrt(jnp.sum(params["units"] ** 2, axis=1, keepdims=True))
    gap = params["shifted"][0] - params["shifted"][1]
    return jnp.sum(units[:, 0] * units[:, 1]) * gap + gap**2 + units[0, 0]


PROBLEM = cf.Problem(turned, weight_decay=WEIGHT_DECAY)
PARAMS = {
    "units": jnp.array([[0.5, 1.0], [-0.8, 0.6]]),
    "shifted": jnp.array([1.3, 0.2]),
}
SCALE, TRANSLATION = cf.Scale("units", axis=0), cf.Translation("shifted")


@cache
def scales():
    return cf.compare_charges(
        PROBLEM, SCALE, PARAMS, LEARNING_RATE, STEPS, orders=range(4), records=RECORDS
    )


@cache
def translations():
    return cf.compare_charges(
        PROBLEM, TRANSLATION, PARAMS, LEARNING_RATE, STEPS, orders=(1,), records=RECORDS
    )


@cache
def descent():
    """Params and gradients of the loss alone at every step, one step after the other."""
    gradient = jax.jit(PROBLEM.loss_gradient)
    params, found = PARAMS, []
    for _ in range(STEPS + 1):
        bare = gradient(params)
        found.append((params, bare))
        params = jax.tree.map(lambda p, g: p - LEARNING_RATE * (g + WEIGHT_DECAY * p), params, bare)
    return found


def squares(leaf):
    return np.sum(np.asarray(leaf) ** 2, axis=1)


def test_measured_is_the_charge_of_descent():
    expected = [squares(descent()[step][0]["units"]) for step in RECORDS]
    np.testing.assert_allclose(scales().measured, expected, rtol=1e-13)
    sums = [np.sum(descent()[step][0]["shifted"]) for step in RECORDS]
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
    assert gaps[0] > 1e-3
    assert np.all(gaps[1:] < 0.5 * gaps[:-1])
    # What is compared is above the error of the solver.
    assert np.all(found.solver_error[:, 1:] > 0)
    assert np.max(found.solver_error) < 1e-3 * gaps[-1]


def test_recorded_gradients_are_theorem_5_1_as_a_sum():
    """`e^{−2Γt} r²(0) + η Σ_j e^{−2Γ(t − t_j)} η‖∇_A f(θ_j)‖²` at order 1 (Kunin et al.)."""
    rate = 2 * cf.decay_rate(LEARNING_RATE, WEIGHT_DECAY, 1)
    start = squares(PARAMS["units"])
    for record, step in enumerate(RECORDS):
        expected = np.exp(-rate * step) * start
        for j in range(step):
            force = squares(descent()[j][1]["units"])
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
        "symmetry": "Scale('units', axis=0)",
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
    assert rows[0] == "ChargeComparison of Scale('units', axis=0) at η = 0.05, λ = 0.4; completed"
    assert rows[1] == "at step 60, t = 3:"
    assert rows[2].startswith(f"largest over units: charge {scales().measured[-1].max():.6g}; by")
    assert [row.split()[0] for row in rows[3:]] == ["order", "0", "1", "2", "3", "recorded"]
    assert "largest over units" not in repr(translations())


def test_progress_counts_descent_and_two_runs_for_each_order():
    calls = []
    cf.compare_charges(
        PROBLEM,
        TRANSLATION,
        PARAMS,
        LEARNING_RATE,
        STEPS,
        orders=(1,),
        records=RECORDS,
        progress=lambda done, to_do: calls.append((done, to_do)),
    )
    assert calls == [(1, 3), (2, 3), (3, 3)]


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
    custom = cf.CustomSymmetry(lambda p, alpha: p | {"units": alpha * p["units"]}, at=1.0)
    with pytest.raises(TypeError, match="for Translation, Scale and Rescale, got CustomSymmetry"):
        cf.compare_charges(PROBLEM, custom, PARAMS, LEARNING_RATE, STEPS)
