"""The solver that a flow is given by default: which one, what the choice costs, that it pays."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.errors.predict_error import PredictionRunner
from counterflow.problem.tree import distance, norm
from counterflow.solvers.choice import choose_solver
from counterflow.solvers.rock4 import ROCK4
from counterflow.solvers.stabilized_adams import StabilizedAdams
from zoo import network

# Rates from 0.1 to 2000: over a time of 5 a flow of it is stiff.
STIFF = cf.Problem(lambda theta: jnp.sum(jnp.geomspace(0.1, 2000.0, 60) * theta**2) / 2)
HORIZON = 5.0
MILD = cf.Problem(lambda theta: jnp.sum(theta**4) / 4)


def evaluations(run):
    return run.statistics.gradient_evaluations


# --- which one ------------------------------------------------------------------------------


def test_a_stiff_flow_is_given_rock4_and_that_pays():
    flow, start = cf.GradientFlow(STIFF), jnp.ones(60)
    run = cf.solve(flow, start, [HORIZON], rtol=1e-5)
    assert run.statistics.solver == "ROCK4"
    classical = cf.solve(flow, start, [HORIZON], rtol=1e-5, solver=diffrax.Tsit5())
    assert classical.statistics.solver == "Tsit5"
    assert 4 * evaluations(run) < evaluations(classical)


@pytest.mark.parametrize(("rtol", "solver"), [(1e-5, diffrax.Tsit5()), (1e-9, diffrax.Dopri8())])
def test_a_mild_flow_is_given_a_classical_solver_for_a_few_evaluations_more(rtol, solver):
    flow, start = cf.GradientFlow(MILD), jnp.array([1.0, 0.5])
    run = cf.solve(flow, start, [HORIZON], rtol=rtol)
    assert run.statistics.solver == type(solver).__name__
    named = cf.solve(flow, start, [HORIZON], rtol=rtol, solver=solver)
    assert 1 <= evaluations(run) - evaluations(named) <= 11
    assert jnp.array_equal(run.at(0), named.at(0))


@pytest.mark.parametrize(("records", "solver"), [(10, "Dopri8"), (100, "Tsit5")])
def test_many_records_at_a_small_tolerance_are_read_off_the_steps_of_tsit5(records, solver):
    compared = cf.compare(
        MILD, jnp.ones(1), 0.05, 100, orders=(0,), records=records, rtol=1e-9, predict=False
    )
    assert compared.statistics["flow 0"].solver == solver
    assert compared.statistics["coarse flow 0"].solver == solver
    times = np.linspace(0, 5, records)
    flow, start = cf.EquationOfMotion(MILD, 0.05, 0), jnp.ones(1)
    assert cf.solve(flow, start, times, rtol=1e-9).statistics.solver == solver
    predicted = PredictionRunner(flow, start, times, rtol=1e-9)
    assert type(predicted.solver).__name__ == solver


@pytest.mark.parametrize(
    ("rtol", "horizon", "solver"),
    [
        (1e-5, HORIZON, ROCK4),
        (1e-5, HORIZON / 100, StabilizedAdams),
        (1e-5, HORIZON / 1000, diffrax.Tsit5),
        (1e-9, 4 * HORIZON, ROCK4),
        (1e-9, HORIZON / 10, StabilizedAdams),
        (1e-9, HORIZON / 1000, diffrax.Dopri8),
    ],
)
def test_a_flow_is_stiff_for_its_horizon_and_its_tolerance(rtol, horizon, solver):
    flow = cf.GradientFlow(STIFF)
    chosen = choose_solver(None, flow, jnp.ones(60), rtol, horizon, careful=False)
    assert isinstance(chosen.solver, solver)


@pytest.mark.parametrize(
    ("rtol", "horizon", "other"),
    [
        (1e-3, 4.0, StabilizedAdams()),
        (1e-5, 0.8, ROCK4()),
        (1e-5, 8.0, StabilizedAdams()),
        (1e-7, 2.0, ROCK4()),
        (1e-7, 3.4, ROCK4()),
    ],
)
def test_of_the_two_stabilized_solvers_the_cheaper_one_is_chosen(rtol, horizon, other):
    flow, start = cf.GradientFlow(STIFF), jnp.ones(60)
    chosen, refused = (
        cf.solve(flow, start, [horizon], rtol=rtol, solver=solver) for solver in (None, other)
    )
    assert chosen.statistics.solver != refused.statistics.solver
    assert evaluations(chosen) < 0.85 * evaluations(refused)


def test_records_at_which_rock4_would_have_to_stop_speak_against_it():
    flow, start = cf.GradientFlow(STIFF), jnp.ones(60)
    few, many = (
        choose_solver(None, flow, start, 1e-5, HORIZON, count, careful=False)
        for count in (10, 1000)
    )
    assert isinstance(few.solver, ROCK4)
    assert isinstance(many.solver, StabilizedAdams)
    times = np.linspace(0, HORIZON, 1001)[1:]
    costs = [
        evaluations(cf.solve(flow, start, times, rtol=1e-5, solver=solver))
        for solver in (None, ROCK4())
    ]
    assert costs[0] < costs[1]


def test_a_network_that_is_trained_for_long_becomes_stiff():
    problem, params = network()
    flow = cf.GradientFlow(problem)
    short, long, longer = (
        choose_solver(None, flow, params, 1e-5, time, careful=False).solver
        for time in (10.0, 100.0, 4000.0)
    )
    assert isinstance(short, diffrax.Tsit5)
    assert isinstance(long, StabilizedAdams)
    assert isinstance(longer, ROCK4)


@pytest.mark.parametrize("rtol", [1e-4, 1e-6])
def test_what_measures_small_errors_is_given_a_solver_with_errors_far_below_its_tolerance(rtol):
    problem, params = network()
    flow, times = cf.GradientFlow(problem), [20.0]
    exact = cf.solve(flow, params, times, rtol=1e-12, solver=diffrax.Dopri8()).at(0)
    errors = {}
    for careful in (True, False):
        chosen = choose_solver(None, flow, params, rtol, times[-1], careful=careful).solver
        assert isinstance(chosen, StabilizedAdams)
        run = cf.solve(flow, params, times, rtol=rtol, solver=chosen)
        errors[careful] = float(distance(run.at(0), exact) / norm(exact))
    assert errors[True] < 0.05 * rtol
    assert errors[True] < 0.2 * errors[False]


def test_a_network_that_is_somewhat_stiff_takes_half_the_gradients_of_a_classical_solver():
    problem, params = network()
    flow, times = cf.GradientFlow(problem), [20.0]
    exact = cf.solve(flow, params, times, rtol=1e-12, solver=diffrax.Dopri8()).at(0)
    run = cf.solve(flow, params, times, rtol=1e-6)
    classical = cf.solve(flow, params, times, rtol=1e-6, solver=diffrax.Tsit5())
    assert run.statistics.solver == "StabilizedAdams"
    assert distance(run.at(0), exact) < 1e-6 * norm(exact)
    assert evaluations(run) < 0.5 * evaluations(classical)


def test_a_velocity_that_is_no_number_does_not_stop_the_choice():
    nowhere = cf.GradientFlow(cf.Problem.from_gradient(lambda theta: jnp.nan * theta))
    chosen = choose_solver(None, nowhere, jnp.ones(2), 1e-5, HORIZON)
    assert isinstance(chosen.solver, diffrax.Tsit5)


# --- what it costs --------------------------------------------------------------------------

calls = []


def counted(theta):
    """The gradient of a quadratic with curvatures 1 and 50, which leaves a trace."""
    shape = jax.ShapeDtypeStruct(theta.shape, theta.dtype)
    slope = jnp.array([1.0, 50.0]) * theta
    return jax.pure_callback(lambda value: calls.append(None) or value, shape, slope)


COUNTED = cf.GradientFlow(cf.Problem.from_gradient(counted))
ONES = jnp.ones(2)


def test_a_solver_given_is_used_and_nothing_is_measured():
    given = diffrax.Heun()
    calls.clear()
    chosen = choose_solver(given, COUNTED, ONES, 1e-5, 1000.0)
    assert chosen.solver is given
    assert chosen.evaluations == len(calls) == 0


def test_evaluations_of_the_choice_are_those_made():
    calls.clear()
    chosen = choose_solver(None, COUNTED, ONES, 1e-5, 1.0)
    assert chosen.evaluations == len(calls)
    assert 3 <= len(calls) <= 11


# A classical solver is spared its first evaluation; a stabilized one would have to find out all of
# it itself.
@pytest.mark.parametrize(
    ("horizon", "solver", "spared"),
    [
        (0.2, diffrax.Tsit5(), "one"),
        (1.0, StabilizedAdams(), "all"),
        (160.0, ROCK4(), "all"),
    ],
)
def test_evaluations_of_the_choice_are_counted_with_those_of_the_run(horizon, solver, spared):
    costs, made = [], []
    for named in (None, solver):
        calls.clear()
        run = cf.solve(COUNTED, ONES, [horizon], rtol=1e-5, solver=named)
        assert run.statistics.solver == type(solver).__name__
        costs.append(evaluations(run))
        made.append(len(calls))
    chosen = choose_solver(None, COUNTED, ONES, 1e-5, horizon, careful=False)
    further = chosen.evaluations - 1 if spared == "one" else 0
    assert chosen.evaluations > 1
    assert costs[0] - costs[1] == made[0] - made[1] == further
    # `solve` looks at the field once or twice before it begins.
    assert costs[0] <= made[0] <= costs[0] + 3


def test_an_evaluation_of_the_choice_costs_as_many_gradients_as_the_velocity():
    motion = cf.EquationOfMotion(MILD, 0.01, 1)
    chosen = choose_solver(None, motion, ONES, 1e-5, 1.0)
    costs = [
        evaluations(cf.solve(motion, ONES, [1.0], rtol=1e-5, solver=solver))
        for solver in (None, diffrax.Tsit5())
    ]
    assert motion.gradient_evaluations > 1
    assert costs[0] - costs[1] == motion.gradient_evaluations * (chosen.evaluations - 1) > 0
