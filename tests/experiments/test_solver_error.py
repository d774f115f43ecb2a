"""The claim that errors are not the solver's, on series made up for it."""

import numpy as np
import pytest

from counterflow.experiments.solver_error import solver_claim
from counterflow.runs.run import TrainingSeries
from counterflow.runs.training import Training


def training(*shares, rate=0.1, error=1e-3):
    """A training at whose records after the first the solver's error is these parts of the error.

    One list for every order.
    """
    steps = 5 * np.arange(len(shares[0]) + 1)
    series = {}
    for order, parts in enumerate(shares):
        errors = np.full(len(steps), error)
        errors[0] = 0.0
        errors[1:][np.isnan(parts)] = np.nan
        series[f"flow {order}", "error"] = errors
        series[f"flow {order}", "solver_error"] = np.array([0.0, *parts]) * error
    orders = tuple(range(len(shares)))
    settings = Training(rate, 1e-3, 7, int(steps[-1]), len(shares[0]), orders)
    return TrainingSeries(settings, steps, len(steps), series, "completed", {}, 0.0)


def test_errors_ten_times_above_the_solver_are_not_its_own():
    claim = solver_claim([training([0.01, 0.02], [1e-3, 0.09]), training([0.05, 0.0], rate=1.0)])
    assert claim.holds
    assert claim.figures == "at most 0.05 of that of gradient flow, 0.09 of that of EoM (γ = 1)"


def test_every_record_where_it_is_not_smaller_is_named():
    claim = solver_claim(
        [training([0.01, 0.02]), training([0.01, 0.2, 0, 0, 0], [0.3] * 5, rate=0.01)]
    )
    assert not claim.holds
    assert claim.figures.endswith(
        "more than a tenth of it: gradient flow at η = 0.01, λ = 0.001, step 10; "
        "EoM (γ = 1) at η = 0.01, λ = 0.001, steps 5, 10, 15 and 2 more"
    )


def test_a_flow_that_ended_is_judged_as_far_as_it_got():
    claim = solver_claim([training([0.01, 0.02, 0.03], [0.04, np.nan, np.nan])])
    assert claim.holds
    assert "judged as far as it got: EoM (γ = 1) at η = 0.1, λ = 0.001 to step 5" in claim.figures
    assert not solver_claim([training([0.2, np.nan, np.nan])]).holds


@pytest.mark.parametrize("known", [[], [training([np.nan] * 3)], [training([])]])
def test_without_a_record_nothing_is_claimed_to_hold(known):
    assert not solver_claim(known).holds


def test_an_error_that_is_not_there_is_the_solvers_unless_that_is_not_there_either():
    nothing = training([0.0, 0.0], error=0.0)
    assert solver_claim([nothing]).holds
    nothing.series["flow 0", "solver_error"][1] = 1e-18
    assert not solver_claim([nothing]).holds
