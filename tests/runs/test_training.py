"""A training that is stopped at any record, or fails at any, ends with the same bits."""

import json
import math
import sqlite3
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.errors.curvature import sharpness
from counterflow.runs import store as store_module
from counterflow.runs.database import StoreError
from counterflow.runs.opening import reading, writing
from counterflow.runs.training import Stopped, Training, train

PARAMS = {"hidden": jnp.array([[0.9, -0.4]]), "readout": jnp.array([0.3, 0.8, -0.6])}


def loss(params, sign):
    return sign * (jnp.sum(params["hidden"] ** 4) / 4 + jnp.sum(jnp.cos(params["readout"])))


VALLEY = cf.Problem(loss, jnp.array(1.0), weight_decay=0.1)
# Up a hill, where gradient flow is infinite before descent is.
HILL = cf.Problem(loss, jnp.array(-1.0), weight_decay=0.1)
CALM = Training(0.1, 0.1, 7, steps=14, records=7, orders=(0, 1), predict=True, restart=5)
STEEP = Training(0.15, 0.1, 7, steps=18, records=18, orders=(0, 1), predict=True, restart=3)
CASES = {"calm": (CALM, VALLEY), "steep": (STEEP, HILL)}


def measured(params):
    return {"size": float(jnp.sum(params["hidden"] ** 2)), "sum": float(jnp.sum(params["readout"]))}


def nothing(update):
    pass


def never():
    return False


def opened(folder, say=pytest.fail):
    return writing(folder, "{}", "a command", say)


def run(case, folder, watch=nothing, stopping=never, say=pytest.fail):
    training, problem = CASES[case]
    with opened(folder, say) as store:
        train(training, problem, PARAMS, measured, store, watch, stopping, say)


