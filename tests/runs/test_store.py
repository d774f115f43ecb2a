"""One run on disk: what is kept comes back, and whatever goes wrong leaves what was kept."""

import json
import math
import os
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from counterflow.runs import store as module
from counterflow.runs.database import SCHEMA
from counterflow.runs.environment import fingerprint
from counterflow.runs.states import read_state
from counterflow.runs.store import Store, StoreError, reading, writing
from databases import as_first_written, change

NAME = "η = 0.1, λ = 0.01, seed 7"
RECORDS = 6


def rows(record):
    value = math.sin(record + 1)
    return {"descent": {"loss": value}, "flow 0": {"error": value / 3, "flow_loss": -value}}


def state(record, size=3):
    return {"x": np.arange(size) + record / 7}


def keep(store, record, name=NAME, size=3):
    seconds = record / 10
    store.keep(name, record, rows(record), state(record, size), {"at": record}, {}, seconds)


def open_for_writing(folder, configuration="{}", command="a command", say=None):
    return writing(folder, configuration, command, say or pytest.fail)


def go_on(store, name=NAME, records=RECORDS, size=3):
    """What a training does: resume, keep what is missing, finish; returns how much was there."""
    if name not in store.trainings():
        store.begin(name, {"seed": 7}, list(range(records)))
    found = {}

    def fill(ended, load):
        found["x"], found["ended"] = load(state(0, size))["x"], ended

    done, wrong = store.resume(name, fill)
    if done:
        assert found["ended"] == {"at": done - 1}
        np.testing.assert_array_equal(found["x"], state(done - 1, size)["x"])
    for record in range(done, records):
        keep(store, record, name, size)
    return done, wrong


@pytest.fixture
def half(tmp_path):
    """A run of which three records are done."""
    folder = tmp_path / "runs" / "half"
    with open_for_writing(folder) as store:
        assert go_on(store, records=3) == (0, "")
    return folder


def series(folder, name=NAME):
    store = reading(folder)
    try:
        return store.series(name)
    finally:
        store.close()


def expected(records):
    found = {}
    for record in range(records):
        for process, quantities in rows(record).items():
            for quantity, value in quantities.items():
                found.setdefault((process, quantity), {})[record] = value
    return found


def states(folder):
    """The files of the states, the oldest record first."""
    return sorted((folder / "states").iterdir(), key=lambda path: path.name)


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


def test_every_sitting_is_noted(half):
    with open_for_writing(half, command="once more") as store:
        assert [sitting["command"] for sitting in store.sittings()] == ["a command", "once more"]


def test_another_machine_is_said_and_the_run_goes_on(half, monkeypatch):
    monkeypatch.setattr(module, "fingerprint", lambda: fingerprint() | {"cores": "96"})
    said = []
    with open_for_writing(half, say=said.append) as store:
        assert go_on(store) == (3, "")
    (message,) = said
    cores = len(os.sched_getaffinity(0))
    assert message.startswith(
        f"this run was begun elsewhere (cores was {cores}, is 96): it goes on"
    )
    assert "last digits may differ" in message
    with open_for_writing(half):  # that machine again: nothing to say
        pass
    assert series(half) == expected(RECORDS)


def test_another_configuration_is_refused_and_nothing_changed(half):
    before = everything(half)
    with (
        pytest.raises(StoreError, match="holds a run of another configuration: take another"),
        open_for_writing(half, '{"seed": 8}'),
    ):
        pass
    assert everything(half) == before


def test_another_format_is_refused(half):
    change(half, "UPDATE header SET value = '99' WHERE name = 'format'")
    with (
        pytest.raises(StoreError, match="another format, '99': read it with"),
        open_for_writing(half),
    ):
        pass
    with pytest.raises(StoreError, match="another format"):
        reading(half)


def everything(folder):
    """All that the database and the states hold."""
    store = reading(folder)
    tables = ("header", "sittings", "trainings", "states", "series", "results", "digests")
    found = {table: store._rows(f"SELECT * FROM {table}") for table in tables}
    store.close()
    return found | {path.name: sha256(path.read_bytes()).hexdigest() for path in states(folder)}


# --- two at once ----------------------------------------------------------------------------

SECOND = """
import sys
from pathlib import Path
from counterflow.runs.store import StoreError, writing
try:
    with writing(Path(sys.argv[1]), "{}", "second", print):
        print("open")
except StoreError as error:
    print(error)
"""


