"""Nouns are frozen, pytrees, and equal by identity, so that their methods can be compiled."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf

PARAMS = jnp.array([1.0, 2.0])


def problem():
    return cf.Problem(lambda theta, data: jnp.sum(data * theta**4), jnp.ones(2), weight_decay=0.1)


NOUNS = {
    "problem": lambda: problem(),
    "descent": lambda: cf.GradientDescent(problem(), 0.1),
    "flow": lambda: cf.GradientFlow(problem()),
    "motion": lambda: cf.EquationOfMotion(problem(), 0.1, order=2),
}


@pytest.mark.parametrize("name", NOUNS)
def test_a_noun_is_a_pytree_that_comes_back_whole(name):
    noun = NOUNS[name]()
    leaves, structure = jax.tree.flatten(noun)
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(noun)
    for field in dataclasses.fields(noun):
        before, after = getattr(noun, field.name), getattr(again, field.name)
        assert jax.tree.structure(before) == jax.tree.structure(after)
    assert jax.tree.structure(noun) == structure
    assert any("weight_decay" in str(path) for path, _ in jax.tree.leaves_with_path(noun))


@pytest.mark.parametrize("name", NOUNS)
def test_a_noun_is_frozen_and_equal_to_itself_alone(name):
    noun = NOUNS[name]()
    field = dataclasses.fields(noun)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(noun, field, None)
    assert noun == noun
    assert noun != NOUNS[name]()
    assert hash(noun) == hash(noun)


@pytest.mark.parametrize(
    "method",
    [
        problem().loss,
        problem().gradient,
        cf.GradientDescent(problem(), 0.1).step,
        cf.GradientFlow(problem()).velocity,
        cf.EquationOfMotion(problem(), 0.1, order=2).velocity,
        cf.EquationOfMotion(problem(), 0.1, order=2, method="orbit").velocity,
    ],
)
def test_methods_are_compiled_and_mapped_as_they_are(method):
    expected = method(PARAMS)
    np.testing.assert_allclose(jax.jit(method)(PARAMS), expected, rtol=1e-14)
    both = jax.vmap(method)(jnp.stack([PARAMS, 2 * PARAMS]))
    np.testing.assert_allclose(both[0], expected, rtol=1e-14)
    np.testing.assert_allclose(both[1], method(2 * PARAMS), rtol=1e-14)


def test_a_noun_shows_its_numbers_and_the_shapes_of_its_arrays():
    shown = " ".join(repr(cf.EquationOfMotion(problem(), 0.25, order=2)).split())
    for part in ("learning_rate=0.25", "order=2", "method='taylor'", "f64[2]", "weight_decay=0.1"):
        assert part in shown


@pytest.mark.parametrize("dynamics", [cf.GradientFlow, cf.GradientDescent, cf.EquationOfMotion])
def test_a_dynamics_needs_a_problem(dynamics):
    arguments = () if dynamics is cf.GradientFlow else (0.1,)
    with pytest.raises(Exception, match="Problem"):
        dynamics(lambda theta: theta, *arguments)


def test_front_doors_open_inside_jit_when_the_params_are_known():
    expected = cf.counter_term(problem(), PARAMS, 0)
    inside = jax.jit(lambda p: cf.counter_term(p, PARAMS, 0))(problem())
    np.testing.assert_allclose(inside, expected, rtol=1e-14)
    known = problem()
    twice = jax.jit(lambda s: s * cf.counter_term(known, PARAMS, 0))(2.0)
    np.testing.assert_allclose(twice, 2 * expected, rtol=1e-14)
    step = lambda carry, _: (carry + cf.counter_term(known, PARAMS, 0), None)  # noqa: E731
    summed, _ = jax.lax.scan(step, jnp.zeros(2), None, length=3)
    np.testing.assert_allclose(summed, 3 * expected, rtol=1e-14)
