"""The rate of change of charges at every order, and their exact law under one step of descent."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo
from counterflow.counter_terms import taylor
from counterflow.problem.tree import add_scaled
from invariant import LEARNING_RATE, PARAMS, PROBLEM, SYMMETRIES, WEIGHT_DECAY, exact_rate
from users import import_as_users_do

(as_users,) = import_as_users_do("counterflow")
PER_UNIT = [name for name in SYMMETRIES if "unit" in name]
QUADRATIC = [name for name in SYMMETRIES if "translation" not in name]


ORDERS = range(5)


@cache
def velocity_of(order):
    """The velocity of the flow, cut off after `order` counter terms."""
    velocity = jax.tree.map(jnp.negative, PROBLEM.gradient(PARAMS))
    terms = cf.counter_terms(PROBLEM, PARAMS, ORDERS[-1])
    for power, term in enumerate(terms[:order], start=1):
        velocity = add_scaled(velocity, -(LEARNING_RATE**power), term)
    return velocity


@cache
def charge_velocity(name, order):
    return cf.charge_velocity(PROBLEM, SYMMETRIES[name], PARAMS, LEARNING_RATE, order)


# --- along flows ----------------------------------------------------------------------------


def decay_of(name, order):
    degree = 1 if "translation" in name else 2
    rate = cf.decay_rate(LEARNING_RATE, WEIGHT_DECAY, order) / LEARNING_RATE
    return -degree * rate * np.asarray(SYMMETRIES[name].charge(PARAMS))


CASES = [*[(name, 4) for name in PER_UNIT], ("scale per unit", 0), ("scale per unit", 2)]
CASES += [(name, 2 if name == "scale" else 1) for name in SYMMETRIES if name not in PER_UNIT]


@pytest.mark.parametrize(("name", "order"), CASES)
def test_the_rate_is_that_of_the_charge(name, order):
    found = charge_velocity(name, order)
    assert found.gradient_terms.shape == (order, *SYMMETRIES[name].charge(PARAMS).shape)
    expected = exact_rate(SYMMETRIES[name], PARAMS, velocity_of(order))
    np.testing.assert_allclose(found.rate, expected, rtol=1e-10)
    np.testing.assert_allclose(found.decay, decay_of(name, order), rtol=1e-13)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PER_UNIT)
def test_the_first_terms_are_those_of_the_lower_orders(name, order):
    terms = charge_velocity(name, 4).gradient_terms[:order]
    expected = exact_rate(SYMMETRIES[name], PARAMS, velocity_of(order))
    np.testing.assert_allclose(decay_of(name, order) + terms.sum(0), expected, rtol=1e-10)


def test_a_lower_order_has_the_same_terms():
    two, four = (charge_velocity("scale per unit", order).gradient_terms for order in (2, 4))
    np.testing.assert_allclose(two, four[:2], rtol=1e-9)


def test_the_loss_does_not_move_what_is_translated():
    """Theorem 5.2: the sum of weights decays, whatever the gradient."""
    terms = charge_velocity("translation per unit", 4).gradient_terms
    assert np.max(np.abs(terms)) < 1e-15 * np.max(np.abs(PARAMS["shifted"]))


# --- the terms in closed form ---------------------------------------------------------------


def force_charge(name):
    """`p`, the charge with ∇f in place of θ."""
    return lambda params: SYMMETRIES[name].charge(PROBLEM.loss_gradient(params))


@pytest.mark.parametrize("name", ["scale", "scale per unit"])
def test_theorem_5_1(name):
    """At order 1, `(η/r²) ‖∇_A f(θ̂_A + θ_{A^c})‖²`."""
    scale = SYMMETRIES[name]
    assert isinstance(scale, cf.Scale)
    there = np.asarray(PROBLEM.loss_gradient(scale.on_sphere(PARAMS))["scaled"])
    axes = 0 if "unit" in name else None
    expected = LEARNING_RATE * np.sum(there**2, axis=axes) / scale.charge(PARAMS)
    assert np.min(expected) > 1e-6
    found = charge_velocity(name, 4 if "unit" in name else 2).gradient_terms[0]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_second_order_of_a_scale():
    """`½η² ((∇f + λθ_{A^c})·∇) p`, which the paper's decay rate at γ = 2 leaves out."""
    gradient = PROBLEM.loss_gradient(PARAMS)
    outside = PARAMS | {"scaled": jnp.zeros_like(PARAMS["scaled"])}
    along = add_scaled(gradient, WEIGHT_DECAY, outside)
    change = jax.jvp(force_charge("scale"), (PARAMS,), (along,))[1]
    found = charge_velocity("scale", 2).gradient_terms[1]
    np.testing.assert_allclose(found, LEARNING_RATE**2 / 2 * change, rtol=1e-10)


