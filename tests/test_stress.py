"""Numerical truth under stress: exact answers of quadratics, at scales where squares run out."""

import math
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from command_line import AS_USERS
from counterflow.problem.tree import norm

CURVATURES = jnp.array([1.0, 0.3])


def quadratic(curvatures=CURVATURES):
    """The loss ½ Σ h θ², whose every dynamics is known."""
    return cf.Problem(lambda params, h: 0.5 * jnp.sum(h * params * params), curvatures)


def exact(kind, curvatures, learning_rate, steps):
    """The factor by which every parameter has changed."""
    x = learning_rate * curvatures
    rates = {"descent": jnp.log1p(-x), "flow": -x, "motion": -(x + x**2 / 2)}
    return jnp.exp(rates[kind] * steps)


def solved(kind, problem, params, learning_rate, steps):
    dynamics = {
        "descent": lambda: cf.GradientDescent(problem, learning_rate),
        "flow": lambda: cf.GradientFlow(problem),
        "motion": lambda: cf.EquationOfMotion(problem, learning_rate, 1),
    }[kind]()
    trajectory = cf.solve(dynamics, params, jnp.array([0.0, steps * learning_rate]))
    assert str(trajectory.status) == "completed"
    return trajectory.at(-1)


KINDS = pytest.mark.parametrize("kind", ["descent", "flow", "motion"])


@KINDS
@pytest.mark.parametrize("size", [1e-150, 1e-30, 1e150])
def test_params_of_any_size_are_followed(kind, size):
    params = size * jnp.array([1.0, 2.0])
    found = solved(kind, quadratic(), params, 0.1, 20)
    np.testing.assert_allclose(found, exact(kind, CURVATURES, 0.1, 20) * params, rtol=1e-7)


@KINDS
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_losses_of_any_scale_are_followed(kind, scale):
    curvatures, params = scale * CURVATURES, jnp.array([1.0, 2.0])
    found = solved(kind, quadratic(curvatures), params, 0.1 / scale, 20)
    expected = exact(kind, curvatures, 0.1 / scale, 20) * params
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@KINDS
def test_a_condition_number_of_a_trillion_loses_no_digit(kind):
    curvatures, params = jnp.array([1.0, 1e-12]), jnp.array([1.0, 1.0])
    found = solved(kind, quadratic(curvatures), params, 0.1, 50)
    expected = exact(kind, curvatures, 0.1, 50) * params
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    # What moves by 5e-12 moves by that.
    assert float(1 - found[1]) == pytest.approx(5e-12, rel=1e-3)


def test_a_condition_number_of_a_trillion_across_the_axes_is_compared_as_along_them():
    curvatures, turn = jnp.array([1.0, 1e-12]), jnp.array([[0.6, -0.8], [0.8, 0.6]])
    hessian = turn @ jnp.diag(curvatures) @ turn.T
    problem = cf.Problem(lambda params, h: 0.5 * params @ h @ params, hessian)
    compared = cf.compare(problem, turn @ jnp.ones(2), 0.01, 50, orders=(0, 1), records=2)
    for order, kind in ((0, "flow"), (1, "motion")):
        gap = exact(kind, curvatures, 0.01, 50) - exact("descent", curvatures, 0.01, 50)
        expected = float(jnp.linalg.norm(gap))
        assert compared.error[order, -1] == pytest.approx(expected, rel=1e-2)
        predicted = compared.predictions["propagated"].prediction[order, -1]
        assert predicted == pytest.approx(expected, rel=0.05)


@KINDS
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_parameter_is_enough(kind, shape):
    problem = quadratic(jnp.ones(shape))
    found = solved(kind, problem, jnp.full(shape, 2.0), 0.1, 10)
    assert found.shape == shape
    np.testing.assert_allclose(found, 2 * exact(kind, jnp.ones(shape), 0.1, 10), rtol=1e-7)


@KINDS
def test_where_the_gradient_vanishes_nothing_moves(kind):
    assert not np.any(solved(kind, quadratic(), jnp.zeros(2), 0.1, 10))