def test_a_second_process_says_who_is_writing_and_changes_nothing(half):
    with open_for_writing(half) as store:
        keep(store, 3)
        before = everything(half)
        command = [sys.executable, "-c", SECOND, str(half)]
        second = subprocess.run(command, capture_output=True, text=True, check=True)
        assert second.stdout.strip() == (
            f"{half} is being written by process {os.getpid()}: wait until it is done, or stop it; "
            "nothing was changed"
        )
        assert everything(half) == before
        keep(store, 4)  # and the first one goes on
    with open_for_writing(half) as store:
        assert go_on(store) == (5, "")


def test_a_second_writer_in_the_same_process_is_refused_too(half):
    with open_for_writing(half):
        with pytest.raises(StoreError, match=f"written by process {os.getpid()}:"):
            open_for_writing(half).__enter__()
        (half / "lock").write_text("")
        with pytest.raises(StoreError, match="written by another process: wait"):
            open_for_writing(half).__enter__()


def test_the_lock_is_given_back_also_after_an_error(half):
    with pytest.raises(RuntimeError, match="midway"), open_for_writing(half):
        raise RuntimeError("midway")
    with open_for_writing(half) as store:
        assert go_on(store) == (3, "")


def test_a_run_is_read_while_it_is_being_written(half):
    with open_for_writing(half) as store:
        for record in range(3, RECORDS):
            keep(store, record)
            assert series(half) == expected(record + 1)


def test_a_reader_sees_one_moment_of_a_run(half):
    reader = reading(half)
    with open_for_writing(half) as store:
        assert reader.records(NAME) == 3
        keep(store, 3)
        assert reader.series(NAME) == expected(3)
        assert reader.trainings()[NAME]["seconds"] == pytest.approx(0.2)
    reader.close()
    assert series(half) == expected(4)


# --- what cannot be read --------------------------------------------------------------------


def test_a_folder_without_a_run_is_said_to_be_none(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreError, match=r"is not a run: it has no run.sqlite.*reproduce"):
            reading(folder)


def test_garbage_instead_of_a_database_is_said_and_kept(tmp_path):
    garbage = bytes(range(256)) * 40
    (tmp_path / "run.sqlite").write_bytes(garbage)
    message = r"run.sqlite is damaged \(file is not a database\): .* move the folder away"
    with pytest.raises(StoreError, match=message):
        reading(tmp_path)
    with pytest.raises(StoreError, match=message), open_for_writing(tmp_path):
        pass
    assert (tmp_path / "run.sqlite").read_bytes() == garbage


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_a_truncated_database_is_said_to_be_damaged(half, kept):
    path = half / "run.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(StoreError, match=r"run.sqlite is damaged \(.*\): .*"):
        open_for_writing(half).__enter__()
    assert path.stat().st_size == int(kept * len(content))
    assert len(states(half)) == 2


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_database_that_is_gone_is_not_begun_anew(half, spoil):
    spoil(half / "run.sqlite")
    with (
        pytest.raises(StoreError, match=r"run.sqlite is damaged \(it is empty or gone, but there"),
        open_for_writing(half),
    ):
        pass
    assert len(states(half)) == 2


# Where the log ends: before the tables, before the training, before its records.
@pytest.mark.parametrize("part", [0, 0.2, 0.5, 0.7])
def test_a_log_that_was_cut_off_is_noticed_and_nothing_begun_anew(tmp_path, part):
    with open_for_writing(tmp_path / "run") as store:
        go_on(store, records=4)
        shutil.copytree(tmp_path / "run", tmp_path / "killed")
    log = tmp_path / "killed" / "run.sqlite-wal"
    log.write_bytes(log.read_bytes()[: int(part * log.stat().st_size)])
    (tmp_path / "killed" / "run.sqlite-shm").unlink()
    with (
        pytest.raises(StoreError, match=r"run.sqlite is damaged \(there is the state .*-[23]\."),
        open_for_writing(tmp_path / "killed"),
    ):
        pass
    assert len(states(tmp_path / "killed")) == 2


def test_a_damaged_page_is_noticed(half):
    path = half / "run.sqlite"
    content = bytearray(path.read_bytes())
    with open_for_writing(half) as store:
        ((page,),) = store._rows("SELECT rootpage FROM sqlite_master WHERE name = 'series'")
        ((size,),) = store._rows("PRAGMA page_size")
    content[(page - 1) * size : (page - 1) * size + 100] = bytes(range(100))
    path.write_bytes(bytes(content))
    with pytest.raises(StoreError, match=r"run.sqlite is damaged"), open_for_writing(half):
        pass
    with pytest.raises(StoreError, match=r"(?s)run.sqlite is damaged \(.*put a copy from before"):
        reading(half)


