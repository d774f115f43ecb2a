"""One run on disk: what is kept comes back, and whatever goes wrong leaves what was kept."""

import json
import math
import struct
from pathlib import Path

import numpy as np
import pytest

from counterflow.runs.database import StoreError
from counterflow.runs.environment import fingerprint
from counterflow.runs.opening import reading
from counterflow.runs.states import read_state
from databases import as_first_written, change
from stores import (
    NAME,
    RECORDS,
    expected,
    go_on,
    keep,
    open_for_writing,
    rows,
    series,
    state,
    states,
)

# --- what is kept comes back ----------------------------------------------------------------


def test_series_settings_and_costs_come_back(tmp_path):
    with open_for_writing(tmp_path / "run", '{"a": 1}', "counterflow reproduce") as store:
        assert store.trainings() == {}
        store.begin(NAME, {"seed": 7, "rtol": None}, [0, 5, 10])
        keep(store, 0)
        statistics = {"descent": {"gradient_evaluations": 5}}
        store.keep(NAME, 1, rows(1), state(1), {}, statistics, 2.5)
        store.begin("another", {}, [0])
        store.add_result("figure 1", {"slope": 1.99, "points": [1, None, "x"]}, 0.5)
        store.add_result("figure 1", {"slope": 2.0}, 0.75)
    store = reading(tmp_path / "run")
    assert store.header("configuration") == '{"a": 1}'
    assert store.header("format") == "2"
    assert store.trainings() == {
        NAME: {
            "settings": {"seed": 7, "rtol": None},
            "steps": [0, 5, 10],
            "statistics": statistics,
            "status": "running",
            "seconds": 2.5,
            "records": 2,
        },
        "another": {
            "settings": {},
            "steps": [0],
            "statistics": {},
            "status": "running",
            "seconds": 0.0,
            "records": 0,
        },
    }
    assert store.series(NAME) == expected(2)
    assert store.series("another") == {}
    assert store.results() == {"figure 1": {"slope": 2.0}}
    assert store.result_seconds() == {"figure 1": 0.75}
    (sitting,) = store.sittings()
    assert sitting["command"] == "counterflow reproduce"
    assert sitting["fingerprint"] == fingerprint()
    assert sitting["started"].endswith("+00:00")
    assert isinstance(sitting["source"], str)
    store.close()


def test_numbers_come_back_to_the_last_bit_also_where_they_are_none(tmp_path):
    bits = [0x7FF0 << 48, 0xFFF0 << 48, 1, 0x7FEFFFFFFFFFFFFF, 0x3FB999999999999A, 0x3FF0 << 48]
    values = [struct.unpack("<d", struct.pack("<Q", pattern))[0] for pattern in bits]
    values += [1e15, 2.0**53, -(2.0**63), 0.0, math.pi]
    named = {f"value {i}": value for i, value in enumerate([*values, math.nan, -math.nan])}
    with open_for_writing(tmp_path) as store:
        store.begin(NAME, {}, [0])
        store.keep(NAME, 0, {"descent": named}, state(0), {}, {}, 0.0)
    found = series(tmp_path)
    assert len(found) == len(named)
    for name, value in named.items():
        read = found["descent", name][0]
        assert read.hex() == value.hex()
        assert struct.pack("<d", read) == struct.pack("<d", value) or math.isnan(value)


def test_results_that_are_no_numbers_come_back(tmp_path):
    with open_for_writing(tmp_path) as store:
        store.add_result("bad", [math.nan, math.inf, -math.inf], 0.0)
        assert list(map(repr, store.results()["bad"])) == ["nan", "inf", "-inf"]


def test_the_database_is_in_wal_mode_and_waits_for_the_disk(tmp_path):
    with open_for_writing(tmp_path) as store:
        ((mode,),) = store._rows("PRAGMA journal_mode")
        ((synchronous,),) = store._rows("PRAGMA synchronous")
    assert mode == "wal"
    assert synchronous == 2  # FULL


def test_a_training_that_is_noted_is_not_noted_again(half):
    with open_for_writing(half) as store:
        before = store.trainings()
        store.begin(NAME, {"seed": 7}, [0, 1, 2])
        for settings, steps in (({"seed": 8}, [0, 1, 2]), ({"seed": 7}, [0])):
            with pytest.raises(StoreError, match=f"'{NAME}' in .* was begun with other settings"):
                store.begin(NAME, settings, steps)
        assert store.trainings() == before


# --- going on -------------------------------------------------------------------------------


