"""Bad input to comparisons is refused at the door: what was required, what came, what to do."""

import jax.numpy as jnp
import numpy as np
import pytest

from users import import_as_users_do

cf, requirements, of_runs = import_as_users_do(
    "counterflow", "counterflow.errors.requirements", "counterflow.solvers.requirements"
)
QUADRATIC = cf.Problem(lambda theta: jnp.sum(theta**2) / 2)
ONES = jnp.ones(2)
NAN, INFINITY = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def _nothing_is_run(monkeypatch):
    """Bad input has to be noticed before anything is compiled or run."""

    def run(*arguments):
        raise AssertionError("a run was begun")

    monkeypatch.setitem(cf.compare.__globals__, "LockStep", run)


def refused(error, text, **options):
    arguments = {"problem": QUADRATIC, "params": ONES, "learning_rate": 0.1, "steps": 10}
    with pytest.raises(error, match=text):
        cf.compare(**(arguments | options))


# --- compare --------------------------------------------------------------------------------


def test_good_input_gets_as_far_as_the_run():
    refused(AssertionError, "a run was begun")
    refused(AssertionError, "a run was begun", orders=range(2), records=[0, 3, 10], restart=9)


@pytest.mark.parametrize(
    ("steps", "error", "text"),
    [
        (0, ValueError, "`steps` must be from 1 to 2147483646, got 0"),
        (-1, ValueError, "`steps` must be from 1 to .*, got -1"),
        (2**31, ValueError, "`steps` must be from 1 to .*, got 2147483648"),
        (
            1.5,
            TypeError,
            r"`steps` must be an integer, got 1\.5 of type float: it counts steps .*t / learning",
        ),
        (10.0, TypeError, r"`steps` must be an integer, got 10\.0 of type float"),
        (True, TypeError, "`steps` must be an integer, got True of type bool"),
        ("10", TypeError, "`steps` must be an integer, got '10' of type str"),
        (None, TypeError, "`steps` must be an integer, got None"),
    ],
)
def test_steps(steps, error, text):
    refused(error, text, steps=steps)


@pytest.mark.parametrize(
    ("orders", "error", "text"),
    [
        ((0, 1, 0), ValueError, r"`orders` must name each order once, got \(0, 1, 0\)"),
        ((0, -1), ValueError, "`orders` must be at least 0, got -1: 0 is gradient flow, 1 the"),
        ((), ValueError, "`orders` must name at least one order, got none: 0 is gradient flow"),
        (np.array([], int), ValueError, "`orders` must name at least one order, got none"),
        (2, TypeError, r"`orders` must be a list of orders, got 2: for one order γ write `\(γ,\)`"),
        (None, TypeError, "`orders` must be a list of orders, got None"),
        ("01", TypeError, r"`orders` must be a list of orders, got '01': .*write `\(γ,\)`"),
        ((0, 1.0), TypeError, r"`orders` must be an integer, got 1\.0 of type float: 0 is gradi"),
        ((0, "1"), TypeError, "`orders` must be an integer, got '1' of type str"),
        ((False, True), TypeError, "`orders` must be an integer, got False of type bool"),
        (np.array([0.0, 1.0]), TypeError, "`orders` must be an integer, got 0.0 of type float"),
    ],
)
def test_orders(orders, error, text):
    refused(error, text, orders=orders)


@pytest.mark.parametrize(
    ("records", "error", "text"),
    [
        (0, ValueError, "`records` must be at least 1 or a list of steps, got 0"),
        (-5, ValueError, "`records` must be at least 1 or a list of steps, got -5"),
        ([], TypeError, r"`records` must be a number .* or a list of step numbers .*, got \[\]"),
        ([5, 3], ValueError, r"increasing step numbers from 0 to 10, .*got \[5 3\]"),
        ([3, 3], ValueError, r"increasing step numbers from 0 to 10, .*got \[3 3\]"),
        ([-1, 3], ValueError, r"increasing step numbers from 0 to 10, .*got \[-1 +3\]"),
        ([5, 11], ValueError, r"from 0 to 10, the number of steps, got \[ ?5 11\]"),
        ([0.0, 5.0], TypeError, r"`records` must be .*\(integers\), got \[0\.0, 5\.0\]"),
        (2.5, TypeError, r"`records` must be a number of records or a list .*, got 2\.5"),
        (True, TypeError, "`records` must be a number of records or a list .*, got True"),
        ([True, False], TypeError, r"`records` must be .*\(integers\), got \[True, False\]"),
        ("all", TypeError, "`records` must be a number of records or a list .*, got 'all'"),
        ([[0, 5]], TypeError, r"`records` must be .*\(integers\), got \[\[0, 5\]\]"),
        ([[0], [1, 2]], TypeError, r"`records` must be .*, got \[\[0\], \[1, 2\]\]"),
    ],
)
def test_records(records, error, text):
    refused(error, text, records=records)