def kept(case, folder):
    """All that is known of a training but for the time it took, with all bits of its series."""
    name = CASES[case][0].name
    store = reading(folder)
    known = store.trainings()[name]
    found = {
        key: {record: value.hex() for record, value in at.items()}
        for key, at in store.series(name).items()
    }
    store.close()
    del known["seconds"]
    return known, found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What is kept of the trainings that are never stopped."""
    found = {}
    for case in CASES:
        folder = tmp_path_factory.mktemp(case)
        run(case, folder)
        found[case] = kept(case, folder)
    return found


def test_a_training_is_described(whole):
    assert CALM.record_steps.tolist() == [0, 2, 4, 5, 6, 8, 10, 12, 14]  # the restart among them
    assert replace(CALM, restart=None).record_steps.tolist() == list(range(0, 16, 2))
    assert replace(CALM, restart=None, records=99).record_steps.tolist() == list(range(15))
    known, _ = whole["calm"]
    assert Training.from_settings(known["settings"]) == CALM
    assert known["steps"] == CALM.record_steps.tolist()
    assert known["records"] == len(CALM.record_steps)
    assert known["status"] == "completed"
    assert set(known["statistics"]) >= {"descent", "flow 0", "coarse flow 1", "prediction 0"}
    assert "prediction 1" not in known["statistics"]  # the paper predicts gradient flow's error


def test_every_training_has_a_name_of_its_own():
    assert CALM.name == "η = 0.1, λ = 0.1, seed 7"
    assert replace(CALM, learning_rate=1.0, weight_decay=1e-5).name == "η = 1, λ = 1e-05, seed 7"
    close = replace(CALM, learning_rate=0.1 + 1e-9)
    assert close.name != CALM.name
    assert replace(CALM, weight_decay=math.nextafter(0.1, 1)).name != CALM.name


def test_what_is_measured_is_what_compare_measures(whole):
    known, found = whole["calm"]
    comparison = cf.compare(
        VALLEY, PARAMS, 0.1, 14, (0, 1), records=known["steps"], restart=5, predict=True
    )
    for i, order in enumerate((0, 1)):
        values = [float.fromhex(v) for v in found[f"flow {order}", "error"].values()]
        np.testing.assert_allclose(values, comparison.error[i], rtol=1e-3, atol=1e-15)
    values = [float.fromhex(v) for v in found["descent", "loss"].values()]
    np.testing.assert_allclose(values, comparison.descent_loss, rtol=1e-13)
    predicted = [float.fromhex(v) for v in found["flow 0", "propagated_prediction"].values()]
    np.testing.assert_allclose(predicted, comparison.predictions["propagated"].prediction[0], 1e-4)
    assert list(found["flow 0", "restarted_local_mismatch"]) == list(range(3, 9))
    assert ("flow 1", "local_prediction") not in found


def test_what_is_asked_for_is_measured_for_every_process(whole):
    _, found = whole["calm"]
    for process in ("descent", "flow 0", "flow 1"):
        for quantity, value in measured(PARAMS).items():
            series = found[process, quantity]
            assert len(series) == 9
            assert series[0] == value.hex()
    assert found["descent", "size"][8] != found["flow 0", "size"][8]


def test_settings_are_noted_and_found_again():
    for training in (CALM, replace(CALM, seed=None, predicted=(0, 1), method="orbit", share=1e-4)):
        noted = json.loads(json.dumps(training.settings))
        assert Training.from_settings(noted) == training
    # What was noted before there were further settings is still the same.
    assert "method" not in CALM.settings
    assert CALM.name == "η = 0.1, λ = 0.1, seed 7"
    assert replace(CALM, seed=None).name == "η = 0.1, λ = 0.1"


def test_sharpness_is_measured_at_five_records(whole):
    _, found = whole["calm"]
    for process in ("descent", "flow 0", "flow 1"):
        series = found[process, "sharpness"]
        assert list(series) == [0, 2, 4, 6, 8]
        assert series[0] == sharpness(VALLEY, PARAMS).value.hex()


def test_a_flow_that_fails_ends_alone_and_descent_that_diverges_ends_it_all(whole):
    known, found = whole["steep"]
    assert known["status"] == "descent diverged; flow 0 step vanished"
    assert len(known["steps"]) > known["records"] == len(found["descent", "loss"])
    assert len(found["flow 1", "error"]) == known["records"]
    # It fails after the predictions were restarted, and well before the end.
    assert 4 < len(found["flow 0", "error"]) < known["records"] - 2
    assert len(found["flow 0", "restarted_local_prediction"]) > 1


@pytest.mark.parametrize("case", CASES)
def test_stopped_at_every_record_in_turn_it_ends_with_the_same_bits(case, whole, tmp_path):
    updates = []
    for _ in range(100):
        try:
            run(case, tmp_path, updates.append, lambda: True)
            break
        except Stopped:
            continue
    assert kept(case, tmp_path) == whole[case]
    known, _ = whole[case]
    assert [update.done for update in updates] == list(range(1, known["records"] + 1))
    assert [update.step for update in updates] == known["steps"][: known["records"]]
    assert not list((tmp_path / "states").iterdir())


@pytest.mark.parametrize("case", CASES)
def test_stopped_at_any_one_record_it_ends_with_the_same_bits(case, whole, tmp_path):
    known, _ = whole[case]
    for record in range(1, known["records"]):
        folder, seen = tmp_path / str(record), []
        with pytest.raises(Stopped):
            run(case, folder, seen.append, lambda: len(seen) == record)  # noqa: B023
        assert kept(case, folder)[0]["records"] == record
        run(case, folder)
        assert kept(case, folder) == whole[case]


def test_a_finished_training_is_not_repeated(whole, tmp_path):
    run("calm", tmp_path)
    run("calm", tmp_path, watch=pytest.fail, stopping=pytest.fail)
    assert kept("calm", tmp_path) == whole["calm"]


def test_killed_between_the_last_record_and_the_end_it_ends(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(store_module.Store, "finish", fail_with(RuntimeError("killed")))
        with pytest.raises(RuntimeError, match="killed"):
            run("calm", tmp_path)
    assert kept("calm", tmp_path)[0]["status"] == "running"
    run("calm", tmp_path, watch=pytest.fail)  # no record is missing
    assert kept("calm", tmp_path) == whole["calm"]


def fail_with(error):
    def fail(*arguments):
        raise error

    return fail


def test_updates_say_how_it_is_going(tmp_path):
    updates = []
    with pytest.raises(Stopped):
        run("calm", tmp_path, updates.append, lambda: len(updates) == 3)
    run("calm", tmp_path, updates.append)
    last = updates[-1]
    assert last.training == CALM
    assert (last.done, last.total, last.step) == (9, 9, 14)
    assert last.rows["flow 0"]["error"] > 0
    assert last.statistics["descent"]["gradient_evaluations"] == 14
    assert all(update.rate >= 0 for update in updates)
    assert updates[1].rate > 0
    seconds = [update.seconds for update in updates]
    assert seconds == sorted(seconds)  # those of the first sitting included
    assert seconds[0] > 0


@pytest.mark.parametrize("done", range(2, 9))
def test_a_damaged_state_is_said_and_the_one_before_taken(done, whole, tmp_path):
    seen, said = [], []
    with pytest.raises(Stopped):
        run("calm", tmp_path, seen.append, lambda: len(seen) == done)
    newest = next((tmp_path / "states").glob(f"*-{done - 1}.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1])
    run("calm", tmp_path, say=said.append)
    (message,) = said
    assert f"{newest.name} is damaged: its SHA-256 is not the one that was noted" in message
    assert message.endswith(f"going on from the state before it, at step {seen[-2].step}")
    assert kept("calm", tmp_path) == whole["calm"]


def test_without_a_whole_state_the_records_can_still_be_read(whole, tmp_path):
    seen = []
    with pytest.raises(Stopped):
        run("calm", tmp_path, seen.append, lambda: len(seen) == 4)
    before = kept("calm", tmp_path)
    for path in (tmp_path / "states").iterdir():
        path.write_bytes(b"")
    with pytest.raises(StoreError, match=r"cannot go on with .*records are intact"):
        run("calm", tmp_path)
    assert kept("calm", tmp_path) == before


def test_a_training_of_another_version_is_said(tmp_path):
    with pytest.raises(Stopped):
        run("calm", tmp_path, stopping=lambda: True)
    changed = replace(CALM, orders=(0, 1, 2))
    with (
        opened(tmp_path) as store,
        pytest.raises(StoreError, match="was begun with other settings, by another version"),
    ):
        train(changed, VALLEY, PARAMS, measured, store, nothing, never, pytest.fail)


@pytest.mark.parametrize("pages", [1, 2])
def test_a_full_database_stops_it_and_it_goes_on_later(pages, whole, tmp_path):
    training, problem = CASES["steep"]
    with opened(tmp_path) as store:
        ((now,),) = store._rows("PRAGMA page_count")
        store._rows(f"PRAGMA max_page_count = {now + pages}")
        with pytest.raises(StoreError, match="is full"):
            train(training, problem, PARAMS, measured, store, nothing, never, pytest.fail)
    assert kept("steep", tmp_path)[0]["records"] < whole["steep"][0]["records"]
    run("steep", tmp_path)
    assert kept("steep", tmp_path) == whole["steep"]


def test_an_error_while_computing_loses_no_record(whole, tmp_path):
    seen = []

    def watch(update):
        seen.append(update)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("calm", tmp_path, watch)
    assert kept("calm", tmp_path)[0]["records"] == 5
    run("calm", tmp_path)
    assert kept("calm", tmp_path) == whole["calm"]


def test_a_field_without_a_loss_has_no_loss_and_no_sharpness(tmp_path):
    training = Training(0.1, 0.0, 0, steps=4, records=2, orders=(0,))
    field = cf.Problem.from_gradient(lambda params: params)
    with opened(tmp_path) as store:
        train(training, field, PARAMS, measured, store, nothing, never, pytest.fail)
        found = store.series(training.name)
    assert all(math.isnan(value) for value in found["descent", "loss"].values())
    assert ("descent", "sharpness") not in found
    assert found["descent", "size"][2] == pytest.approx(0.97 * 0.9**8)
    with sqlite3.connect(tmp_path / "run.sqlite") as connection:
        rows = connection.execute("SELECT value FROM series WHERE quantity = 'loss'").fetchall()
    connection.close()
    assert rows == [(None,)] * 3