def test_every_order_against_the_generating_function():
    """`η (1 − ηλ)^{−2} B(ηL − 2 log(1 − ηλ)) p` with `B(z) = z/(e^z − 1)`, in powers of η."""
    orders, decay = 3, WEIGHT_DECAY
    bernoulli = (1.0, -1 / 2, 1 / 12)  # B_m / m!: z² is enough for η³
    logarithm = [0.0, *(2 * decay**m / m for m in range(1, orders))]  # −2 log(1 − ηλ)
    inverse_square = [(m + 1) * decay**m for m in range(orders)]  # (1 − ηλ)^{−2}
    fields = [
        lambda params, m=m: taylor.counter_terms(PROBLEM.gradient, params, m)[m]
        for m in range(orders - 1)
    ]  # L = F·∇ with F = −Σ η^m fields[m]

    def times(series):
        """A series of functions of θ, times `z = ηL − 2 log(1 − ηλ)`."""

        def coefficient(power):
            def value(params):
                parts = [logarithm[power - i] * series[i](params) for i in range(power)]
                for i in range(power):
                    vector = fields[power - 1 - i](params)
                    parts.append(-jax.jvp(series[i], (params,), (vector,))[1])
                return sum(parts) if parts else 0 * series[0](params)

            return value

        return [coefficient(power) for power in range(orders)]

    def gradient_terms(name, params):
        p = force_charge(name)
        series = [p, *[lambda params: 0 * p(params)] * (orders - 1)]
        total = [0.0] * orders
        for weight in bernoulli:
            values = [function(params) for function in series]
            total = [t + weight * v for t, v in zip(total, values, strict=True)]
            series = times(series)
        return [
            LEARNING_RATE ** (power + 1)
            * sum(inverse_square[power - i] * total[i] for i in range(power + 1))
            for power in range(orders)
        ]

    names = ("scale per unit", "rescale per unit")
    expected = zoo.jit_quickly(lambda params: [gradient_terms(name, params) for name in names])(
        PARAMS
    )
    for name, values in zip(names, expected, strict=True):
        found = charge_velocity(name, 4).gradient_terms
        for power in range(orders):
            scale = np.max(np.abs(values[power]))
            np.testing.assert_allclose(
                found[power],
                values[power],
                rtol=1e-10,
                atol=1e-12 * scale,
                err_msg=f"η^{power + 1}",
            )


# --- one step of descent --------------------------------------------------------------------


@pytest.mark.parametrize("name", SYMMETRIES)
def test_the_charge_after_a_step(name):
    symmetry = SYMMETRIES[name]
    after = cf.GradientDescent(PROBLEM, LEARNING_RATE).step(PARAMS)
    predicted = cf.charge_after_step(PROBLEM, symmetry, PARAMS, LEARNING_RATE)
    np.testing.assert_allclose(predicted, symmetry.charge(after), rtol=1e-13)
    kept = (1 - LEARNING_RATE * WEIGHT_DECAY) ** (2 if name in QUADRATIC else 1)
    alone = kept * symmetry.charge(PARAMS)
    if name in QUADRATIC:  # the gradient matters
        assert np.max(np.abs(alone / predicted - 1)) > 1e-6
    else:
        np.testing.assert_array_equal(predicted, alone)


# --- bad input ------------------------------------------------------------------------------

TWIN = cf.CustomSymmetry(
    lambda params, alpha: params | {"scaled": alpha * params["scaled"]}, at=1.0
)


@pytest.mark.parametrize("function", [cf.charge_velocity, cf.charge_after_step])
def test_the_charge_must_be_known(function):
    text = r"for Translation, Scale and Rescale, got CustomSymmetry\(.*\): `conservation_law` and"
    with pytest.raises(TypeError, match=text):
        function(PROBLEM, TWIN, PARAMS, LEARNING_RATE)


@pytest.mark.parametrize("function", [cf.charge_velocity, cf.charge_after_step])
def test_the_loss_must_be_invariant(function):
    with pytest.raises(ValueError, match=r"Scale\('first'\) must leave the loss unchanged"):
        function(PROBLEM, cf.Scale("first"), PARAMS, LEARNING_RATE)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((-0.1,), ValueError, "`learning_rate` must be a positive, finite number, got -0.1"),
        ((0.1, -1), ValueError, "`order` must be at least 0, got -1: 0 is gradient flow, 1 the"),
        ((0.1, 1.0), TypeError, "`order` must be an integer, got 1.0 of type float"),
    ],
)
def test_bad_numbers(arguments, error, text):
    problem = as_users.Problem(lambda p: p[0] / jnp.sqrt(p @ p))
    with pytest.raises(error, match=text):
        as_users.charge_velocity(problem, as_users.Scale(""), jnp.ones(2), *arguments)
