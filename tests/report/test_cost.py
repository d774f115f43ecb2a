"""What the report says a run cost, on runs made up for it."""

from pathlib import Path

import numpy as np
import pytest

from counterflow.report.cost import cost_note, cost_said, cost_table, total_cost
from counterflow.runs.analysis import Analysis
from counterflow.runs.configuration import Configuration
from counterflow.runs.run import Run, TrainingSeries
from counterflow.runs.training import Training

COSTS = {
    "descent": 200,
    "flow 0": 30,
    "coarse flow 0": 20,
    "prediction 0": 5,
    "restarted prediction 0": 4,
    "flow 1": 300,
    "coarse flow 1": 100,
    "flow 10": 7000,
    "coarse flow 10": None,
}
LONG = {"learning_rate": 0.1, "samples": 2000, "steps": [3000, 6000]}


def series(rate, steps, orders, seconds):
    settings = Training(rate, 0.01, 7, steps, 2, orders)
    wanted = {f"{part}{order}" for part in ("flow ", "coarse flow ") for order in orders}
    statistics = {
        name: {"gradient_evaluations": cost}
        for name, cost in COSTS.items()
        if name in wanted or name == "descent" or (orders == (0, 1, 10) and "predict" in name)
    }
    at = np.array([0, steps])
    return TrainingSeries(settings, at, 2, {}, "completed", statistics, seconds)


@pytest.fixture
def run():
    trainings = [series(0.1, 200, (0, 1, 10), 60.0), series(0.01, 500, (0, 1), 30.0)]
    return Run(
        Path("here"),
        Configuration(),
        {known.training.name: known for known in trainings},
        {"symmetries": {}, "equilibrium": LONG},
        {"symmetries": 2.0, "equilibrium": 28.0},
        (),
    )


def columns(table):
    return {name: list(column) for name, *column in zip(table.header, *table.rows, strict=True)}


def test_every_flow_has_a_column_of_its_own(run):
    table = columns(cost_table(run))
    assert table["training"] == [
        "η = 0.1, λ = 0.01, seed 7",
        "η = 0.01, λ = 0.01, seed 7",
        "all trainings",
        "symmetries",
        "equilibrium, on 2,000 images",
        "everything",
    ]
    assert table["descent"] == ["200", "200", "400", "", "6,000", ""]
    assert table["gradient flow"][:3] == ["30", "30", "60"]
    assert table["EoM (γ = 1)"][:3] == ["300", "300", "600"]
    assert table["γ = 10"][:3] == ["7,000", "–", "7,000"]
    assert table["coarse flows"][:3] == ["120", "120", "240"]
    assert table["predictions"][:3] == ["5", "–", "5"]
    assert table["restarted predictions"][:3] == ["4", "–", "4"]
    assert table["gradient evaluations"] == ["7,659", "650", "8,309", "", "6,000", ""]
    assert table["took"] == ["1 min 0 s", "30 s", "1 min 30 s", "2 s", "28 s", "2 min 0 s"]


def test_the_papers_steps_are_those_to_the_time_that_was_reached(run):
    table = columns(cost_table(run))
    assert table["to t"] == ["20", "5", "", "", "600", ""]
    assert table["Euler steps (paper)"] == ["2,000,000", "500,000", "", "", "", ""]
    note = cost_note(run)
    assert "5,000,000 Euler steps, to t = 50;" in note
    assert "steps, of length 1e-05," in note
    assert "Coarse flows are the same flows solved once more with ten times the tolerance" in note


def test_the_long_run_is_counted_apart_from_the_trainings(run):
    assert total_cost(run) == (8309, 120.0)
    assert cost_said(run) == (
        "8,309 gradient evaluations in trainings and 6,000 in the long run on 2,000 images, all in "
        "2 min 0 s"
    )
    run.results.pop("equilibrium")
    run.result_seconds.pop("equilibrium")
    assert cost_said(run) == "8,309 gradient evaluations in 1 min 32 s"


def test_of_ones_own_problem_the_paper_says_nothing(run):
    own = Run(
        run.folder, Analysis("m.py:p", "x", 0.01, 0.1, 200), run.trainings, {}, {}, run.sittings
    )
    assert not any("paper" in name for name in cost_table(own).header)
    assert "paper" not in cost_note(own)
    assert "Coarse flows are" in cost_note(own)
