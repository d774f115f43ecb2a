"""ROCK4: its order, its stability and its estimate of stiffness, by measurement."""

from functools import partial

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import counterflow as cf
from counterflow.problem.tree import distance, norm
from counterflow.solvers import rock4
from counterflow.solvers.flow import Integrator, flow_to, start_flow
from counterflow.solvers.rock4 import ROCK4
from counterflow.solvers.rock4_coefficients import RIPPLE, STAGES, coefficients
from zoo import network


def advance(method, function, state, step):
    """One step of the method as its coefficients say, in NumPy; the end and the error estimate."""
    before, here = state, state
    for scale, keep, further in method.recurrence:
        before, here = here, scale * step * function(here) + keep * here + further * before
    a21, a31, a32, a41, a42, a43 = step * method.matrix
    k1 = function(here)
    k2 = function(here + a21 * k1)
    k3 = function(here + a31 * k1 + a32 * k2)
    k4 = function(here + a41 * k1 + a42 * k2 + a43 * k3)
    end = here + step * np.tensordot(method.weights, [k1, k2, k3, k4], 1)
    return end, step * np.tensordot(method.error, [k1, k2, k3, k4, function(end)], 1)


def field(state):
    """A field whose derivatives of all orders meet in its trees."""
    x, y = state
    return np.array([-x * y - 0.3 * x**2, -x * np.sin(y) + x**2])


@partial(jax.jit, static_argnums=0)
def steps_of_rock4(function, start, step, count, stages):
    """Where so many steps of ROCK4 with a number of stages lead, and its last error estimate."""
    term = diffrax.ODETerm(lambda t, y, args: function(y))
    zero = jnp.zeros(())
    # The radius for which a step takes that many stages; it is not to be estimated.
    radius = jnp.asarray(rock4._table().reach)[stages] / (1.1001 * step)

    def body(_, carry):
        y, _, state = carry
        fixed = state._replace(radius=radius, age=jnp.zeros_like(state.age))
        y, error, _, state, _ = ROCK4().step(term, zero, step, y, None, fixed, False)
        return y, error, state

    first = ROCK4().init(term, zero, step, start, None)
    y, error, state = jax.lax.fori_loop(0, count, body, (start, start, first))
    return y, error, state.evaluations - first.evaluations


@pytest.mark.parametrize("stages", [5, 9, 20, 90])
def test_order_four_and_an_estimate_of_order_three(stages):
    method, start = coefficients(stages), np.array([1.0, 0.5])
    ends, estimates = [], []
    for count in (10, 20, 40):
        state, largest = start, 0.0
        for _ in range(count):
            state, error = advance(method, field, state, 0.5 / count)
            largest = max(largest, float(np.linalg.norm(error)))
        ends.append(state)
        estimates.append(largest)
        # The solver itself does what its coefficients say.
        found = steps_of_rock4(_stacked, start, 0.5 / count, count, STAGES.index(stages))
        np.testing.assert_allclose(found[0], state, rtol=1e-13)
        np.testing.assert_allclose(found[1], error, rtol=1e-5, atol=1e-16)
        assert found[2] == count * stages
    problem = cf.Problem.from_gradient(lambda z: -_stacked(z))
    exact = cf.solve(cf.GradientFlow(problem), jnp.asarray(start), [0.5], rtol=1e-13).at(0)
    errors = [np.linalg.norm(end - np.asarray(exact)) for end in ends]
    assert np.log2(errors[1] / errors[2]) == pytest.approx(4, abs=0.1)
    # The estimate of one step is of the order after the order of the embedded solution.
    assert np.log2(estimates[1] / estimates[2]) == pytest.approx(4, abs=0.1)
    assert estimates[2] > errors[2]


def _stacked(state):
    x, y = state
    return jnp.stack([-x * y - 0.3 * x**2, -x * jnp.sin(y) + x**2])


RATES = np.geomspace(0.01, 1.0, 40)


def _decay(state):
    return -RATES * state