def test_a_database_of_another_program_is_no_run(tmp_path):
    connection = sqlite3.connect(tmp_path / "run.sqlite")
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    before = (tmp_path / "run.sqlite").read_bytes()
    for attempt in (reading, lambda folder: open_for_writing(folder).__enter__()):
        with pytest.raises(StoreError, match="must be the database of a run, but has 'other'"):
            attempt(tmp_path)
    assert (tmp_path / "run.sqlite").read_bytes() == before


def test_a_run_that_was_killed_before_it_had_a_header_can_be_begun_again(tmp_path):
    connection = sqlite3.connect(tmp_path / "run.sqlite")
    connection.executescript(SCHEMA)
    connection.close()
    store = reading(tmp_path)
    with pytest.raises(StoreError, match="has no configuration"):
        store.header("configuration")
    store.close()
    with open_for_writing(tmp_path) as store:
        assert go_on(store) == (0, "")
    assert series(tmp_path) == expected(RECORDS)


def test_nothing_stays_open_after_an_error(half, tmp_path):
    (tmp_path / "run.sqlite").write_bytes(b"garbage" * 1000)
    before = os.listdir("/proc/self/fd")
    for attempt in (reading, lambda folder: open_for_writing(folder).__enter__()):
        with pytest.raises(StoreError):
            attempt(tmp_path)
    reading(half).close()
    assert len(os.listdir("/proc/self/fd")) == len(before)


# --- what cannot be written -----------------------------------------------------------------


@contextmanager
def read_only(folder):
    """Within it, the folder and what is in it cannot be written to, not even by root."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # nobody
    try:
        yield
    finally:
        os.seteuid(user)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def shared():
    """A folder that every user can look into, which pytest's cannot be."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_read_only_folder_is_said_and_can_be_read(half, shared):
    run = shared / "run"
    shutil.copytree(half, run)
    with read_only(shared):
        for folder, wanted in ((run, "or keep records in .*run: "), (shared / "new", "denied")):
            with pytest.raises(StoreError, match=wanted), open_for_writing(folder):
                pass
        assert series(run) == expected(3)
    with open_for_writing(run) as store:
        assert go_on(store) == (3, "")


def test_what_only_the_log_holds_is_read_in_a_read_only_folder_too(half, shared):
    run = shared / "run"
    with open_for_writing(half) as store:
        keep(store, 3)
        shutil.copytree(half, run)  # as `kill -9` leaves it
    assert (run / "run.sqlite-wal").stat().st_size > 0
    with read_only(shared):
        assert series(run) == expected(4)


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match=r"or keep records in .*file/run: Not a directory"),
        open_for_writing(tmp_path / "file" / "run"),
    ):
        pass


@contextmanager
def no_file_longer_than(size):
    """A disk that is full: the system refuses to make any file longer."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


# Where it becomes full: at the lock, the database, a state, the log.
@pytest.mark.parametrize(("limit", "size"), [(0, 3), (2000, 3), (40_000, 9_000), (140_000, 3)])
def test_a_full_disk_is_said_and_later_the_run_goes_on(tmp_path, limit, size):
    with open_for_writing(tmp_path) as store:
        go_on(store, records=2, size=size)
    with (
        no_file_longer_than(limit),
        pytest.raises(StoreError, match=r"or keep records in .*those before are intact"),
        open_for_writing(tmp_path) as store,
    ):
        go_on(store, records=100, size=size)
    kept = len(series(tmp_path)["descent", "loss"])
    assert kept == 2 or limit > 100_000
    assert series(tmp_path) == expected(kept)
    with open_for_writing(tmp_path) as store:
        assert go_on(store, records=100, size=size) == (kept, "")
    assert series(tmp_path) == expected(100)


def test_a_new_run_on_a_full_disk_is_refused(tmp_path):
    for limit in (0, 100, 20_000, 40_000):
        with (
            no_file_longer_than(limit),
            pytest.raises(StoreError, match="or keep records in"),
            open_for_writing(tmp_path) as store,
        ):
            go_on(store)
    with open_for_writing(tmp_path) as store:
        go_on(store)
    assert series(tmp_path) == expected(RECORDS)


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


def test_a_store_is_what_reading_and_writing_give(half):
    reader = reading(half)
    assert isinstance(reader, Store)
    assert reader.folder == half
    with pytest.raises(StoreError, match="or keep records in"):
        reader.add_result("x", 1, 0.0)
    assert reader.results() == {}
    reader.close()
