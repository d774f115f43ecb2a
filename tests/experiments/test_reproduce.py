"""The whole paper in one run: everything is computed once, found again, and gone on with."""

import json
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from counterflow.data.digits import digits
from counterflow.experiments.carry_out import Watcher, findings, needed
from counterflow.experiments.paper.setting import PaperSetting
from counterflow.experiments.registry import EXPERIMENTS, experiments_of, with_symmetries
from counterflow.experiments.reproduce import reproduce
from counterflow.runs.configuration import Configuration
from counterflow.runs.run import open_run
from counterflow.runs.training import Stopped

TINY = Configuration(
    samples=60,
    hidden_widths=(4, 3),
    steps=(6, 8, 8),
    large_steps=4,
    restart=3,
    records=4,
    orders=(0, 1, 2),
    seeds=(8,),
    long_steps=50,
    long_samples=60,
)
ALL = with_symmetries(EXPERIMENTS.values())
SYMMETRIES = ALL[0]
RESULTS = ["symmetries", "figure1", "figure5", "equilibrium"]


class Noting(Watcher):
    """Notes all it hears."""

    def __init__(self):
        self.plan, self.updates, self.begun, self.done, self.checked = None, [], [], [], []

    def planned(self, trainings, results):
        self.plan = ([training.name for training in trainings], list(results))

    def recorded(self, update):
        self.updates.append(update)

    def started(self, what):
        self.begun.append(what)

    def finished(self, what):
        self.done.append(what)

    def said(self, message):
        assert message.startswith("the hidden layer is scale-invariant"), message
        self.checked.append(message)


def go(folder, experiments=ALL[1:], load=digits, stopping=lambda: False, configuration=TINY):
    """The run and what was heard of it."""
    watcher = Noting()
    return reproduce(experiments, configuration, folder, load, "typed", watcher, stopping), watcher


def bits(run, names=None):
    """All bits of all series, how the trainings ended, and the results."""
    series = {
        name: (
            known.status,
            known.steps.tolist(),
            {key: [float(v).hex() for v in values] for key, values in known.series.items()},
        )
        for name, known in run.trainings.items()
        if names is None or name in names
    }
    return series, dict(run.results) if names is None else None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def first(folder):
    """All experiments, once."""
    return go(folder)


@pytest.fixture(scope="module")
def run(first):
    return first[0]


def test_charges_are_followed_for_every_process(run):
    setting = PaperSetting(TINY, digits())
    known = run.trainings[next(iter(run.trainings))]
    _, params = setting.start(known.training)
    measured = setting.observables(params)
    readout = np.asarray(params["readout"])
    assert measured["squared_norm"] == pytest.approx(np.sum(np.asarray(params["hidden"]) ** 2))
    assert measured["sum_of_weights"] == pytest.approx(readout.sum())
    assert measured["perpendicular"] == pytest.approx(abs(readout.sum()) / np.sqrt(readout.size))
    for quantity, value in measured.items():
        assert known("descent", quantity)[0] == known.flow(1, quantity)[0] == value


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_finds_something(name, run):
    symmetries, found = findings(run, with_symmetries((EXPERIMENTS[name],)))
    assert (symmetries.name, found.name) == ("symmetries", name)
    assert found.claims


def test_all_findings_come_in_the_order_of_the_report(run):
    found = findings(run, experiments_of(run))
    assert [finding.name for finding in found] == ["symmetries", *EXPERIMENTS]
    assert len(found) == 17
    assert all(finding.claims for finding in found)
    assert found[0].holds


def test_everything_needed_is_planned_and_done_once(first):
    run, watcher = first
    trainings, results = needed(ALL, TINY)
    assert watcher.plan == (list(trainings), list(results))
    assert watcher.begun == watcher.done == [*results, *trainings]
    (checked,) = watcher.checked  # the symmetries, at the start
    assert ": holds; " in checked
    assert sorted(results) == sorted(RESULTS)
    assert set(run.trainings) == set(trainings)
    assert set(run.results) == set(results)
    assert all(known.finished for known in run.trainings.values())
    kept = Counter(update.training.name for update in watcher.updates)
    assert kept == {name: len(known.steps) for name, known in run.trainings.items()}
    # Every learning rate at every weight decay, one beyond stability, and a further seed.
    assert len(trainings) == 3 * 2 + 1 + 1