def test_the_last_two_states_are_kept_and_none_of_a_finished_training(half):
    with open_for_writing(half) as store:
        assert [path.stem[-2:] for path in states(half)] == ["-1", "-2"]
        assert go_on(store) == (3, "")
        assert [path.stem[-2:] for path in states(half)] == ["-4", "-5"]
        keep(store, 0, "another")
        store.finish(NAME, "completed")
        assert [path.stem for path in states(half)] == ["another-0"]
        assert store.trainings()[NAME]["status"] == "completed"
        assert store.records(NAME) == RECORDS
    assert series(half) == expected(RECORDS)


def test_files_of_a_state_have_plain_names(half):
    assert states(half)[0].name == "η___0.1__λ___0.01__seed_7-1.safetensors"


def test_what_a_kill_left_beside_the_states_is_cleared(half):
    training, _, _ = states(half)[-1].stem.rpartition("-")
    (half / "states" / f"{training}-3.part").write_bytes(b"half")
    for name in (f"{training}-0", f"{training}-3", "x-0"):
        (half / "states" / f"{name}.safetensors").write_bytes(b"whole, but not noted")
    with open_for_writing(half):
        assert len(states(half)) == 2


def test_two_trainings_do_not_mix(tmp_path):
    with open_for_writing(tmp_path) as store:
        go_on(store, "first", 3)
        go_on(store, "second", 5)
        assert store.records("first") == 3
        assert go_on(store, "first", 4) == (3, "")
        assert store.series("first") == expected(4)
        assert store.series("second") == expected(5)


def damage(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [(damage, "-2.safetensors is damaged"), (Path.unlink, "No such file")],
    ids=["damaged", "gone"],
)
def test_a_spoiled_state_is_said_and_the_one_before_taken(half, spoil, said):
    spoil(states(half)[-1])
    with open_for_writing(half) as store:
        done, wrong = go_on(store)
        assert done == 2
        assert said in wrong
    assert series(half) == expected(RECORDS)


def test_two_spoiled_states_are_an_error_and_the_records_stay(half):
    for path in states(half):
        damage(path)
    with open_for_writing(half) as store, pytest.raises(StoreError) as refused:
        go_on(store)
    assert f"cannot go on with '{NAME}' in {half}: " in str(refused.value)
    assert "-1.safetensors is damaged" in str(refused.value)
    assert "records are intact and can be exported" in str(refused.value)
    assert series(half) == expected(3)


def test_states_that_are_not_even_noted_are_an_error(half):
    as_first_written(half)
    change(half, "DELETE FROM states")
    with open_for_writing(half) as store, pytest.raises(StoreError, match="its state is gone"):
        go_on(store)
    assert series(half) == expected(3)


# --- what cannot be written -----------------------------------------------------------------


def test_a_full_database_leaves_its_records(half):
    with open_for_writing(half) as store:
        ((pages,),) = store._rows("PRAGMA page_count")
        store._rows(f"PRAGMA max_page_count = {pages + 2}")
        done, _ = store.resume(NAME, lambda ended, load: None)
        assert done == 3

        def keep_many():
            for record in range(done, 1000):
                keep(store, record)

        message = "database or disk is full; those before are intact.* Is the disk full"
        with pytest.raises(StoreError, match=message):
            keep_many()
        kept = store.records(NAME)
        assert store.series(NAME) == expected(kept)
        assert 3 < kept < 1000
        # Once there is room, the same process could even go on.
        store._rows("PRAGMA max_page_count = 100000")
        keep(store, kept)
    with open_for_writing(half) as store:
        assert go_on(store, records=kept + 3) == (kept + 1, "")
    assert series(half) == expected(kept + 3)


def test_a_state_that_cannot_be_cleared_away_is_said(half, monkeypatch):
    def fail(path, missing_ok=False):
        raise PermissionError(13, "Permission denied", str(path))

    with open_for_writing(half) as store:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", fail)
            with pytest.raises(StoreError, match=r"or keep records in .*: Permission denied"):
                keep(store, 3)
        assert store.records(NAME) == 4  # the record itself is kept


def test_a_state_that_could_not_be_noted_is_not_used(half, monkeypatch):
    with open_for_writing(half) as store:
        store._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(StoreError, match="attempt to write a readonly database"):
            keep(store, 3)
    with open_for_writing(half) as store:
        assert go_on(store) == (3, "")
    assert series(half) == expected(RECORDS)


def test_a_state_that_is_noted_is_whole(half):
    store = reading(half)
    noted = store._rows("SELECT record, file, sha256, ended FROM states ORDER BY record")
    store.close()
    assert [record for record, *_ in noted] == [1, 2]
    for record, file, digest, ended in noted:
        found = read_state(half / "states" / file, digest, state(0))
        np.testing.assert_array_equal(found["x"], state(record)["x"])
        assert json.loads(ended) == {"at": record}
