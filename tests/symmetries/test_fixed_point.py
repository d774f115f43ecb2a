"""Corollaries 5.1 and 5.2: closed forms of the equilibrium, and the exact one."""

from math import cos, sqrt

import numpy as np
import pytest

import counterflow as cf

VALUES = [(0.5, 0.5, 1.0), (0.1, 0.01, 3.0), (1.0, 1.2, 0.2)]


@pytest.mark.parametrize(("rate", "decay", "c"), VALUES)
def test_the_exact_radius_is_a_fixed_point_of_descent(rate, decay, c):
    square = cf.equilibrium_radius(rate, decay, c).exact ** 2
    after = (1 - rate * decay) ** 2 * square + rate**2 * c**2 / square
    assert after == pytest.approx(square, rel=1e-14)


@pytest.mark.parametrize(("rate", "decay", "c"), VALUES)
def test_the_papers_radius_is_a_fixed_point_of_its_equation(rate, decay, c):
    """Corollary 5.1 from Theorem 5.1, `−2(λ + ηλ²/2)r² + ηc²/r² = 0`."""
    found = cf.equilibrium_radius(rate, decay, c)
    square = found.equation_of_motion**2
    growth = rate * c**2 / square
    assert 2 * (decay + rate * decay**2 / 2) * square == pytest.approx(growth, rel=1e-14)
    assert found.leading**2 == pytest.approx(sqrt(rate / (2 * decay)) * c, rel=1e-14)


@pytest.mark.parametrize(("rate", "decay", "c"), VALUES)
def test_the_exact_angle_is_that_of_a_step_from_the_exact_radius(rate, decay, c):
    radius = cf.equilibrium_radius(rate, decay, c).exact
    force = c / radius
    kept, moved = (1 - rate * decay) * radius, rate * force
    assert np.hypot(kept, moved) == pytest.approx(radius, rel=1e-14)
    assert cf.equilibrium_angle(rate, decay).exact == pytest.approx(
        np.arctan2(moved, kept), rel=1e-12
    )


def test_three_angles():
    """To leading order, by the paper's expansion with its sign corrected, and exactly."""
    x = 0.3
    leading, expanded, exact = cf.equilibrium_angle(0.5, 2 * x)
    assert leading == pytest.approx(sqrt(2 * x), rel=1e-15)
    assert cos(expanded) == pytest.approx((1 - x) / (1 + x**2 / 2), rel=1e-14)
    assert cos(exact) == pytest.approx(1 - x, rel=1e-14)
    tiny = cf.equilibrium_angle(1e-3, 1e-2)
    assert tiny.exact / tiny.leading - 1 == pytest.approx(1e-5 / 12, rel=1e-3)


def test_a_small_angle_keeps_its_digits():
    angles = cf.equilibrium_angle(1e-8, 1e-8)
    expected = np.sqrt(2) * 1e-8  # all three agree to ηλ = 1e-16
    np.testing.assert_allclose(angles, [expected] * 3, rtol=1e-14)
