"""Records read off between the ends of two steps: exact to degree five, of order six, for free."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.solvers.hermite import TwoStepHermite
from counterflow.solvers.rock4 import ROCK4
from zoo import distance, network, slope


def interpolation(function, before, start, end):
    """The interpolation of a function of time from two steps, with exact slopes."""
    times = [jnp.asarray(time, float) for time in (before, start, end)]
    values, slopes = zip(
        *(jax.jvp(function, (time,), (jnp.ones(()),)) for time in times), strict=True
    )
    return TwoStepHermite(t0=times[1], t1=times[2], before=times[0], values=values, slopes=slopes)


def of_degree(degree):
    """A tree of polynomials of time, with all powers up to a degree."""
    generator = np.random.default_rng(degree)
    first, second = generator.normal(size=degree + 1), generator.normal(size=(degree + 1, 2, 3))

    def function(time):
        powers = time ** jnp.arange(degree + 1)
        return {"number": powers @ first, "matrix": jnp.tensordot(powers, second, 1)}

    return function


SPACINGS = {"even": (0.0, 1.0, 2.0), "longer": (0.3, 0.5, 1.4), "shorter": (-0.9, 0.6, 0.7)}


@pytest.mark.parametrize("times", SPACINGS.values(), ids=SPACINGS)
def test_polynomials_of_degree_five_are_exact_and_of_degree_six_are_not(times):
    _, start, end = times
    exact, not_exact = of_degree(5), of_degree(6)
    for share in (0.0, 0.1, 0.5, 0.8, 1.0):
        time = start + share * (end - start)
        found = interpolation(exact, *times).evaluate(time)
        assert distance(found, exact(time)) < 1e-12
    middle = (start + end) / 2
    found = interpolation(not_exact, *times).evaluate(middle)
    assert distance(found, not_exact(middle)) > 1e-6


def test_between_two_times_it_is_the_difference():
    function = of_degree(5)
    found = interpolation(function, -0.4, 0.0, 1.0).evaluate(0.2, 0.9)
    expected = jax.tree.map(lambda late, early: late - early, function(0.9), function(0.2))
    assert distance(found, expected) < 1e-12


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_the_error_is_of_order_six(ratio):
    def function(time):
        return jnp.stack([jnp.sin(3 * time), jnp.exp(-time)])

    lengths = 0.4 / 2 ** np.arange(4)
    errors = []
    for length in lengths:
        start, time = 0.5, 0.5 + 0.4 * length
        found = interpolation(function, start - ratio * length, start, start + length)
        errors.append(distance(found.evaluate(time), function(jnp.asarray(time))))
    assert slope(lengths[1:], errors[1:]) == pytest.approx(6, abs=0.1)


@pytest.mark.parametrize("rtol", [1e-5, 1e-7])
def test_many_records_of_rock4_cost_nothing_and_are_as_accurate_as_the_end(rtol):
    problem, params = network()
    flow = cf.GradientFlow(problem)
    times = np.linspace(0, 4, 101)[1:]
    many = cf.solve(flow, params, times, rtol=rtol, solver=ROCK4())
    one = cf.solve(flow, params, times[-1:], rtol=rtol, solver=ROCK4())
    assert many.statistics.gradient_evaluations <= one.statistics.gradient_evaluations
    assert many.statistics.accepted_steps < len(times)  # so most records lie between steps
    exact = cf.solve(flow, params, times, rtol=1e-11, solver=diffrax.Dopri8())
    errors = [distance(many.at(i), exact.at(i)) for i in range(len(times))]
    assert max(errors) < 2 * distance(one.at(0), exact.at(-1))


def test_records_of_rock4_on_a_stiff_flow_are_as_accurate_as_ends():
    # Stiff directions (rates up to 2e4) that follow a slow one: what is left of them at the ends of
    # steps is small, but its slope is not, and a polynomial through slopes would swing.
    rates = jnp.geomspace(100.0, 2e4, 8)

    def loss(theta):
        slow, fast = theta[0], theta[1:]
        return slow**2 / 2 + jnp.sum(rates * (fast - jnp.sin(slow + jnp.arange(8) / 6)) ** 2) / 2

    flow, start = cf.GradientFlow(cf.Problem(loss)), jnp.ones(9)
    times = np.linspace(0, 0.3, 31)[1:]
    exact = cf.solve(flow, start, times, rtol=1e-10, solver=diffrax.Tsit5())

    many, *alone = (
        cf.solve(flow, start, at, rtol=1e-4, solver=ROCK4())
        for at in (times, times[9:10], times[19:20], times[29:])
    )
    errors = [distance(many.at(i), exact.at(i)) for i in range(len(times))]
    ends = [distance(run.at(0), exact.at(i)) for run, i in zip(alone, (9, 19, 29), strict=True)]
    assert np.median(errors) < 1.5 * max(ends)
    assert max(errors) < 3 * max(ends)
    # For that, steps are cut short at records: a few percent more evaluations for thirty of them.
    cost = alone[-1].statistics.gradient_evaluations
    assert many.statistics.gradient_evaluations < 1.15 * cost
