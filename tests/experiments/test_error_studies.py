"""The experiments on errors: small runs here, and the committed results of the large ones."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from counterflow.experiments import (
    best_order,
    error_prediction,
    first_steps,
    four_networks,
    learning_rate_bounds,
)
from counterflow.experiments.best_order import BestOrder
from counterflow.experiments.error_prediction import ErrorPredictionStudy
from counterflow.experiments.first_steps import FirstSteps
from counterflow.experiments.four_networks import FourNetworks
from counterflow.experiments.learning_rate_bounds import Case, LearningRateBounds

SMALL = (6, 6)
RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """The higher orders on a small network: its settings, folder, result and reported progress."""
    settings = ErrorPredictionStudy(
        learning_rates=(1e-2,), orders=(1, 2), time=1.0, hidden_widths=SMALL, seeds=(8,)
    )
    folder, heard = tmp_path_factory.mktemp("runs"), []
    result = error_prediction.run(settings, folder, lambda *said: heard.append(said))
    return settings, folder, result, heard


def test_the_propagated_prediction_of_higher_orders_is_right_to_two_percent(small_run):
    _, _, result, _ = small_run
    assert [row.order for row in result.rows] == [1, 2]
    assert all(row.propagated_mismatch <= 0.02 for row in result.rows)
    assert all(result.claims.values()), result.claims


def test_results_are_kept_and_found_again(small_run):
    settings, folder, first, heard = small_run
    heard_again = []
    again = error_prediction.run(settings, folder, lambda *said: heard_again.append(said))
    assert again == first
    assert heard == [("seed 8, learning rate 0.01", 0, 1), ("done", 1, 1)]
    assert heard_again == [("done", 1, 1)]


def test_the_digits_network_gives_the_committed_result_again(tmp_path):
    # Gradient flow alone: at this size, the higher orders would take several times as long.
    settings = ErrorPredictionStudy(learning_rates=(1e-2,), orders=(0,), seeds=(7,))
    result = error_prediction.run(settings, tmp_path)
    (row,) = result.rows
    assert row.propagated_mismatch <= 0.02
    assert all(result.claims.values()), result.claims
    assert result.over_seeds("local_mismatch", 1e-2, 0) == pytest.approx([1.73], abs=0.01)
    stored = json.loads((RESULTS / "error_prediction.json").read_text(encoding="utf-8"))
    committed = stored["results"]["seed 7, learning rate 0.01"][0]
    assert asdict(row) == pytest.approx(committed, rel=1e-3)


def test_a_wrong_prediction_fails_the_claims(tmp_path):
    row = error_prediction.Row(7, 1e-2, 0, 1.0, 1e-6, 2.0, 0.01, 0.01)
    settings = ErrorPredictionStudy()
    assert error_prediction.Result(settings, (row,)).verdict
    for change in (
        {"propagated_mismatch": 0.03},
        {"local_mismatch": 0.5},
        {"propagated_uncertainty": 0.005},
        {"solver_error": 0.1},
    ):
        assert not error_prediction.Result(settings, (replace(row, **change),)).verdict


def test_bounds_are_put_to_a_run(tmp_path):
    case = Case("quadratic saddle", 2.0, 1e-2, (-1.0, 4.0))
    result = learning_rate_bounds.run(LearningRateBounds((case,), (0,)), tmp_path)
    local, propagated, other = result.rows
    assert 0 < local.slack <= 1
    assert 0.85 < propagated.slack <= 1
    assert other.learning_rate < propagated.learning_rate
    assert not result.claims[
        "the paper's bound is broken by a real run near a curved stable manifold"
    ]


def test_the_best_order_is_found_and_promised(tmp_path):
    settings = BestOrder((0.05,), (0, 1), time=0.5, records=3, hidden_widths=SMALL)
    result = best_order.run(settings, tmp_path)
    (row,) = result.rows
    assert row.best_order == result.useful_order(row) == 1
    assert row.relative_errors[1] < row.relative_errors[0]
    wrong = replace(row, promised_order=5, relative_errors=(0.1, 0.09, 0.08, 0.07, 0.06, 0.05))
    assert not best_order.Result(BestOrder(), (wrong,)).verdict


def test_the_first_steps_are_measured(tmp_path):
    settings = FirstSteps(steps=100, first=20, hidden_widths=SMALL)
    result = first_steps.run(settings, tmp_path)
    assert 0 < result.local_share < 1
    assert result.restarted_gap < 1
    assert max(result.difference_errors) < 1e-5


def test_a_network_that_the_paper_does_not_have(tmp_path):
    settings = FourNetworks(
        (("softplus", 0.05, 0.5),),
        images=20,
        steps=10,
        records=2,
        looks=2,
        orders=(0, 1),
        bending=(),
    )
    result = four_networks.run(settings, tmp_path)
    good, bad = result.rows
    assert (good.network, good.suits, bad.suits) == ("softplus", True, False)
    assert result.row("softplus", suits=True) == good
    assert good.smooth
    assert good.steps == (0, 5, 10)
    assert good.last[1] < good.last[0] / 5
    assert good.loss[1] < good.loss[0]
    # At ten times the learning rate the same start is ten times less stable.
    assert bad.stability[0] == pytest.approx(10 * good.stability[0])
    assert "Translation('layer2/bias')" in good.symmetries


# --- the committed results -------------------------------------------------------------------

STUDIES = {
    "error_prediction": (error_prediction, ErrorPredictionStudy()),
    "learning_rate_bounds": (learning_rate_bounds, LearningRateBounds()),
    "best_order": (best_order, BestOrder()),
    "first_steps": (first_steps, FirstSteps()),
    "four_networks": (four_networks, FourNetworks()),
}


@pytest.mark.parametrize("name", STUDIES)
def test_the_committed_results_are_those_of_the_settings(name):
    module, settings = STUDIES[name]
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert stored["configuration"] == json.loads(json.dumps(asdict(settings)))
    assert module.result_of(settings, stored["results"])


# What was hoped for and is not so; the page says it too.
FAILED = {
    "error_prediction": {"propagated: the predicted vector is right to 2η in every case"},
    "first_steps": {"started after the first steps, the gap is less than half"},
    "four_networks": {"where it is too large, some verdict along the run says so"},
}


@pytest.mark.parametrize("name", STUDIES)
def test_every_other_claim_holds_in_the_committed_results(name):
    module, settings = STUDIES[name]
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    claims = module.result_of(settings, stored["results"]).claims
    assert {claim for claim, holds in claims.items() if not holds} == FAILED.get(name, set())


def test_one_network_of_five_is_off_by_more_than_was_hoped():
    stored = json.loads((RESULTS / "error_prediction.json").read_text(encoding="utf-8"))
    rows = error_prediction.result_of(ErrorPredictionStudy(), stored["results"]).rows
    beyond = {
        (row.seed, row.order) for row in rows if row.propagated_mismatch > 2 * row.learning_rate
    }
    assert beyond == {(9, 2)}