def test_the_run_has_a_folder_of_its_own(run, folder):
    assert run.folder == folder / TINY.name
    assert run.configuration == TINY
    assert run.sittings[0]["command"] == "typed"
    assert bits(open_run(run.folder)) == bits(run)


def test_a_second_time_nothing_is_computed(run, folder):
    again, watcher = go(folder, load=pytest.fail, stopping=pytest.fail)
    assert watcher.plan == ([], [])
    assert watcher.begun == watcher.updates == watcher.checked == []
    assert bits(again) == bits(run)
    assert len(again.sittings) > len(run.sittings)
    some, watcher = go(folder, (EXPERIMENTS["figure2"],), load=pytest.fail)
    assert watcher.plan == ([], [])
    assert bits(some) == bits(run)


def test_one_experiment_and_then_all_share_what_they_need(run, tmp_path):
    chosen = (EXPERIMENTS["figure2"], EXPERIMENTS["figure5"])
    some, watcher = go(tmp_path, chosen)
    trainings, results = needed(with_symmetries(chosen), TINY)
    assert list(results) == ["symmetries", "figure5"]
    assert watcher.plan == (list(trainings), list(results))
    assert 0 < len(trainings) < len(run.trainings)
    # What others need is not there, and they are not asked for.
    found = [finding.name for finding in findings(some, ALL)]
    assert {"symmetries", "figure2", "figure5"} <= set(found)
    assert not {"figure1", "figure6", "seeds", "equilibrium"} & set(found)

    everything, watcher = go(tmp_path)
    planned = set(run.trainings) - set(trainings), set(run.results) - set(results)
    assert tuple(map(set, watcher.plan)) == planned
    assert bits(everything)[0] == bits(run)[0]
    assert set(everything.results) == set(run.results)


def test_stopped_again_and_again_it_ends_with_the_same_bits(run, tmp_path):
    chosen = (EXPERIMENTS["figure2"], EXPERIMENTS["figure12"])
    dataset, loaded, heard = digits(), [], []

    def load():
        loaded.append(dataset)
        return dataset

    for _ in range(100):
        watcher = Noting()
        heard.append(watcher)
        try:
            # At the first result, then at every second record.
            asked = iter([not heard[1:], True])
            stopped = reproduce(
                chosen, TINY, tmp_path, load, "typed", watcher, partial(next, asked, False)
            )
            break
        except Stopped:
            continue
    names, _ = needed(with_symmetries(chosen), TINY)
    assert heard[0].done == ["symmetries"]
    assert heard[0].updates == []
    assert len(heard) == len(loaded) > 3
    assert bits(stopped, names) == bits(run, names)
    assert stopped.results["symmetries"] == run.results["symmetries"]
    # No record was computed twice.
    steps = [(update.training.name, update.step) for one in heard for update in one.updates]
    assert len(steps) == len(set(steps)) == sum(len(run.trainings[name].steps) for name in names)


def test_a_run_that_is_not_finished_has_the_findings_it_can_have(run, tmp_path):
    with pytest.raises(Stopped):
        go(tmp_path, (EXPERIMENTS["figure2"],), stopping=lambda: True)
    unfinished = open_run(tmp_path / TINY.name)
    assert [finding.name for finding in findings(unfinished, ALL)] == ["symmetries"]
    assert findings(replace(unfinished, results={}), ALL) == ()
    known = next(iter(run.trainings.values()))
    running = {known.training.name: replace(known, status="running")}
    without = findings(replace(run, trainings={**run.trainings, **running}), ALL)
    assert len(without) < 17


def test_another_configuration_has_another_folder(run, folder):
    other = replace(TINY, hidden_widths=(3, 3))
    with pytest.raises(Stopped):
        go(folder, (EXPERIMENTS["figure2"],), stopping=lambda: True, configuration=other)
    assert {TINY.name, other.name} <= {path.name for path in folder.iterdir()}
    assert bits(open_run(run.folder)) == bits(run)