def test_unsigned_records_must_increase_too():
    refused(ValueError, "increasing step numbers", records=np.array([5, 3], dtype=np.uint64))


def test_records_may_be_any_integers():
    required = of_runs.require_records
    for records in ([0, 3, 10], (0, 3, 10), np.array([0, 3, 10], np.uint8), [np.int32(0), 3, 10]):
        found = required(records, 10, default=100)
        np.testing.assert_array_equal(found, [0, 3, 10])
        assert found.dtype == int
    np.testing.assert_array_equal(required(range(4), 10, default=100), [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("records", "steps", "expected"),
    [
        (2, 10, [0, 5, 10]),
        (np.int64(5), 10, [0, 2, 4, 6, 8, 10]),
        (1, 10, [0, 10]),
        (3, 10, [0, 3, 7, 10]),
        (None, 4, [0, 1, 2, 3, 4]),  # not more than there are
        (1000, 4, [0, 1, 2, 3, 4]),
    ],
)
def test_a_number_of_records_is_spread_evenly(records, steps, expected):
    np.testing.assert_array_equal(of_runs.require_records(records, steps, 100), expected)


def test_by_default_there_are_as_many_records_as_asked_for():
    found = of_runs.require_records(None, 10**6, default=100)
    np.testing.assert_array_equal(found, np.arange(101) * 10**4)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"restart": 10},
            ValueError,
            "`restart` must be a step before the last, 10, got 10: from there on the error is",
        ),
        ({"restart": 12}, ValueError, "`restart` must be a step before the last, 10, got 12"),
        ({"restart": 0}, ValueError, "`restart` must be from 1 to .*, got 0"),
        ({"restart": -3}, ValueError, "`restart` must be from 1 to .*, got -3"),
        ({"restart": 2.5}, TypeError, r"`restart` must be an integer, got 2\.5 of type float"),
        ({"restart": True}, TypeError, "`restart` must be an integer, got True of type bool"),
        (
            {"restart": 5, "predict": False},
            ValueError,
            "`restart` needs `predict=True`: it starts further predictions",
        ),
    ],
)
def test_restart(options, error, text):
    refused(error, text, **options)


@pytest.mark.parametrize(
    ("learning_rate", "error", "text"),
    [
        (0, ValueError, "`learning_rate` must be a positive, finite number, got 0.*GradientFlow"),
        (-0.1, ValueError, r"`learning_rate` must be a positive, finite number, got -0\.1"),
        (NAN, ValueError, "`learning_rate` must be a positive, finite number, got nan"),
        (INFINITY, ValueError, "`learning_rate` must be a positive, finite number, got inf"),
        ("fast", TypeError, "`learning_rate` must be a number, got 'fast' of type str"),
        (np.ones(2), ValueError, r"`learning_rate` must be one number, got .*shape \(2,\)"),
    ],
)
def test_learning_rate(learning_rate, error, text):
    refused(error, text, learning_rate=learning_rate)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"method": "jet"}, ValueError, "`method` must be one of 'taylor', 'lie', 'orbit', got 'j"),
        ({"method": None}, ValueError, "`method` must be one of .*, got None: 'taylor' is the def"),
        ({"progress": 3}, TypeError, "`progress` must be a function of the records .*, got 3"),
        ({"progress": True}, TypeError, "`progress` must be a function .*, got True"),
        ({"rtol": 1e-17}, ValueError, r"`rtol` must be at least 8\.9e-16, what the dtype .*1e-17"),
        ({"rtol": 0.0}, ValueError, r"`rtol` must be at least .*, got 0\.0"),
        ({"rtol": -1e-3}, ValueError, r"`rtol` must be at least .*, got -0\.001"),
        ({"rtol": NAN}, ValueError, "`rtol` must be at least .*, got nan"),
        ({"rtol": "tight"}, TypeError, "`rtol` must be a number, got 'tight' of type str"),
        ({"atol": 0.0}, ValueError, r"`atol` must be positive and finite, got 0\.0: .*near zero"),
        ({"max_steps": 0}, ValueError, "`max_steps` must be an integer of at least 1, got 0"),
        ({"max_steps": 1.5}, ValueError, r"`max_steps` must be an integer of .*, got 1\.5"),
    ],
)
def test_options(options, error, text):
    refused(error, text, **options)


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        (jnp.array([1, 2]), TypeError, r"float arrays, but .*dtype int64: .*astype\(float\)"),
        (jnp.array([1.0, NAN]), ValueError, "`params` must be finite, .*contains NaN"),
        (
            {"a": jnp.ones(2, jnp.float32), "b": jnp.ones(2)},
            TypeError,
            "params of one dtype, got float32 and float64: convert them",
        ),
    ],
    ids=["integers", "NaN", "mixed"],
)
def test_params(params, error, text):
    both = cf.Problem(lambda p: sum(jnp.sum(leaf) ** 2 for leaf in (p.values())))
    refused(error, text, params=params, problem=both if isinstance(params, dict) else QUADRATIC)


