"""Decay rates: the partial sums of `−log(1 − ηλ)`, and what flows do to a conserved mean."""

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from users import import_as_users_do

(as_users,) = import_as_users_do("counterflow")


@pytest.mark.parametrize(("rate", "decay"), [(0.1, 0.01), (0.5, 0.8), (1e-3, 1e-3)])
def test_partial_sums(rate, decay):
    x = rate * decay
    expected = [x, x + x**2 / 2, x + x**2 / 2 + x**3 / 3, x + x**2 / 2 + x**3 / 3 + x**4 / 4]
    found = [cf.decay_rate(rate, decay, order) for order in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_the_papers_table_1():
    """Columns GF and EoM, and descent in double precision."""
    assert cf.decay_rate(0.1, 0.01, 0) == pytest.approx(1e-3, rel=1e-15)
    assert cf.decay_rate(0.1, 0.01, 1) == pytest.approx(1.0005e-3, rel=1e-15)
    assert cf.decay_rate(1e-3, 1e-3, 1) == pytest.approx(1.0000005e-6, rel=1e-15)
    # The experiment printed, 1.0005003484995967e-3, is that of a learning rate in float32.
    printed = 1.0005003484995967e-3
    assert cf.decay_rate(float(np.float32(0.1)), 0.01) == pytest.approx(printed, rel=1e-11)
    assert abs(cf.decay_rate(0.1, 0.01) / printed - 1) > 1e-9


@pytest.mark.parametrize("x", [0.1, 0.5])
def test_the_limit_is_descent(x):
    exact = cf.decay_rate(1.0, x)
    assert exact == pytest.approx(-np.log(1 - x), rel=1e-14)
    gaps = [exact - cf.decay_rate(1.0, x, order) for order in (0, 1, 5, 20)]
    assert np.all(np.diff(gaps) < 0)
    assert gaps[2] == pytest.approx(sum(x**m / m for m in range(7, 80)), rel=1e-6)
    assert cf.decay_rate(1.0, x, 60) == pytest.approx(exact, rel=1e-15)


def test_a_tiny_rate_keeps_its_digits():
    assert cf.decay_rate(1e-9, 1e-9) == pytest.approx(1e-18 + 5e-37, rel=1e-15)


def test_no_weight_decay_no_decay():
    assert cf.decay_rate(0.1, 0.0) == 0
    assert cf.decay_rate(0.1, 0.0, 3) == 0


@pytest.mark.parametrize("order", range(5))
def test_the_mean_decays_at_this_rate_along_every_flow(order):
    rate, decay = 0.2, 0.7
    problem = cf.Problem(lambda p: jnp.cos(p[1] - p[0]), weight_decay=decay)
    params = jnp.array([1.0, 2.5])
    velocity = cf.EquationOfMotion(problem, rate, order).velocity(params)
    expected = -cf.decay_rate(rate, decay, order) / rate * float(jnp.mean(params))
    assert float(jnp.mean(velocity)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((0.0, 0.1), ValueError, "`learning_rate` must be a positive, finite number, got 0"),
        ((0.1, -1.0), ValueError, "`weight_decay` must be a finite number of at least 0, got -1"),
        ((0.1, 0.1, -1), ValueError, "`order` must be at least 0, got -1: 0 is gradient flow"),
        ((0.1, 0.1, 1.5), TypeError, "`order` must be an integer, got 1.5"),
        ((2.0, 0.5), ValueError, "must be below 1, got 1: from there on descent does not decay"),
        (("a", 0.5), TypeError, "`learning_rate` must be a number"),
    ],
)
def test_bad_input(arguments, error, text):
    with pytest.raises(error, match=text):
        as_users.decay_rate(*arguments)
