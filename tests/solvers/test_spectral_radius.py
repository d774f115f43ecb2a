"""The spectral radius by power iterations, alone and as steps of ROCK4 use it."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.solvers.rock4 import _REFRESH, ROCK4, after_rejection
from counterflow.solvers.spectral_radius import (
    first_estimate,
    next_estimate,
    next_rough_estimate,
    noise,
    spectral_radius,
)


def test_the_radius_is_found_at_rest_and_on_complex_spectra():
    rotation = jnp.array([[3.0, 40.0], [-40.0, 3.0]])

    def radius_at(matrix, params):
        velocity = lambda y: -matrix @ y  # noqa: E731
        found = spectral_radius(velocity, params, velocity(params), noise(params), 40)
        assert found.settled
        return float(found.radius)

    assert radius_at(jnp.diag(jnp.array([1.0, 30.0])), jnp.zeros(2)) == pytest.approx(30, rel=0.05)
    assert radius_at(rotation, jnp.array([1.0, 1.0])) == pytest.approx(np.hypot(3, 40), rel=0.05)


def test_the_first_estimate_begins_with_the_velocity_and_does_not_depend_on_it():
    rates = jnp.geomspace(0.01, 100.0, 400)

    def estimate_at(params):
        velocity = lambda y: -rates * y  # noqa: E731
        return first_estimate(velocity, params, velocity(params))

    steep, flat = jnp.ones(400), jnp.zeros(400).at[0].set(1.0)
    costs = {}
    for name, params in {"steep": steep, "flat": flat, "at rest": 0 * flat}.items():
        found = estimate_at(params)
        costs[name] = int(found.evaluations)
        assert 80 < float(found.radius) <= 100
    assert costs["steep"] < costs["at rest"]


def test_an_estimate_that_was_cut_off_while_it_grew_is_not_taken_for_one_that_settled():
    rates = jnp.geomspace(1.0, 100.0, 200)
    velocity = lambda y: -rates * y  # noqa: E731
    start, few, many = jnp.zeros(200), 3, 200
    direction = noise(start)
    found = spectral_radius(velocity, start, start, direction, few)
    assert not found.settled
    assert found.radius < 90
    settled = spectral_radius(velocity, start, start, direction, many)
    assert settled.settled
    # A step goes on with it, and with the next one, until it settles; it is raised meanwhile.
    term = diffrax.ODETerm(lambda t, y, args: velocity(y))
    zero, step = jnp.zeros(()), jnp.asarray(0.1)
    state = ROCK4().init(term, zero, step, start, None)
    state = state._replace(direction=direction, radius=jnp.asarray(80.0))
    take = jax.jit(lambda state: ROCK4().step(term, zero, step, start, None, state, False)[3])
    spent = state.evaluations
    for _ in range(10):
        state = take(state)
        assert state.evaluations > spent
        spent = state.evaluations
        if state.age <= 1:
            break
        assert state.age > _REFRESH
    assert state.age == 1
    assert 0.9 * 100 < state.radius <= 100


def test_an_eigenvector_does_not_hide_a_larger_eigenvalue():
    # Exactly along an eigenvector, power iterations would see nothing else, for ever.
    rates = jnp.array([3.0, 100.0])
    term = diffrax.ODETerm(lambda t, y, args: -rates * y)
    zero, step, start = jnp.zeros(()), jnp.asarray(0.1), jnp.zeros(2)
    state = ROCK4().init(term, zero, step, start, None)
    state = state._replace(direction=jnp.array([1.0, 0.0]), radius=jnp.asarray(3.0))
    state = after_rejection(state, state)
    state = ROCK4().step(term, zero, step, start, None, state, False)[3]
    assert float(state.radius) == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize(("place", "once"), [(59, True), (30, False)])
def test_one_iteration_is_enough_where_it_finds_its_direction_again(place, once):
    rates = jnp.geomspace(0.1, 2000.0, 60)

    def velocity(params):
        return -rates * params

    params = jnp.ones(60)
    # That of the largest rate, or one so far from it that its image is another direction.
    direction = jnp.eye(60)[place] + (0 if once else 0.05) * jnp.eye(60)[59]
    arguments = (velocity, params, velocity(params), direction / jnp.linalg.norm(direction))
    rough, fine = next_rough_estimate(*arguments), next_estimate(*arguments)
    assert (int(rough.evaluations) == 1) == once
    assert rough.evaluations <= fine.evaluations >= 2
    assert rough.radius == pytest.approx(2000, rel=0.1)