@pytest.mark.parametrize("stages", [5, 9, 20, 90])
def test_an_energy_decays_with_every_step_as_long_as_stages_allow(stages):
    step = coefficients(stages).reach / 1.1001
    state, before = jnp.ones(40), np.inf
    for _ in range(5):
        state, _, _ = steps_of_rock4(_decay, state, step, 1, STAGES.index(stages))
        energy = float(np.sum(RATES * np.square(state)))
        assert energy < before
        before = energy


@pytest.mark.parametrize("stages", STAGES)
def test_stable_as_far_as_it_says_and_not_much_farther(stages):
    method = coefficients(stages)
    assert method.reach == pytest.approx(0.35 * stages**2, rel=0.02 if stages > 20 else 0.33)

    def growth(products):
        return np.abs(advance(method, lambda y: products * y, np.ones_like(products), 1.0)[0])

    inside = -np.linspace(0.01, 1, 20_000) * method.reach
    factors = growth(inside)
    assert factors.max() <= 1
    beyond = np.argmax(factors < 0.5)
    assert factors[beyond:].max() <= RIPPLE + 1e-9
    assert growth(np.array([-1.2 * method.reach]))[0] > 1
    # Some room beside the axis, for spectra that are slightly complex; steps reach 1/1.1 of it.
    assert growth(0.9 * inside[500:] + 0.05j * method.reach / stages).max() <= 1


def test_a_linear_flow_decays_and_agrees_with_its_solution():
    rates = jnp.geomspace(0.1, 2000.0, 60)
    problem = cf.Problem(lambda theta: jnp.sum(rates * theta**2) / 2)
    start = jnp.ones(60)
    times = [0.0, 0.5, 1.0, 2.0, 5.0]
    run = cf.solve(cf.GradientFlow(problem), start, times, rtol=1e-7, solver=ROCK4())
    exact = np.exp(-np.outer(times, rates))
    np.testing.assert_allclose(run.params, exact, atol=1e-5)
    sizes = np.linalg.norm(run.params, axis=1)
    assert np.all(np.diff(sizes) < 0)
    tsit5 = cf.solve(cf.GradientFlow(problem), start, times, rtol=1e-7, solver=diffrax.Tsit5())
    assert run.statistics.solver == "ROCK4"
    assert 4 * run.statistics.gradient_evaluations < tsit5.statistics.gradient_evaluations


def test_agrees_with_dopri8_on_a_network():
    problem, params = network()
    for flow in (cf.GradientFlow(problem), cf.EquationOfMotion(problem, 0.1, 1)):
        exact = cf.solve(flow, params, [3.0], rtol=1e-11, solver=diffrax.Dopri8()).at(0)
        errors = []
        for tolerance in (1e-5, 1e-8):
            found = cf.solve(flow, params, [3.0], rtol=tolerance, solver=ROCK4()).at(0)
            errors.append(float(distance(found, exact) / norm(exact)))
        assert errors[0] < 1e-5
        assert errors[1] < 1e-8


def test_evaluations_are_counted_one_by_one():
    count = 0

    def gradient(theta):
        def called(value):
            nonlocal count
            count += 1
            return value

        shape = jax.ShapeDtypeStruct(theta.shape, theta.dtype)
        return jax.pure_callback(called, shape, jnp.array([1.0, 50.0]) * theta)

    problem = cf.Problem.from_gradient(gradient)
    flow = cf.GradientFlow(problem)
    run = cf.solve(flow, jnp.array([1.0, 1.0]), [0.3, 2.0], rtol=1e-6, solver=ROCK4())
    counted = run.statistics.gradient_evaluations
    # `solve` looks at the field once or twice before it begins.
    assert counted <= count <= counted + 3


