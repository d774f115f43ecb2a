"""The accuracy of every order: the experiment's own claims, on a run small enough for a test."""

from dataclasses import replace
from itertools import pairwise

import pytest

from counterflow.experiments.accuracy_by_order import AccuracyByOrder, Result, Row, run

SHORT = AccuracyByOrder(
    steps=20, hidden_widths=(8, 6), taylor_orders=(0, 1, 2, 3, 4), orbit_orders=(0, 2, 4, 7)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def result(folder):
    return run(SHORT, folder)


def test_each_order_gains_a_factor_of_ten(result):
    errors = result.errors("taylor")
    assert errors[0] > 1e-4
    assert all(before > 10 * after for before, after in pairwise(errors))
    assert errors[4] < 2e-9


def test_orbit_ends_below_its_claim(result):
    assert result.errors("orbit")[-1] < 1e-9
    assert result.claims["orbit: below 1e-9 at the highest order"]


def test_order_zero_is_gradient_flow_for_both(result):
    assert result.errors("orbit")[0] == pytest.approx(result.errors("taylor")[0], rel=1e-9)


def test_the_solver_is_accurate_enough_to_tell(result):
    assert 0 < result.solver_error < min(result.errors("taylor")) / 10


def test_a_second_run_computes_nothing(result, folder):
    seen = []
    again = run(SHORT, folder, lambda name, done, total: seen.append(name))
    assert again == result
    assert seen == ["done"]


def _result(taylor, orbit, solver_error=1e-14):
    rows = [Row("taylor", k, error, 1) for k, error in enumerate(taylor)]
    rows += [Row("orbit", k, error, 1) for k, error in enumerate(orbit)]
    return Result(SHORT, tuple(rows), solver_error)


GOOD = [1e-3, 1e-5, 1e-7, 1e-9, 1e-12]


def test_verdict_needs_every_claim():
    assert _result(GOOD, [1e-3, 5e-10]).verdict
    assert not _result([1e-3, 2e-4, 1e-12], [5e-10]).verdict
    assert not _result([1e-3, 1e-5], [5e-10]).verdict
    assert not _result(GOOD, [1e-3, 2e-9]).verdict
    assert not _result(GOOD, [5e-10], solver_error=1e-12).verdict


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0.0},
        {"weight_decay": -1.0},
        {"steps": 0},
        {"taylor_orders": ()},
        {"orbit_orders": (1, 1)},
        {"orbit_orders": (-1,)},
        {"tolerance": 0.0},
        {"hidden_widths": (0, 3)},
    ],
)
def test_bad_settings_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(SHORT, **change).require_valid()
