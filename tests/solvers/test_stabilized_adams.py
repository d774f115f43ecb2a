"""The stabilized Adams solver: as accurate as asked, stable, thrifty, and honest about its cost."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import expm

import counterflow as cf
from counterflow.problem.tree import distance, norm
from counterflow.solvers.flow import Integrator, flow_to, start_flow
from counterflow.solvers.stabilized_adams import StabilizedAdams
from zoo import network

RATES = jnp.geomspace(0.05, 20.0, 30)
LINEAR = cf.GradientFlow(cf.Problem(lambda theta: jnp.sum(RATES * theta**2) / 2))


def run(flow, start, times, rtol, solver=None):
    return cf.solve(flow, start, times, rtol=rtol, solver=solver or StabilizedAdams())


@pytest.mark.parametrize("rtol", [1e-3, 1e-5, 1e-7, 1e-9, 1e-11])
def test_a_linear_flow_is_as_accurate_as_asked_for_at_every_record(rtol):
    times = np.linspace(0.01, 30, 77)
    found = run(LINEAR, jnp.ones(30), times, rtol)
    exact = np.exp(-np.outer(times, RATES))
    assert np.max(np.abs(found.params - exact)) < rtol


def test_it_costs_one_evaluation_a_step_and_a_few_for_the_spectral_radius():
    cost = run(LINEAR, jnp.ones(30), [30.0], 1e-6).statistics
    assert cost.solver == "StabilizedAdams"
    attempts = cost.accepted_steps + cost.rejected_steps
    assert 0 < cost.gradient_evaluations - attempts < 0.2 * attempts


calls = []


def counted(theta):
    shape = jax.ShapeDtypeStruct(theta.shape, theta.dtype)
    return jax.pure_callback(lambda v: calls.append(None) or v, shape, RATES * theta)


def test_evaluations_are_counted_one_by_one():
    flow = cf.GradientFlow(cf.Problem.from_gradient(counted))
    integrator = Integrator(StabilizedAdams(), 1e-5, 1e-7, jnp.float64)
    calls.clear()
    state = start_flow(flow, integrator, jnp.ones(30))
    end = jnp.asarray(10.0)
    state, _ = flow_to(flow, integrator, state, end, end, jnp.asarray(10_000, jnp.int32))
    jax.block_until_ready(state)
    assert len(calls) == 1 + int(state.solver_state.evaluations)


@pytest.mark.parametrize("order", [0, 1])
def test_agrees_with_dopri8_on_a_network(order):
    problem, params = network()
    flow = cf.EquationOfMotion(problem, 0.1, order) if order else cf.GradientFlow(problem)
    exact = run(flow, params, [8.0], 1e-12, diffrax.Dopri8()).at(0)
    errors = [
        float(distance(run(flow, params, [8.0], rtol).at(0), exact) / norm(exact))
        for rtol in (1e-4, 1e-6, 1e-8, 1e-10)
    ]
    for rtol, error in zip((1e-4, 1e-6, 1e-8, 1e-10), errors, strict=True):
        assert error < rtol


def test_the_error_is_in_proportion_to_the_tolerance():
    # A method of variable order: a hundredth of the tolerance is a hundredth of the error.
    problem, params = network()
    flow = cf.GradientFlow(problem)
    exact = run(flow, params, [5.0], 1e-13, diffrax.Dopri8()).at(0)
    tolerances = np.array([1e-4, 1e-6, 1e-8, 1e-10])
    errors = [float(distance(run(flow, params, [5.0], rtol).at(0), exact)) for rtol in tolerances]
    slope = np.polyfit(np.log(tolerances), np.log(errors), 1)[0]
    assert 0.85 < slope < 1.15


def test_an_energy_decays_at_every_record():
    times = np.linspace(0, 20, 400)
    found = run(LINEAR, jnp.ones(30), times, 1e-4).params
    energies = np.sum(np.asarray(RATES) * np.asarray(found) ** 2, axis=1)
    assert np.all(np.diff(energies) < 0)


@pytest.mark.parametrize(
    "matrix",
    [
        jnp.array([[1.0, 30.0], [0.0, 2.0]]),  # far from normal
        jnp.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 40.0]]),  # complex and slow
        jnp.array([[30.0, 6.0], [-6.0, 30.0]]),  # complex and fast
        jnp.array([[0.0, 1.0], [-1.0, 0.0]]),  # nothing decays
    ],
    ids=["not normal", "slow spiral", "fast spiral", "circle"],
)
def test_spectra_that_are_neither_normal_nor_real_agree_with_the_exponential(matrix):
    flow = cf.GradientFlow(cf.Problem.from_gradient(lambda theta: matrix @ theta))
    start, time = jnp.ones(len(matrix)), 3.0
    found = run(flow, start, [time], 1e-7)
    exact = expm(-time * matrix) @ start
    assert jnp.linalg.norm(found.at(0) - exact) < 1e-6
    assert found.statistics.gradient_evaluations < 2_000


def test_a_radius_that_grows_on_the_way_is_noticed():
    # The curvature in y grows from 1 to 2000 while x goes from 0 to 1.
    def loss(theta):
        x, y = theta
        return -x + (1 + 2000 * x**4) * y**2 / 2

    flow = cf.GradientFlow(cf.Problem(loss))
    found = run(flow, jnp.array([0.0, 1e-3]), [1.0], 1e-6)
    exact = run(flow, jnp.array([0.0, 1e-3]), [1.0], 1e-11, diffrax.Kvaerno5())
    assert found.status == cf.Status.COMPLETED
    assert jnp.linalg.norm(found.at(0) - exact.at(0)) < 1e-6


@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-8, 1e-10])
def test_diffeqsolve_runs_it_with_its_own_control_of_the_step(rtol):
    # Orders and steps are chosen by tolerances that have to be those of the controller.
    term = diffrax.ODETerm(lambda t, y, args: -RATES * y)
    done = diffrax.diffeqsolve(
        term,
        StabilizedAdams(rtol=rtol, atol=rtol / 100),
        0.0,
        5.0,
        None,
        jnp.ones(30),
        saveat=diffrax.SaveAt(ts=jnp.linspace(0.1, 5, 9)),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol / 100),
        max_steps=10_000,
    )
    exact = np.exp(-np.outer(np.linspace(0.1, 5, 9), RATES))
    assert np.max(np.abs(done.ys - exact)) < 10 * rtol
    assert done.stats["num_steps"] < 1_000


def test_at_rest_it_stays_there_in_few_steps():
    found = run(LINEAR, jnp.zeros(30), [50.0], 1e-6)
    assert np.all(found.at(0) == 0)
    assert found.statistics.accepted_steps < 1000


def test_half_the_gradients_of_the_best_classical_solver_on_a_stiff_valley():
    start = jnp.ones(30)
    costs = [
        run(LINEAR, start, [30.0], 1e-6, solver).statistics.gradient_evaluations
        for solver in (StabilizedAdams(), diffrax.Tsit5(), diffrax.Dopri8())
    ]
    assert costs[0] < 0.5 * min(costs[1:])


def test_what_grows_from_near_the_absolute_tolerance_asks_for_a_smaller_one():
    # Out of a saddle, what is missed at the start grows with what grows. docs/cost.md says so.
    height, end, rtol = 1e-7, 17.0, 1e-6
    well = cf.Problem(lambda y: y[0] ** 4 / 4 - y[0] ** 2 / 2 + 10 * y[1] ** 2)
    grown = height * np.exp(end)
    exact = grown / np.sqrt(1 + grown**2 - height**2)

    def error(atol, solver):
        start = jnp.array([height, 1.0])
        found = cf.solve(cf.GradientFlow(well), start, [end], rtol=rtol, atol=atol, solver=solver)
        return abs(float(found.params[-1, 0]) - exact)

    loose, tight, tighter = (error(atol, StabilizedAdams()) for atol in (1e-8, 1e-10, 1e-12))
    assert loose > 100 * rtol
    assert tight < loose / 50
    assert tighter < rtol
    # Stability keeps the steps of a classical solver shorter than that, here.
    assert error(1e-8, diffrax.Tsit5()) < 1e-8