def test_steps_along_a_network_are_stable_for_the_exact_top_eigenvalue_and_not_longer():
    # Over this time the top eigenvalue falls by a sixth, and then grows sixtyfold.
    problem, params = network()
    flow, horizon = cf.GradientFlow(problem), jnp.asarray(20.0)
    flat, unravel = ravel_pytree(params)
    hessian = jax.jit(jax.jacfwd(lambda y: ravel_pytree(problem.gradient(unravel(y)))[0]))
    integrator = Integrator(ROCK4(), 1e-2, 1e-4, flat.dtype)
    state, reach = start_flow(flow, integrator, params), rock4._table().reach
    ratios = []
    while state.time < horizon:
        here = state
        once = here.accepted + here.rejected + 1
        state, _ = flow_to(flow, integrator, here, horizon, horizon, once)
        state = eqx.tree_at(lambda s: s.code, state, jnp.zeros_like(state.code))
        if state.rejected > here.rejected:
            continue
        step, radius = float(state.time - here.time), float(state.solver_state.radius)
        exact = np.abs(np.linalg.eigvalsh(hessian(ravel_pytree(here.params)[0]))).max()
        taken = reach[np.searchsorted(reach, rock4._SAFETY * radius * step)]
        assert exact * step <= taken
        if taken > reach[0]:
            ratios.append(radius / exact)
    # Where stages depend on it, the estimate is not too large either.
    assert len(ratios) > 10
    assert max(ratios) < 1.05


# --- other spectra, other loops ---------------------------------------------------------------


def non_normal():
    """Rates from 1 to 2000, and every direction driven by the faster ones."""
    generator = np.random.default_rng(0)
    size = 20
    rates = np.geomspace(1, 2000, size)
    driven = 0.3 * np.triu(generator.normal(size=(size, size)), 1) * rates
    rotation, _ = np.linalg.qr(generator.normal(size=(size, size)))
    return rotation @ (np.diag(rates) + driven) @ rotation.T


def heavy_ball():
    """Friction 200 and curvatures up to a little more than critical: the fastest ones swing."""
    friction, curvatures = 200.0, np.geomspace(10, 1.05 * 100.0**2, 10)
    unit = 100.0  # of the velocities
    one = np.eye(len(curvatures))
    return np.block([[0 * one, -unit * one], [np.diag(curvatures) / unit, friction * one]])


@pytest.mark.parametrize("matrix", [non_normal(), heavy_ball()], ids=["non-normal", "heavy ball"])
def test_spectra_that_are_neither_normal_nor_real_agree_with_the_exponential(matrix):
    eigenvalues = np.linalg.eigvals(matrix)
    assert np.linalg.norm(matrix, 2) > 1.2 * np.abs(eigenvalues).max()
    flow = cf.GradientFlow(cf.Problem.from_gradient(lambda y: jnp.asarray(matrix) @ y))
    start, times = jnp.ones(len(matrix)), [0.1, 1.0]
    run = cf.solve(flow, start, times, rtol=1e-6, solver=cf.ROCK4())
    for record, time in enumerate(times):
        exact = jax.scipy.linalg.expm(-time * jnp.asarray(matrix)) @ start
        assert float(distance(run.at(record), exact)) < 1e-5 * float(norm(exact))
    assert run.statistics.rejected_steps < 0.2 * run.statistics.accepted_steps


def test_diffeqsolve_runs_it_and_reads_records_off_its_steps_from_the_first_on():
    rates = jnp.geomspace(0.5, 3000.0, 10)
    times = jnp.array([1e-4, 3e-4, 0.1, 0.5, 1.0])
    done = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: -rates * y),
        ROCK4(),
        0.0,
        1.0,
        4e-4,
        jnp.ones(10),
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-7),
    )
    assert done.ys is not None
    np.testing.assert_allclose(done.ys, np.exp(-np.outer(times, rates)), atol=2e-4)
    np.testing.assert_allclose(done.ys[-1], np.exp(-rates), atol=1e-6)
    assert done.stats["num_steps"] < 200  # Tsit5 would need 900 to be stable


def test_a_step_too_long_for_all_methods_is_refused():
    problem = cf.Problem(lambda theta: 1e6 * jnp.sum(theta**2) / 2)
    run = cf.solve(cf.GradientFlow(problem), jnp.ones(2), [0.1], rtol=1e-3, solver=ROCK4())
    assert run.status == cf.Status.COMPLETED
    assert float(jnp.max(jnp.abs(run.at(0)))) < 1e-3
