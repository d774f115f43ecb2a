"""Many steps of descent at once, against descent: the error, its estimate and what it costs."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from users import import_as_users_do
from zoo import distance, network, quadratic, symmetric_matrix

PROBLEMS = {"network": network, "quadratic": lambda: (quadratic().problem, quadratic().params)}
(unchecked,) = import_as_users_do("counterflow")
SHARPNESS = 1.5 + 0.25  # of the quadratic, with its weight decay


@cache
def start(name):
    return PROBLEMS[name]()


@cache
def descended(name, learning_rate, steps):
    """Where descent itself gets."""
    problem, params = start(name)
    descent = cf.GradientDescent(problem, learning_rate)
    return cf.solve(descent, params, [learning_rate * steps], throw=False)


# --- accuracy and cost ----------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_error_is_below_the_estimate_and_the_estimate_below_the_tolerance(name, tolerance):
    problem, params = start(name)
    ahead = cf.fast_forward(problem, params, 1e-3, steps=3000, tolerance=tolerance)
    error = distance(ahead.params, descended(name, 1e-3, 3000).at(0))
    assert error <= ahead.relative_error <= tolerance
    assert ahead.status == cf.Status.COMPLETED
    assert ahead.steps == 3000
    assert ahead.leaps > 0


@pytest.mark.parametrize("seed", [6, 21, 27, 30])
def test_errors_that_are_alike_by_chance_are_not_taken_for_small_ones(seed):
    # In a curved valley, two runs may go astray alike: by their difference alone, one or more of
    # the estimates from each of these starts would be too small.
    problem = cf.Problem(lambda z: (1 - z[0]) ** 2 + 20 * (z[1] - z[0] ** 2) ** 2)
    params = jnp.asarray(np.random.default_rng(seed).normal(size=2))
    truth = cf.solve(cf.GradientDescent(problem, 2e-4), params, [4.0]).at(0)
    for tolerance in (1e-3, 1e-4, 1e-5, 1e-6):
        ahead = cf.fast_forward(problem, params, 2e-4, 20_000, tolerance)
        assert ahead.leaps > 0
        assert distance(ahead.params, truth) <= ahead.relative_error <= tolerance


def test_small_learning_rates_cost_about_a_hundredth_of_the_gradients():
    problem, params = start("network")
    ahead = cf.fast_forward(problem, params, 1e-4, steps=30_000, tolerance=1e-6)
    assert ahead.gradient_evaluations < 150
    assert ahead.speedup == 30_000 / ahead.gradient_evaluations
    assert distance(ahead.params, descended("network", 1e-4, 30_000).at(0)) < 1e-6
    # What it costs is a matter of time and not of steps.
    longer = cf.fast_forward(problem, params, 1e-5, steps=300_000, tolerance=1e-6)
    assert longer.gradient_evaluations < 1.1 * ahead.gradient_evaluations


def test_smaller_tolerances_cost_more_gradients_and_shorter_leaps():
    problem, params = start("quadratic")
    found = [cf.fast_forward(problem, params, 1e-3, 3000, tol) for tol in (1e-3, 1e-6, 1e-9)]
    assert np.all(np.diff([ahead.gradient_evaluations for ahead in found]) > 0)
    assert np.all(np.diff([ahead.leaps for ahead in found]) > 0)


calls = []


def counted(theta):
    """The gradient of a quadratic with curvatures from 0.1 to 5, which leaves a trace."""
    shape = jax.ShapeDtypeStruct(theta.shape, theta.dtype)
    slope = jnp.geomspace(0.1, 5.0, 20) * theta
    return jax.pure_callback(lambda value: calls.append(None) or value, shape, slope)


@pytest.mark.parametrize(
    ("learning_rate", "steps", "leaps"),
    [(0.001, 2000, True), (0.01, 3000, True), (0.2, 300, False)],
    ids=["long leaps", "short leaps", "plain descent"],
)
def test_gradients_are_counted_one_by_one(learning_rate, steps, leaps):
    calls.clear()
    problem = cf.Problem.from_gradient(counted)
    ahead = cf.fast_forward(problem, jnp.ones(20), learning_rate, steps)
    assert (ahead.leaps > 0) == leaps
    assert ahead.plain_steps < steps or not leaps
    # The params were looked at once before it began.
    assert len(calls) == ahead.gradient_evaluations + 1


def test_leaps_go_on_where_descent_has_long_come_to_rest():
    centre = jnp.array([1.0, -2.0, 3.0, 0.5, 1.0])
    curvatures = jnp.array([0.05, 0.3, 1.0, 4.0, 20.0])
    problem = cf.Problem(lambda z: jnp.sum(curvatures * (z - centre) ** 2) / 2)
    ahead = cf.fast_forward(problem, jnp.full(5, 0.1), 1e-3, steps=1_000_000, tolerance=1e-6)
    assert distance(ahead.params, centre) < 1e-12
    assert ahead.speedup > 50


def test_weight_decay_is_included():
    problem, params = start("quadratic")
    ahead = cf.fast_forward(problem, params, 1e-3, steps=3000)

    def exact(weight_decay):
        step = np.eye(5) - 1e-3 * (symmetric_matrix() + weight_decay * np.eye(5))
        return np.linalg.matrix_power(step, 3000) @ np.asarray(params)

    assert distance(ahead.params, exact(0.25)) < 1e-6
    assert distance(ahead.params, exact(0.0)) > 0.1


def test_a_field_that_rotates_is_followed():
    rate = 0.2 + 3j
    matrix = jnp.array([[rate.real, -rate.imag], [rate.imag, rate.real]])
    problem = cf.Problem.from_gradient(lambda z, a: a @ z, matrix)
    ahead = cf.fast_forward(problem, jnp.array([1.0, 0.0]), 1e-4, steps=50_000)
    exact = (1 - 1e-4 * rate) ** 50_000
    assert distance(ahead.params, np.array([exact.real, exact.imag])) <= ahead.relative_error
    assert ahead.relative_error <= 1e-6
    assert ahead.speedup > 20


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_a_sudden_change_after_a_quiet_start_is_not_leapt_over(tolerance):
    # The second number grows from 10⁻⁶ to 1, at rate 20, where the first leap tried is the whole.
    field = cf.Problem.from_gradient(lambda z: jnp.stack([0 * z[0], -20 * z[1] * (1 - z[1])]))
    params = jnp.array([1.0, 1e-6])
    ahead = cf.fast_forward(field, params, 1e-4, 10_000, tolerance)
    truth = cf.solve(cf.GradientDescent(field, 1e-4), params, [1.0]).at(0)
    assert truth[1] > 0.99
    assert ahead.leaps > 0
    assert distance(ahead.params, truth) <= ahead.relative_error <= tolerance


def test_single_precision_is_kept_and_enough_for_three_digits():
    matrix = jnp.asarray(symmetric_matrix(), jnp.float32)
    problem = cf.Problem(lambda theta, a: theta @ a @ theta / 2, matrix, 0.25)
    params = start("quadratic")[1].astype(jnp.float32)
    ahead = cf.fast_forward(problem, params, 1e-3, steps=3000, tolerance=1e-3)
    assert ahead.params.dtype == jnp.float32
    assert ahead.relative_error <= 1e-3
    assert ahead.leaps > 0
    assert distance(ahead.params, descended("quadratic", 1e-3, 3000).at(0)) <= 1e-3


# --- plain descent --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "learning_rate", "steps"),
    [
        ("quadratic", 1.9 / SHARPNESS, 2000),
        ("quadratic", 1.9 / SHARPNESS, 200),
        ("quadratic", 1.9 / SHARPNESS, 5),
        ("quadratic", 1e-3, 5),
        ("network", 1e-3, 5),
        ("network", 0.5, 100),
    ],
)
def test_plain_descent_is_run_and_said_to_be(name, learning_rate, steps):
    problem, params = start(name)
    ahead = cf.fast_forward(problem, params, learning_rate, steps)
    assert distance(ahead.params, descended(name, learning_rate, steps).at(0)) < 1e-14
    assert ahead.relative_error == 0
    assert ahead.reason.startswith("plain descent")
    assert (ahead.leaps, ahead.plain_steps, ahead.steps) == (0, steps, steps)
    assert ahead.status == cf.Status.COMPLETED
    # What was spent before that was found out is counted and limited.
    assert steps <= ahead.gradient_evaluations <= 1.4 * steps + 200
    assert (ahead.gradient_evaluations == steps) == (steps <= 200)


def test_a_descent_that_diverges_ends_as_descent_does():
    problem, params = start("quadratic")
    ahead = cf.fast_forward(problem, params, 2.1 / SHARPNESS, steps=10**6)
    truth = descended("quadratic", 2.1 / SHARPNESS, 10**6)
    assert ahead.status == truth.status == cf.Status.DIVERGED
    assert ahead.steps == ahead.plain_steps == truth.statistics.accepted_steps < 1000
    assert np.all(np.isfinite(ahead.params))


def test_a_descent_that_leaves_the_numbers_ends_there():
    problem = cf.Problem(lambda theta: jnp.sum(jnp.exp(theta**2)))
    ahead = cf.fast_forward(problem, jnp.array([2.0, 1.0]), 10.0, steps=1000)
    assert ahead.status == cf.Status.NON_FINITE
    assert ahead.steps < 5


# --- what is shown and what is refused ------------------------------------------------------


def test_repr_tells_the_steps_the_gradients_and_the_estimate():
    problem, params = start("quadratic")
    ahead = cf.fast_forward(problem, params, 1e-3, steps=3000)
    assert repr(ahead) == (
        f"FastForward(3000 steps, {ahead.gradient_evaluations} gradient evaluations, relative "
        f"error {ahead.relative_error:.1g}; completed; {ahead.reason})"
    )
    mean = (3000 - ahead.plain_steps) / ahead.leaps
    assert ahead.reason == f"leaps of {mean:.0f} steps on average"
    assert ahead.relative_error > 0


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"tolerance": 0}, ValueError, "`tolerance` must be a relative error .*to 0.1, got 0"),
        ({"tolerance": 1}, ValueError, "`tolerance` must be .*from 1.8e-15, .*got 1"),
        ({"tolerance": -1e-6}, ValueError, "`tolerance` must be .*got -1e-06"),
        ({"tolerance": float("nan")}, ValueError, "`tolerance` must be .*got nan"),
        ({"tolerance": "x"}, ValueError, "`tolerance` must be .*got 'x'"),
        ({"steps": 0}, ValueError, "`steps` must be from 1 to .*got 0"),
        ({"steps": 2**31}, ValueError, "`steps` must be from 1 to 2147483646, got 2147483648"),
        ({"steps": 10.0}, TypeError, "`steps` must be an integer, got 10.0 of type float"),
        ({"steps": True}, TypeError, "`steps` must be an integer, got True"),
        ({"learning_rate": 0.0}, ValueError, "`learning_rate` must be a positive, finite number"),
        ({"params": jnp.array([jnp.nan])}, ValueError, "`params` must be finite"),
        (
            {"params": jnp.ones(2, jnp.float32), "tolerance": 1e-7},
            ValueError,
            "`tolerance` must be a relative error from 9.5e-07, .*got 1e-07",
        ),
    ],
)
def test_bad_input_is_refused(options, error, text):
    problem = unchecked.Problem(lambda theta: jnp.sum(theta**2) / 2)
    arguments = {"params": jnp.ones(2), "learning_rate": 1e-3, "steps": 100} | options
    with pytest.raises(error, match=text):
        unchecked.fast_forward(problem, **arguments)


@pytest.mark.parametrize(
    ("start", "steps", "tolerance"), [((1e-10, 1.0), 20_000, 1e-4), ((1e-8, 1.0), 12_000, 1e-3)]
)
def test_runs_that_could_leap_alike_do_not(start, steps, tolerance):
    # Of the first coordinate nothing is seen before it has grown a million times.
    problem = cf.Problem(lambda z: jnp.sum((z**2 - 1) ** 2) / 4)
    ahead = cf.fast_forward(problem, jnp.array(start), 1e-3, steps, tolerance)
    descent = cf.solve(cf.GradientDescent(problem, 1e-3), jnp.array(start), [1e-3 * steps]).at(0)
    error = float(jnp.linalg.norm(ahead.params - descent) / jnp.linalg.norm(descent))
    assert error <= ahead.relative_error <= tolerance
    assert ahead.leaps > 1


def test_a_run_that_grows_beyond_bounds_has_diverged_as_descent_has():
    problem = cf.Problem(lambda z: -jnp.sum(z**2) / 2)
    ahead = cf.fast_forward(problem, jnp.ones(1), 1e-3, 60_000)
    run = cf.solve(cf.GradientDescent(problem, 1e-3), jnp.ones(1), [60.0], throw=False)
    assert ahead.status == run.status == cf.Status.DIVERGED


def test_few_steps_are_taken_as_they_are():
    problem, params = network()
    ahead = cf.fast_forward(problem, params, 1e-3, 5)
    assert (ahead.gradient_evaluations, ahead.plain_steps, ahead.relative_error) == (5, 5, 0.0)
