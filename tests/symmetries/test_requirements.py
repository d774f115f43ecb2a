"""What the laws ask of a symmetry: exact or told, of the right family, traced or not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from users import import_as_users_do

(as_users,) = import_as_users_do("counterflow")


def half_defined(params):
    return jnp.sqrt(params[0] + 0.4)


def test_what_is_not_a_number_is_no_symmetry():
    problem = cf.Problem(lambda p: jnp.sum(jnp.arctanh(30 * p)))
    params = jnp.array([0.01, 0.02])
    assert np.isnan(cf.Translation("").residual(problem, params))
    # Also where only one of the trials, not the first, is not a number.
    edge = jnp.array([0.01, -0.0118])
    assert np.isnan(cf.Translation("").residual(cf.Problem(half_defined), edge))
    with pytest.raises(ValueError, match="its residual is nan"):
        cf.charge_velocity(problem, cf.Translation(""), params, 0.1)


@pytest.mark.parametrize("at", [0.0, 2.0])
def test_the_identity_must_change_nothing(at):
    def transformation(params, alpha):
        return {"a": alpha * params["a"], "b": params["b"] / alpha}

    problem = cf.Problem(lambda p: (p["a"] * p["b"] - 1) ** 2)
    params = {"a": jnp.array(2.0), "b": jnp.array(3.0)}
    with pytest.raises(ValueError, match="must leave the params as they are at its identity"):
        cf.conservation_law(problem, cf.CustomSymmetry(transformation, at), params, 0.1)


def test_an_approximate_symmetry_is_told_and_used():
    def nearly(params):
        return params[0] / jnp.sqrt(params @ params + 1e-4)

    problem, params = cf.Problem(nearly, weight_decay=0.1), jnp.array([0.6, 0.8])
    with pytest.warns(UserWarning, match="only approximately, its residual is"):
        law = cf.conservation_law(problem, cf.Scale(""), params, 0.1)
    flow = cf.EquationOfMotion(problem, 0.1)
    exact = jax.jvp(cf.Scale("").charge, (params,), (flow.velocity(params),))[1]
    np.testing.assert_allclose(law.rate, exact, rtol=1e-2)


def test_laws_can_be_traced():
    problem = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)
    points = jnp.array([[0.6, 0.8], [1.0, -0.3]])
    rates = jax.vmap(lambda p: cf.charge_velocity(problem, cf.Scale(""), p, 0.1).rate)(points)
    laws = jax.jit(lambda p: cf.conservation_law(problem, cf.Scale(""), p, 0.1).rate)
    np.testing.assert_allclose(rates, [laws(point) for point in points], rtol=1e-12)
    with pytest.raises(TypeError, match="cannot be traced"):
        jax.jit(lambda p: cf.Scale("").residual(problem, p))(points[0])


@pytest.mark.parametrize(
    "function",
    [
        "equilibrium",
        "effective_learning_rate",
        "direction_velocity",
        "perpendicular_velocity",
        "parallel_velocity",
    ],
)
def test_another_family_is_refused_by_name(function):
    problem = as_users.Problem(lambda p: (p["a"] * p["b"] - 1) ** 2, weight_decay=0.1)
    params = {"a": jnp.array(2.0), "b": jnp.array(3.0)}
    arguments = [
        problem,
        as_users.Rescale("a", "b"),
        params,
        0.1,
        *([5] if function == "equilibrium" else []),
    ]
    family = "Translation" if function.startswith("p") else "Scale"
    with pytest.raises(TypeError, match=f"must be a `{family}`, got Rescale"):
        getattr(as_users, function)(*arguments)


def test_single_precision_stays_single():
    problem = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)
    single, double = jnp.array([0.6, 0.8], jnp.float32), jnp.array([0.6, 0.8])
    scale = cf.Scale("")
    for found in (
        cf.charge_velocity(problem, scale, single, 0.1, 2),
        cf.conservation_law(problem, scale, single, 0.1),
        (cf.charge_after_step(problem, scale, single, 0.1),),
        cf.effective_learning_rate(problem, scale, single, 0.1),
    ):
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))
    run = cf.compare_charges(problem, scale, single, 0.1, 20, orders=(1,), records=2)
    exact = cf.compare_charges(problem, scale, double, 0.1, 20, orders=(1,), records=2)
    np.testing.assert_allclose(run.measured, exact.measured, rtol=1e-5)
    np.testing.assert_allclose(run.predicted, exact.predicted, rtol=1e-3)
    settled = cf.equilibrium(problem, scale, single, 0.1, 10)
    np.testing.assert_allclose(
        settled.radius_mean, cf.equilibrium(problem, scale, double, 0.1, 10).radius_mean, rtol=1e-5
    )