def test_a_layer_without_its_symmetry_fails_the_check(run):
    assert SYMMETRIES.finding(run).holds
    broken = dict(run.results["symmetries"]) | {"scale hidden": 1e-3}
    finding = SYMMETRIES.finding(replace(run, results={"symmetries": broken}))
    assert not finding.holds
    assert "scale hidden: 1e-03" in finding.claims[0].figures


def test_a_watcher_keeps_silent(first, capsys):
    run, heard = first
    watcher = Watcher()
    watcher.planned([known.training for known in run.trainings.values()], RESULTS)
    watcher.recorded(heard.updates[0])
    for hear in (watcher.started, watcher.finished, watcher.said):
        hear("figure1")
    watcher.progressed(1, 2, "")
    assert capsys.readouterr() == ("", "")


# --- what claims and captions say ---------------------------------------------------------------


def test_claims_that_compare_orders_name_the_methods_that_the_flows_had(run):
    setting = PaperSetting(TINY, digits())
    known = next(iter(run.trainings.values()))
    lanes = known.training.lock_step(*setting.start(known.training)).lanes
    methods = {lane.flow.order: lane.flow.method for lane in lanes}
    assert methods[1] != methods[2]
    first, second = (f"order {order} (by `{methods[order]}`)" for order in (1, 2))
    for name in ("figure3", "figure4", "figure11"):
        texts = [claim.text for claim in EXPERIMENTS[name].finding(run).claims]
        assert any(f"{first} is closer to descent than order 0" in text for text in texts)
        assert any(f"{second} is closer to descent than {first}" in text for text in texts)


@pytest.mark.parametrize("name", ["figure3", "figure4", "figure8", "figure11"])
def test_only_a_run_with_further_orders_speaks_of_their_method(name, run):
    two = replace(run, configuration=replace(TINY, orders=(0, 1)))
    assert "`orbit`" in EXPERIMENTS[name].finding(run).caption
    assert "orbit" not in EXPERIMENTS[name].finding(two).caption


@pytest.mark.parametrize("name", ["figure3", "figure4", "figure11"])
def test_figures_of_errors_say_what_of_them_is_the_solvers(name, run):
    def claim(of):
        return EXPERIMENTS[name].finding(of).claims[-1]

    assert "the solver's own error is at least 10 times smaller" in claim(run).text
    assert not claim(rough(run)).holds
    assert "more than a tenth of it: gradient flow at η = " in claim(rough(run)).figures


def rough(run):
    """The run as it would be if the solver's own error were half of every error."""

    def with_half(known):
        errors = {
            (process, "solver_error"): values / 2
            for (process, quantity), values in known.series.items()
            if quantity == "error"
        }
        return replace(known, series={**known.series, **errors})

    return replace(run, trainings={name: with_half(one) for name, one in run.trainings.items()})


@pytest.mark.parametrize("name", ["figure6", "figure9"])
def test_what_decays_is_drawn_beside_the_exact_decay(name, run):
    for panel in EXPERIMENTS[name].finding(run).panels:
        exact = [curve for curve in panel.curves if curve.role == "exact"]
        measured = [curve for curve in panel.curves if curve.role.startswith("learning rate")]
        assert len(measured) == 6
        # Against the step, learning rates and weight decays with one product share a curve.
        assert len(exact) == (6 if name == "figure9" else 4)
        for one in exact:
            near = [
                np.allclose(np.interp(one.x, curve.x, curve.y), one.y, rtol=1e-9, atol=1e-13)
                for curve in measured
            ]
            assert any(near)


# --- what must hold ------------------------------------------------------------------------------

