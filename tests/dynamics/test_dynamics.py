"""The velocities and the steps of the three dynamics, against formulas."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf

# f = θ⁴/4 in one dimension: ξ̃_α = c_α θ^{2α+5} (exact rationals).
QUARTIC = cf.Problem(lambda theta: jnp.sum(theta**4) / 4)
QUARTIC_TERMS = (3 / 2, 7 / 2, 39 / 4, 59 / 2, 1849 / 20)
THETA = 0.8


def quartic_velocity(learning_rate, order):
    terms = enumerate(QUARTIC_TERMS[:order])
    counter = sum(learning_rate ** (a + 1) * c * THETA ** (2 * a + 5) for a, c in terms)
    return -(THETA**3) - counter


@pytest.mark.parametrize("order", range(6))
def test_equation_of_motion_has_the_velocity_of_its_series(order):
    flow = cf.EquationOfMotion(QUARTIC, 0.3, order=order)
    velocity = float(flow.velocity(jnp.array(THETA)))
    assert velocity == pytest.approx(quartic_velocity(0.3, order), rel=1e-12)


@pytest.mark.parametrize("method", ["taylor", "lie", "orbit"])
@pytest.mark.parametrize("order", [0, 2])
def test_velocity_and_counter_are_the_two_parts(order, method):
    flow = cf.EquationOfMotion(QUARTIC, 1e-9, order, method)
    velocity, counter = flow.velocity_and_counter(jnp.array(THETA))
    assert float(velocity) == pytest.approx(float(flow.velocity(jnp.array(THETA))), rel=1e-14)
    # ηξ̃_0 = η 3/2 θ⁵; a difference of velocity and gradient, as of `orbit`, has fewer digits.
    expected = 1.5e-9 * THETA**5 if order else 0.0
    assert float(counter) == pytest.approx(expected, rel=1e-5 if method == "orbit" else 1e-7)


@pytest.mark.parametrize("order", range(4))
def test_method_lie_equals_method_taylor(order):
    def loss(theta):
        return jnp.sum(jnp.sin(theta["a"])) * theta["b"] ** 2 + jnp.sum(theta["a"] ** 2)

    params = {"a": jnp.array([0.3, -1.1]), "b": jnp.array(0.7)}
    problem = cf.Problem(loss, weight_decay=0.2)
    taylor, lie = (
        cf.EquationOfMotion(problem, 0.1, order=order, method=method).velocity(params)
        for method in ("taylor", "lie")
    )
    for one, other in zip(jax.tree.leaves(taylor), jax.tree.leaves(lie), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_method_orbit_differs_from_taylor_by_the_next_power_of_the_learning_rate(order):
    def gap(learning_rate):
        taylor, orbit = (
            cf.EquationOfMotion(QUARTIC, learning_rate, order=order, method=method)
            for method in ("taylor", "orbit")
        )
        return abs(float(taylor.velocity(jnp.array(THETA)) - orbit.velocity(jnp.array(THETA))))

    assert np.log2(gap(4e-3) / gap(2e-3)) == pytest.approx(order + 1, abs=0.1)


@pytest.mark.parametrize("method", ["taylor", "lie", "orbit"])
def test_order_zero_is_gradient_flow(method):
    problem = cf.Problem(lambda theta: jnp.sum(jnp.cos(theta)), weight_decay=0.3)
    params = jnp.array([0.2, 1.4])
    expected = np.sin(params) - 0.3 * params
    flow = cf.GradientFlow(problem)
    motion = cf.EquationOfMotion(problem, 0.5, order=0, method=method)
    np.testing.assert_allclose(flow.velocity(params), expected, rtol=1e-14)
    np.testing.assert_allclose(motion.velocity(params), expected, rtol=1e-14)
    assert flow.gradient_evaluations == motion.gradient_evaluations == 1


def test_a_step_of_descent_subtracts_the_gradient_with_weight_decay():
    descent = cf.GradientDescent(cf.Problem(lambda t: jnp.sum(t**4) / 4, weight_decay=0.5), 0.1)
    step = descent.step(jnp.array([2.0, -1.0]))
    np.testing.assert_allclose(step, [2 - 0.1 * (8 + 1), -1 + 0.1 * (1 + 0.5)], rtol=1e-15)
    assert descent.gradient_evaluations == 1


def test_orbit_costs_one_gradient_more_than_its_order():
    costs = [
        cf.EquationOfMotion(QUARTIC, 0.1, order=order, method="orbit").gradient_evaluations
        for order in range(5)
    ]
    assert costs == [1, 2, 3, 4, 5]


def test_velocities_and_steps_work_inside_jit_and_vmap():
    learning_rates = jnp.array([0.1, 0.2, 0.3])

    @jax.jit
    @jax.vmap
    def velocity(learning_rate):
        return cf.EquationOfMotion(QUARTIC, learning_rate, order=2).velocity(jnp.array(THETA))

    @jax.jit
    @jax.vmap
    def step(learning_rate):
        return cf.GradientDescent(QUARTIC, learning_rate).step(jnp.array(THETA))

    expected = [quartic_velocity(eta, 2) for eta in (0.1, 0.2, 0.3)]
    np.testing.assert_allclose(velocity(learning_rates), expected, rtol=1e-13)
    np.testing.assert_allclose(step(learning_rates), THETA - learning_rates * THETA**3, rtol=1e-14)


def test_a_dynamics_is_a_pytree_that_passes_through_jit_without_compiling_anew():
    traces = []

    @eqx.filter_jit
    def velocity(flow, params):
        traces.append(flow.order)
        return flow.velocity(params)

    for learning_rate in (0.1, 0.2):
        flow = cf.EquationOfMotion(QUARTIC, learning_rate, order=1)
        value = float(velocity(flow, jnp.array(THETA)))
        assert value == pytest.approx(quartic_velocity(learning_rate, 1), rel=1e-13)
    assert traces == [1]


def test_the_three_dynamics_share_one_interface():
    descent, flow = cf.GradientDescent(QUARTIC, 0.1), cf.GradientFlow(QUARTIC)
    motion = cf.EquationOfMotion(QUARTIC, 0.1)
    assert all(isinstance(dynamics, cf.Dynamics) for dynamics in (descent, flow, motion))
    assert isinstance(flow, cf.Flow)
    assert isinstance(motion, cf.Flow)
    assert not isinstance(descent, cf.Flow)
    assert (motion.order, motion.method) == (1, "taylor")
