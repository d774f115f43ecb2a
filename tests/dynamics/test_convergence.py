"""Whether the series of counter terms converges, on quadratics where every term is known.

With `f = aθ²/2` the terms of the velocity are `(ηa)^m a θ/(m + 1)`, `m = 0, 1, …`.
"""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf

METHODS = ["taylor", "orbit"]


def flow_at(x, order=1, method="taylor", a=2.0):
    """An equation of motion on `aθ²/2` with `ηa = x`."""
    problem = cf.Problem(lambda theta: a * jnp.sum(theta**2) / 2)
    return cf.EquationOfMotion(problem, x / a, order=order, method=method)


def exact_terms(x, count):
    return np.array([x**m / (m + 1) for m in range(count + 1)])


@pytest.mark.parametrize("method", METHODS)
def test_sizes_and_ratios_are_those_of_the_terms(method):
    x, theta = 0.1, 3.0
    convergence = flow_at(x, method=method).convergence(jnp.array(theta), terms=5)
    exact = 2 * theta * exact_terms(x, 5)
    assert convergence.gradient_size == pytest.approx(2 * theta, rel=1e-14)
    np.testing.assert_allclose(convergence.sizes, exact[1:] / (x / 2), rtol=1e-9)
    np.testing.assert_allclose(convergence.ratios, exact[1:] / exact[:-1], rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_small_learning_rate_converges(method):
    convergence = flow_at(0.1, method=method).convergence(jnp.array(1.0), terms=5)
    assert convergence.converging
    assert convergence.best_order == 4
    assert convergence.rounding_order is None
    ratio = np.median([0.1 * (m + 1) / (m + 2) for m in range(5)])
    assert convergence.verdict.startswith(f"converging: each term is about {ratio:.2g} times")
    assert "up to order 4 at least" in convergence.verdict


@pytest.mark.parametrize("method", METHODS)
def test_a_series_that_diverges_later_is_not_called_converging_without_a_word(method):
    # ηa is 0.1 and 1.1: the terms of the second direction grow for ever, from where none is seen.
    problem = cf.Problem(lambda theta: (theta[0] ** 2 + 11 * theta[1] ** 2) / 2)
    flow = cf.EquationOfMotion(problem, 0.1, order=1, method=method)
    convergence = flow.convergence(jnp.array([1.0, 1e-4]), terms=5)
    assert convergence.converging
    assert convergence.verdict == (
        "converging up to order 4, but the ratios of terms grow from 0.05 to "
        f"{convergence.ratios[-1]:.2g}: the series may diverge beyond"
    )
    assert not flow.convergence(jnp.array([1.0, 1e-4]), terms=20).converging


def verdict_of(ratios, rounding_order=None):
    sizes = tuple(np.cumprod(ratios))
    return cf.Convergence(1.0, sizes, ratios, len(ratios) - 1, True, rounding_order, 2e-16).verdict


@pytest.mark.parametrize(
    "ratios",
    [(0.1, 0.3, 0.6, 0.8, 0.95), (0.1, 0.2, 0.3, 0.4, 0.5), (0.7, 0.8, 0.85, 0.9, 0.95)],
)
def test_where_the_ratios_grow_it_says_so(ratios):
    assert f"the ratios of terms grow from {ratios[0]} to {ratios[-1]}:" in verdict_of(ratios)


@pytest.mark.parametrize(
    ("ratios", "rounding_order", "usual"),
    [
        ((0.1, 0.11, 0.12, 0.13, 0.14), None, 0.12),
        ((0.3, 0.3, 0.1, 0.3, 0.3), None, 0.3),
        ((0.95, 0.95, 0.95, 0.95, 0.95), None, 0.95),
        ((1e-6, 3e-6, 1e-9, 0.9, 1.2), 3, 2e-6),
        ((1e-16, 1.0, 1.2), 1, 1e-16),
    ],
)
def test_steady_ratios_and_those_of_rounding_are_no_growth(ratios, rounding_order, usual):
    expected = f"converging: each term is about {usual:.2g} times the one before"
    assert verdict_of(ratios, rounding_order).startswith(expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_large_learning_rate_does_not_converge_at_all(method):
    flow = flow_at(3.0, order=0, method=method)
    convergence = flow.convergence(jnp.array(1.0))
    assert not convergence.converging
    assert convergence.best_order == 0
    assert "may be no better than gradient flow" in convergence.verdict
    assert "smaller learning rate" in convergence.verdict


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("x", [1.15, 1.3])
def test_between_them_the_best_order_leaves_out_the_smallest_term(x, method):
    terms = exact_terms(x, 10)
    best = int(np.argmin(terms[1:]))  # order γ leaves out the term γ + 1 and what follows
    assert 0 < best < 9
    flow = flow_at(x, order=best, method=method)
    convergence = flow.convergence(jnp.array(1.0), terms=10)
    assert not convergence.converging
    assert convergence.best_order == best
    assert f"the terms shrink up to order {best} and grow beyond" in convergence.verdict


@pytest.mark.parametrize("method", METHODS)
def test_asking_for_more_than_the_best_order_warns(method):
    best = int(np.argmin(exact_terms(1.3, 10)[1:]))
    with pytest.warns(
        UserWarning, match=rf"order {best + 1} was asked for, but the series is not converging"
    ):
        flow_at(1.3, order=best + 1, method=method).convergence(jnp.array(1.0), terms=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flow_at(1.3, order=best, method=method).convergence(jnp.array(1.0), terms=10)
        flow_at(0.1, order=4, method=method).convergence(jnp.array(1.0))


def test_orbit_agrees_with_taylor_on_a_quadratic_of_several_dimensions():
    problem = cf.Problem(lambda t: (t["a"] ** 2 + 3 * t["b"] ** 2) / 2, weight_decay=0.1)
    params = {"a": jnp.array(1.0), "b": jnp.array(-2.0)}
    taylor, orbit = (
        cf.EquationOfMotion(problem, 0.1, method=method).convergence(params) for method in METHODS
    )
    np.testing.assert_allclose(taylor.sizes, orbit.sizes, rtol=1e-9)
    assert (taylor.best_order, taylor.converging) == (orbit.best_order, orbit.converging)


@pytest.mark.parametrize("method", METHODS)
def test_at_rest_every_term_vanishes_and_nothing_warns(method):
    convergence = flow_at(3.0, order=4, method=method).convergence(jnp.array(0.0))
    assert convergence.gradient_size == 0
    assert set(convergence.sizes) == {0.0}
    assert convergence.verdict.startswith("at rest")


@pytest.mark.parametrize("learning_rate", [1e-4, 1e-8, 1e-12])
@pytest.mark.parametrize("method", METHODS)
def test_rounding_at_a_tiny_learning_rate_is_no_alarm(method, learning_rate):
    problem = cf.Problem(lambda t: jnp.sum(jnp.cos(t) + t**4), weight_decay=0.1)
    theta = np.array([0.3, 1.7, -0.6])
    flow = cf.EquationOfMotion(problem, learning_rate, order=6, method=method)
    convergence = flow.convergence(jnp.asarray(theta))  # a warning would be an error
    assert convergence.converging
    assert convergence.rounding_order is not None
    slope, curvature = 4 * theta**3 - np.sin(theta), 12 * theta**2 - np.cos(theta)
    first = (slope + 0.1 * theta) * (curvature + 0.1) / 2
    assert convergence.sizes[0] == pytest.approx(np.linalg.norm(first), rel=1e-2)


def test_it_prints_as_a_table_with_a_verdict():
    convergence = flow_at(0.1).convergence(jnp.array(1.0), terms=3)
    lines = str(convergence).splitlines()
    assert len(lines) == 5
    assert lines[1].split() == ["0", "2.000e+00", "0.05"]
    assert lines[-1] == convergence.verdict


def test_by_default_it_looks_two_terms_beyond_the_order_and_at_least_five():
    assert len(flow_at(0.1, order=1).convergence(jnp.array(1.0)).sizes) == 5
    assert len(flow_at(0.1, order=6).convergence(jnp.array(1.0)).sizes) == 8


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_is_told_where_the_counter_terms_drown(method):
    theta = jnp.array(1.0, jnp.float32)
    # The terms are 1, 5e-2, 3e-3, 2.5e-4, 2e-5, 1.7e-6, 1.4e-7 of the gradient; rounding is 1.2e-7,
    # a few times that with its errors, and up to 2^6 times more in differences of gradients.
    convergence = flow_at(0.1, order=2, method=method).convergence(theta, terms=8)
    np.testing.assert_allclose(convergence.ratios[:2], [0.1 / 2, 0.1 * 2 / 3], rtol=1e-2)
    assert convergence.epsilon == pytest.approx(1.19e-7, rel=1e-2)
    rounding_order = convergence.rounding_order
    assert rounding_order is not None
    assert 3 <= rounding_order <= 6
    text = rf"order 7 .* single precision.*order {rounding_order} .* below rounding.*enable_x64"
    with pytest.warns(UserWarning, match=text):
        flow_at(0.1, order=7, method=method).convergence(theta, terms=8)


def test_no_terms_is_refused():
    with pytest.raises(ValueError, match="`terms` must be at least 1, got 0"):
        flow_at(0.1).convergence(jnp.array(1.0), terms=0)