def test_rtol_of_single_precision():
    text = r"`rtol` must be at least 4\.8e-07, .*got 1e-08: enable double precision"
    refused(ValueError, text, params=ONES.astype(jnp.float32), rtol=1e-8)


def test_problem():
    refused(TypeError, "`problem` must be a `Problem`, got function: wrap a loss", problem=jnp.sum)


# --- bounds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "time", "error", "text"),
    [
        (10, 1.0, ValueError, "`steps` or `time` must be given, one of the two, got both: `steps`"),
        (
            None,
            None,
            ValueError,
            "`steps` or `time` must be given, one of the two, got neither: `steps` for a run of .*"
            "`time` for one of that length",
        ),
        (0, None, ValueError, "`steps` must be from 1 to .*, got 0"),
        (1.5, None, TypeError, r"`steps` must be an integer, got 1\.5"),
        (None, 0, ValueError, "`time` must be positive and finite, got 0: the horizon"),
        (None, -1.0, ValueError, r"`time` must be positive and finite, got -1\.0: the horizon"),
        (None, NAN, ValueError, "`time` must be positive and finite, got nan"),
        (None, INFINITY, ValueError, "`time` must be positive and finite, got inf"),
        (None, "1", TypeError, "`time` must be a number, got '1' of type str: the horizon"),
        (None, True, TypeError, "`time` must be a number, got True of type bool"),
    ],
)
def test_horizon(steps, time, error, text):
    with pytest.raises(error, match=text):
        requirements.require_horizon(steps, time)


def test_a_horizon_is_steps_or_time():
    assert requirements.require_horizon(np.int64(3), None) == (3, None)
    assert requirements.require_horizon(None, np.float32(0.5)) == (None, 0.5)
    assert requirements.require_horizon(None, 2) == (None, 2.0)


@pytest.mark.parametrize(
    ("tolerance", "error", "text"),
    [
        (0, ValueError, "`tolerance` must be positive and finite, got 0: it is the largest"),
        (-1, ValueError, "`tolerance` must be positive and finite, got -1: it is the largest"),
        (NAN, ValueError, "`tolerance` must be positive and finite, got nan"),
        (INFINITY, ValueError, "`tolerance` must be positive and finite, got inf"),
        ("x", TypeError, "`tolerance` must be a number, got 'x' of type str: .*discretization"),
        (True, TypeError, "`tolerance` must be a number, got True of type bool"),
        (None, TypeError, "`tolerance` must be a number, got None of type NoneType"),
    ],
)
def test_tolerance(tolerance, error, text):
    with pytest.raises(error, match=text):
        requirements.require_tolerance(tolerance)


def test_a_tolerance_is_any_positive_number():
    for tolerance in (1, 0.5, np.float32(0.25), np.int64(2)):
        found = requirements.require_tolerance(tolerance)
        assert type(found) is float
        assert found == tolerance


@pytest.mark.parametrize(
    ("curvature", "error", "text"),
    [
        (1.0, TypeError, r"`curvature` must be two numbers, .*lowest and the highest, got 1\.0"),
        ((1.0,), TypeError, r"`curvature` must be two numbers, .*got \(1\.0,\)"),
        ((0, 1, 2), TypeError, r"`curvature` must be two numbers, .*got \(0, 1, 2\)"),
        (("a", "b"), TypeError, "`curvature` must be two numbers"),
        ((2, 1), ValueError, r"the lowest and then the highest, both finite, got \(2, 1\)"),
        ((0, INFINITY), ValueError, "both finite, got"),
        ((NAN, 1), ValueError, "both finite, got"),
    ],
)
def test_curvature(curvature, error, text):
    with pytest.raises(error, match=text):
        requirements.require_curvature(curvature)


def test_a_curvature_is_two_numbers_in_order():
    assert requirements.require_curvature(np.array([-1, 2])) == (-1.0, 2.0)


# --- an error that was measured -------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (jnp.ones(3), r"`initial_error` must have .*shapes of `params`, \(2,\), got \(3,\)"),
        ([jnp.ones(2)], r"`initial_error` must have the structure .*, got \[\(2,\)\]"),
        (jnp.array([0.0, NAN]), "`initial_error` must be finite, got NaN or infinity"),
        (jnp.array([0.0, INFINITY]), "`initial_error` must be finite, got NaN or infinity"),
    ],
)
def test_initial_error(error, text):
    with pytest.raises(ValueError, match=text):
        requirements.require_error(error, ONES)


def test_an_initial_error_takes_the_dtype_of_the_params():
    found = requirements.require_error(np.zeros(2), ONES.astype(jnp.float32))
    assert found.dtype == jnp.float32
