"""Adams methods fitted to their history: order, error estimates, stability, on any steps."""

import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.solvers.fitted_adams import LONGEST, MEMBERS, fits, reaches

# Times of past slopes, the latest first: equal steps, steps that grow, steps that shrink.
HISTORIES = {
    "equal": -np.arange(LONGEST, dtype=float),
    "growing": -np.cumsum([0, *0.8 ** np.arange(LONGEST - 1)]),
    "shrinking": -np.cumsum([0, *1.2 ** np.arange(LONGEST - 1)]),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_polynomials_below_the_order_are_integrated_exactly_and_have_no_error(history):
    times = HISTORIES[history]
    steps, errors = fits(times, LONGEST)
    for member, (order, window) in enumerate(MEMBERS):
        assert np.all(steps[member, window:] == 0)
        assert np.all(errors[member, window + 1 :] == 0)
        for degree in range(order):
            terms = steps[member] * times**degree
            assert terms.sum() == pytest.approx(1 / (degree + 1), abs=1e-11 * abs(terms).max())
            parts = errors[member] * np.array([1, *times]) ** degree
            assert abs(parts.sum()) < 1e-11 * abs(parts).max()
        # The next one is not integrated exactly, and that is what the estimate of the error sees.
        true = 1 / (order + 1) - steps[member] @ times**order
        seen = errors[member] @ np.array([1, *times]) ** order
        assert seen == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize("member", range(len(MEMBERS)))
def test_the_error_falls_with_the_step_as_the_order_says(member):
    weights, (order, _) = fits(HISTORIES["equal"], LONGEST).steps[member], MEMBERS[member]

    def error(count):
        """Along y' = y cos t, from slopes that are exact before the start."""
        step = 3 / count
        times = -step * np.arange(LONGEST)
        y, slopes, errors = 1.0, np.exp(np.sin(times)) * np.cos(times), []
        for k in range(1, count + 1):
            y = y + step * weights @ slopes
            slopes = np.array([y * np.cos(k * step), *slopes[:-1]])
            errors.append(y - np.exp(np.sin(k * step)))
        return np.sqrt(np.mean(np.square(errors)))

    # Of high order, so long that rounding is not seen; of order 8 they are long for their error.
    count = {7: 100, 8: 50}.get(order, 200)
    slope = np.log2(error(count) / error(2 * count))
    assert slope == pytest.approx(order, abs=0.35 if order == 8 else 0.1)


@pytest.mark.parametrize("count", [2, 7, 100])
@pytest.mark.parametrize("history", HISTORIES)
def test_polynomials_below_the_order_are_summed_exactly_over_steps_of_euler(history, count):
    times = HISTORIES[history]
    steps, errors = fits(times, LONGEST, count=count)
    values = np.arange(count) / count
    for member, (order, _) in enumerate(MEMBERS):
        for degree in range(order):
            terms = steps[member] * times**degree
            assert terms.sum() == pytest.approx(
                np.mean(values**degree), abs=1e-11 * abs(terms).max()
            )
            parts = errors[member] * np.array([1, *times]) ** degree
            assert abs(parts.sum()) < 1e-11 * abs(parts).max()


@pytest.mark.parametrize("history", HISTORIES)
def test_through_as_many_slopes_as_coefficients_one_step_of_euler_is_that_of_the_latest(history):
    steps, errors = fits(HISTORIES[history], LONGEST, count=1)
    for member, (order, window) in enumerate(MEMBERS):
        if order == window:
            np.testing.assert_allclose(steps[member], np.eye(LONGEST)[0], atol=1e-12)
            np.testing.assert_allclose(errors[member], 0, atol=1e-12)


def test_of_infinitely_many_steps_of_euler_it_is_the_flow():
    times = HISTORIES["growing"]
    for many, flow in zip(fits(times, 15, count=1e15), fits(times, 15), strict=True):
        np.testing.assert_allclose(many, flow, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 100])
def test_steps_of_euler_are_stable_as_far_as_the_flow_is(count):
    steps = fits(HISTORIES["equal"], LONGEST, count=count).steps
    for member, reach in enumerate(reaches()):
        for z in np.linspace(0, 0.99 * reach, 20):
            matrix = np.eye(LONGEST, k=-1)
            matrix[0] = -z * steps[member]
            matrix[0, 0] += 1
            assert abs(np.linalg.eigvals(matrix)).max() <= 1 + 1e-9


def test_without_more_slopes_than_coefficients_it_is_adams_and_bashforths():
    steps = fits(HISTORIES["equal"], LONGEST).steps
    np.testing.assert_allclose(steps[MEMBERS.index((1, 1)), :2], [1, 0])
    np.testing.assert_allclose(steps[MEMBERS.index((2, 2)), :3], [3 / 2, -1 / 2, 0], atol=1e-14)


def test_members_whose_window_is_known_do_not_see_the_rest():
    times = HISTORIES["growing"]
    known = 6
    everything, some = fits(times, LONGEST), fits(np.where(np.arange(LONGEST) < known, times, 0), 6)
    for member, (_, window) in enumerate(MEMBERS):
        if window <= known:
            np.testing.assert_allclose(some.steps[member], everything.steps[member], atol=1e-12)
            np.testing.assert_allclose(some.errors[member], everything.errors[member], atol=1e-12)


def test_jax_and_numpy_have_the_same_weights():
    times = HISTORIES["shrinking"]
    ours, theirs = fits(times, 9), fits(jnp.asarray(times), jnp.asarray(9), jnp)
    usable = [member for member, (_, window) in enumerate(MEMBERS) if window <= 9]
    for name in ("steps", "errors"):
        mine, other = getattr(ours, name)[usable], np.asarray(getattr(theirs, name))[usable]
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("member", range(len(MEMBERS)))
def test_a_decay_is_stable_as_far_as_it_says_and_not_much_farther(member):
    steps, reach = fits(HISTORIES["equal"], LONGEST).steps[member], reaches()[member]

    def growth(z):
        """By how much a disturbance grows over many steps of y' = −y, each of length z."""
        y, slopes = 1.0 + 0j, np.random.default_rng(0).normal(size=LONGEST) * (1 + 0j)
        sizes = []
        for _ in range(3000):
            slopes = np.array([-z * y, *slopes[:-1]])
            y = y + steps @ slopes
            sizes.append(abs(y))
            if sizes[-1] > 1e30:
                break
        return max(sizes[-100:]) / max(sizes[:100])

    assert growth(0.99 * reach) < 1
    assert growth(0.99 * reach * np.exp(0.1j)) < 1
    assert max(growth(1.05 * reach), growth(1.05 * reach * np.exp(0.1j))) > 1


def test_longer_windows_reach_farther_than_adams_and_bashforth():
    # Of Adams' and Bashforth's method of order four the interval is 0.3.
    by_window = {w: reach for (o, w), reach in zip(MEMBERS, reaches(), strict=True) if o == 4}
    assert list(by_window.values()) == sorted(by_window.values())
    assert by_window[14] > 2