@KINDS
def test_leaves_of_any_shape_stand_side_by_side(kind):
    params = {"a": jnp.ones((2, 1, 3)), "b": jnp.array(2.0), "c": jnp.ones((0,)), "d": jnp.ones(1)}
    problem = cf.Problem(
        lambda params: 0.5 * sum(jnp.sum(leaf**2) for leaf in params.values())  # pyright: ignore
    )
    found = solved(kind, problem, params, 0.1, 10)
    factor = exact(kind, jnp.array(1.0), 0.1, 10)
    for name, leaf in params.items():
        np.testing.assert_allclose(found[name], factor * leaf, rtol=1e-7)


@KINDS
def test_one_sample_is_enough(kind):
    problem = cf.Problem(
        lambda w, data: 0.5 * jnp.mean((data[0] @ w - data[1]) ** 2),
        data=(jnp.ones((1, 2)), jnp.zeros(1)),
    )
    found = solved(kind, problem, jnp.array([1.0, 1.0]), 0.1, 10)
    # Along (1, 1), where the curvature is 2.
    np.testing.assert_allclose(found, exact(kind, jnp.full(2, 2.0), 0.1, 10), rtol=1e-7)


@pytest.mark.parametrize("size", [1e-150, 1.0, 1e150])
def test_counter_terms_of_any_size_are_exact(size):
    curvatures, params = jnp.array([1.0, 1e-6]), size * jnp.array([1.0, -2.0])
    problem = quadratic(curvatures)
    for method in ("taylor", "lie"):
        found = cf.counter_terms(problem, params, 3, method=method)
        for order, term in enumerate(found):
            expected = curvatures ** (order + 2) * params / (order + 2)
            np.testing.assert_allclose(term, expected, rtol=1e-12)
    velocity = cf.EquationOfMotion(problem, 1e-3, 3, "orbit").velocity(params)
    expected = jnp.log1p(-1e-3 * curvatures) / 1e-3 * params
    np.testing.assert_allclose(velocity, expected, rtol=1e-11)


@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_a_leap_over_many_steps_is_as_good_at_any_size(size):
    params = size * jnp.array([1.0, 2.0])
    ahead = cf.fast_forward(quadratic(), params, 1e-3, 20_000)
    expected = exact("descent", CURVATURES, 1e-3, 20_000) * params
    assert float(jnp.max(jnp.abs(ahead.params - expected) / jnp.max(expected))) < 1e-6


@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_errors_are_measured_and_predicted_at_any_size(size):
    params = size * jnp.array([1.0, 2.0])
    comparison = cf.compare(quadratic(), params, 0.01, 50, orders=(0, 1), records=2)
    for order, kind in ((0, "flow"), (1, "motion")):
        ratio = exact(kind, CURVATURES, 0.01, 50) - exact("descent", CURVATURES, 0.01, 50)
        expected = float(jnp.linalg.norm(ratio * jnp.array([1.0, 2.0]))) * size
        assert comparison.error[order, -1] == pytest.approx(expected, rel=1e-2)
        predicted = comparison.predictions["propagated"].prediction[order, -1]
        assert predicted == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_a_monitor_sees_the_same_at_any_size(size):
    unit = jnp.array([1.0, 2.0])
    monitor = cf.Monitor(quadratic(), 0.01, every=50, budget=math.inf)
    for step in (0, 50):
        monitor(step, size * exact("descent", CURVATURES, 0.01, step) * unit)
    assert not monitor.notes
    record = monitor.records[50]
    gap = exact("flow", CURVATURES, 0.01, 50) - exact("descent", CURVATURES, 0.01, 50)
    expected = float(jnp.linalg.norm(gap * unit)) * size
    assert record["sharpness"] == pytest.approx(1.0, rel=1e-3)
    assert record["measured_error"] == pytest.approx(expected, rel=0.05)
    assert record["propagated_error"] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("size", [1e-150, 1.0, 1e150])
def test_norms_lose_no_digit_at_any_size(size):
    tree = {"a": size * jnp.array([3.0, 0.0]), "b": jnp.array(-4.0 * size), "c": jnp.ones((0, 2))}
    assert float(norm(tree)) == pytest.approx(5 * size, rel=1e-15)
    assert float(norm({"a": jnp.array([3e200, 4e200])})) == pytest.approx(5e200, rel=1e-15)
    assert not np.isfinite(float(norm(jnp.array([jnp.inf, 1.0]))))
    assert np.isnan(float(norm(jnp.array([jnp.nan, 1.0]))))
    assert float(norm(jnp.zeros(3))) == 0