STORED = Path(__file__).parents[2] / "docs" / "results" / "reproduce_digits_quick.json"
# Of each figure of the paper, the claims that theory leaves no doubt about at these settings, as
# patterns; each must be there. Others, as that the error explodes at η = 0.1, are questions.
CLOSER = r"order 1.* is closer to descent than order 0"
MUST_HOLD = {
    "figure1": ["gradient flow ends in another valley than descent, the equation of motion in"],
    "figure2": ["the propagated prediction is within 2η of the measured error"],
    "figure3": [CLOSER, r"the error explodes at η = 1, beyond 2/sharpness"],
    "figure4": [
        CLOSER,
        r"order 2.* is closer to descent than order 1",
        "a smaller learning rate gives a smaller error",
    ],
    "figure5": [r"θ_⊥ of descent is \(1 − ηλ\)\^k", "θ_⊥ of descent decays faster than gradient"],
    "figure6": ["‖θ_⊥‖ falls at every record", r"‖θ_⊥‖ is \(1 − ηλ\)\^k times that at the start"],
    "table1": [
        r"the measured rate is −log\(1 − ηλ\) to 1e-11",
        "each order is closer than the one before",
        r"the paper's column is −log\(1 − float32\(η\) λ\)",
    ],
    "figure7": ["descent never shrinks r² faster than weight decay alone"],
    "figure8": ["the counter term reduces the largest gap of r² at every learning rate"],
    "figure9": [r"the sum is \(1 − ηλ\)\^k times that at the start"],
    "figure10": [
        "the counter term reduces the largest gap of the sum of weights at every learning rate"
    ],
    "figure11": [
        CLOSER,
        "a smaller learning rate gives a smaller error",
        r"the error explodes at η = 1, beyond 2/sharpness",
    ],
    "figure12": ["the propagated prediction is within 2η of the measured error"],
}


@pytest.mark.parametrize("name", MUST_HOLD)
def test_what_theory_says_of_a_figure_holds_in_the_committed_run(name):
    claims = json.loads(STORED.read_text(encoding="utf-8"))["claims"]
    for pattern in MUST_HOLD[name]:
        about = [
            claim
            for claim in claims
            if claim["experiment"] == name and re.match(pattern, claim["claim"])
        ]
        assert about, pattern
        for claim in about:
            assert claim["holds"], claim


def test_every_figure_of_the_paper_has_something_that_must_hold():
    assert set(MUST_HOLD) == {name for name in EXPERIMENTS if re.match("figure|table", name)}


# --- verdicts on what ended early ---------------------------------------------------------------


def cut(run, process, of=""):
    """The run as it would be if a process had not got beyond its first record."""

    def without(known):
        series = {
            (name, quantity): np.where(np.arange(len(values)) > 0, np.nan, values)
            if name == process and quantity.startswith(of)
            else values
            for (name, quantity), values in known.series.items()
        }
        return replace(known, series=series, status=f"{process} step vanished")

    trainings = {name: without(known) for name, known in run.trainings.items()}
    return replace(run, trainings=trainings)


@pytest.mark.parametrize("name", ["figure4", "figure8", "figure10", "figure11", "sharpness"])
def test_an_equation_of_motion_that_ended_is_not_the_closer_one(name, run):
    claims = EXPERIMENTS[name].finding(cut(run, "flow 1")).claims
    about = [claim for claim in claims if "order 1" in claim.text or "counter term" in claim.text]
    about += [claim for claim in claims if "equation of motion" in claim.text]
    assert about
    assert not any(claim.holds for claim in about)


@pytest.mark.parametrize("name", ["figure2", "figure12"])
def test_a_prediction_that_ended_is_not_right(name, run):
    for kind in ("propagated", "local"):
        claims = EXPERIMENTS[name].finding(cut(run, "flow 0", of=kind)).claims
        about = [claim for claim in claims if kind in claim.text]
        assert about
        assert not any(claim.holds for claim in about)


@pytest.mark.parametrize("process", ["descent", "flow 0", "flow 1", "flow 2"])
def test_every_experiment_has_something_to_say_whatever_ended(process, run):
    ended = cut(run, process)
    for name, experiment in EXPERIMENTS.items():
        assert experiment.finding(ended).name == name


@pytest.mark.parametrize("name", ["figure6", "figure7", "figure9", "table1"])
def test_descent_that_was_not_recorded_obeys_no_law(name, run):
    claims = EXPERIMENTS[name].finding(cut(run, "descent")).claims
    measured = [claim for claim in claims if "paper's column" not in claim.text]
    assert not any(claim.holds for claim in measured)