def test_the_norm_of_usual_numbers_is_the_usual_one():
    numbers = jnp.asarray(np.random.default_rng(3).normal(size=1000))
    assert float(norm(numbers)) == float(jnp.sqrt(jnp.sum(numbers * numbers)))


@pytest.mark.parametrize("size", [1e-150, 1.0, 1e150])
def test_symmetries_and_bounds_know_no_size(size):
    product = cf.Problem(lambda params: (params["a"] * params["b"] / size**2 - 1.0) ** 2)
    params = {"a": jnp.array(1.5 * size), "b": jnp.array(0.5 * size)}
    assert [repr(one) for one in cf.find_symmetries(product, params)] == ["Rescale('a', 'b')"]
    start = size * jnp.array([1.0, 2.0])
    bound = cf.learning_rate_bound(quadratic(), start, steps=50, tolerance=1e-2 * size)
    assert bound.learning_rate == pytest.approx(0.01984, rel=1e-3)


def test_what_overflows_is_told():
    with pytest.raises(ValueError, match="`loss` must be finite at `params`, got inf"):
        cf.solve(cf.GradientFlow(quadratic()), jnp.full(2, 1e200), jnp.array([0.0, 1.0]))


def test_single_precision_keeps_its_digits_and_promises_no_more():
    params = jnp.array([1.0, 2.0], jnp.float32)
    problem = quadratic(CURVATURES.astype(jnp.float32))
    times = jnp.array([0.0, 2.0])
    for kind in ("descent", "flow", "motion"):
        found = solved(kind, problem, params, 0.1, 20)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, exact(kind, CURVATURES, 0.1, 20) * params, rtol=1e-4)
    compared = cf.compare(problem, params, 0.1, 20, orders=(0, 1), records=2)
    gap = exact("flow", CURVATURES, 0.1, 20) - exact("descent", CURVATURES, 0.1, 20)
    expected = jnp.linalg.norm(gap * jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(compared.error[0, -1], expected, rtol=1e-2)
    with pytest.raises(ValueError, match=r"`rtol` must be at least .*enable double precision"):
        cf.solve(cf.GradientFlow(problem), params, times, rtol=1e-10)


MANY = """
from pathlib import Path

import diffrax
import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp

import counterflow as cf

curvatures, params = jnp.linspace(0.1, 1.0, 10**7), jnp.ones(10**7)
problem = cf.Problem(lambda params, h: 0.5 * jnp.sum(h * params * params), curvatures)
found = cf.solve(cf.GradientDescent(problem, 0.1), params, jnp.array([0.0, 0.3])).at(-1)
print(float(jnp.max(jnp.abs(found - (1 - 0.1 * curvatures) ** 3))))
flow, times = cf.GradientFlow(problem), jnp.array([0.0, 0.1])
found = cf.solve(flow, params, times, rtol=1e-3, solver=diffrax.Heun()).at(-1)
print(float(jnp.max(jnp.abs(found - jnp.exp(-0.1 * curvatures)))))
velocity = jax.jit(cf.EquationOfMotion.velocity)(cf.EquationOfMotion(problem, 0.1, 1), params)
print(float(jnp.max(jnp.abs(velocity + curvatures + 0.05 * curvatures**2))))
del velocity, found
first, second = cf.counter_terms(problem, params, 2)
print(float(jnp.max(jnp.abs(first - curvatures**2 / 2) + jnp.abs(second - curvatures**3 / 3))))
for line in Path("/proc/self/status").read_text().splitlines():
    if line.startswith("VmHWM"):  # not `ru_maxrss`, which the process that starts it hands on
        print(int(line.split()[1]) * 1024)
"""


def test_ten_million_params_are_followed_in_two_gigabytes():
    # Compiled as users do, in a process of its own: what others held does not count.
    command = [sys.executable, "-c", MANY]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=AS_USERS)
    descent, flow, motion, terms, peak = map(float, done.stdout.split())
    assert descent < 1e-15
    assert flow < 1e-4
    assert motion < 1e-15
    assert terms < 1e-15
    assert peak < 2**31
