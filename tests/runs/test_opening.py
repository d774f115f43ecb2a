"""Opening a run: one writes and any number read, and what is wrong with it is said."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from counterflow.runs import opening as module
from counterflow.runs.database import SCHEMA, StoreError
from counterflow.runs.environment import fingerprint
from counterflow.runs.opening import reading
from counterflow.runs.store import Store
from databases import change
from stores import (
    NAME,
    RECORDS,
    everything,
    expected,
    go_on,
    keep,
    open_for_writing,
    series,
    states,
)

# --- going on -------------------------------------------------------------------------------


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


# --- two at once ----------------------------------------------------------------------------

SECOND = """
import sys
from pathlib import Path
from counterflow.runs.database import StoreError
from counterflow.runs.opening import writing
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
    with pytest.raises(StoreError, match=r"run.sqlite is damaged|has no configuration"):
        reading(tmp_path / "killed").header("configuration")


@pytest.fixture
def moments(tmp_path):
    """A run as `kill -9` leaves it, after each of its commits: what was kept, and a copy."""
    found = []
    with open_for_writing(tmp_path / "run") as store:
        for what, commit in (
            ("the training", lambda: store.begin(NAME, {"seed": 7}, [0, 1, 2, 3])),
            *((f"record {i}", partial(keep, store, i)) for i in range(4)),
            ("the end", lambda: store.finish(NAME, "completed")),
            ("a result", lambda: store.add_result("one", 1, 0.0)),
            ("another result", lambda: store.add_result("two", 2, 0.0)),
        ):
            commit()
            found.append((what, tmp_path / what))
            shutil.copytree(tmp_path / "run", found[-1][1], ignore=shutil.ignore_patterns("*-shm"))
    return found


@contextmanager
def replaced(folder, name, other):
    """Within it, a file of a folder is that of another one, or not there."""
    before = (folder / name).read_bytes()
    if other is None:
        (folder / name).unlink()
    else:
        shutil.copy(other / name, folder / name)
    yield
    (folder / name).write_bytes(before)


def test_whatever_commit_a_log_has_lost_it_is_noticed(moments):
    message = r"run.sqlite is damaged \((the last 1 of|there is)"
    for (_, before), (_, now) in pairwise(moments):
        for attempt in (reading, lambda folder: open_for_writing(folder).__enter__()):
            with (
                replaced(now, "run.sqlite-wal", before),
                pytest.raises(StoreError, match=message),
            ):
                attempt(now)


def test_a_record_that_a_log_has_lost_is_noticed_also_by_the_states(moments):
    for (_, before), (what, now) in pairwise(moments):
        if what in ("record 2", "record 3"):
            with (
                replaced(now, "commits", None),
                replaced(now, "run.sqlite-wal", before),
                pytest.raises(StoreError, match=r"the state .*-[23].safetensors, but not its rec"),
            ):
                reading(now)


@pytest.mark.parametrize("lost", [False, True])
def test_a_note_of_commits_may_lag_behind_or_not_be_there(moments, lost):
    for (_, before), (what, now) in pairwise(moments):
        with replaced(now, "commits", None if lost else before):
            reading(now).close()
            with open_for_writing(now) as store:
                assert bool(store.results()) == ("result" in what)
        reading(now).close()


@pytest.mark.parametrize("content", [b"7", b"99 ", b"x y", bytes(200)])
def test_a_note_of_commits_that_is_damaged_is_told(half, content):
    whole = (half / "commits").read_bytes()
    (half / "commits").write_bytes(content)
    for attempt in (reading, lambda folder: open_for_writing(folder).__enter__()):
        with pytest.raises(StoreError, match=r"commits is damaged: .*delete it|more than the 100"):
            attempt(half)
    (half / "commits").write_bytes(b"")  # as a power cut may leave it
    reading(half).close()
    (half / "commits").write_bytes(whole)
    reading(half).close()


def test_a_database_that_is_gone_is_missed_also_without_states(moments):
    _, place = moments[-1]
    for path in place.glob("run.sqlite*"):
        path.unlink()
    with (
        pytest.raises(StoreError, match=r"it is empty or gone, but commits were noted"),
        open_for_writing(place),
    ):
        pass


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
    with pytest.raises(StoreError, match=r"(?s)run.sqlite is damaged \(.*put a copy of the folder"):
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


def test_records_that_only_an_unreadable_log_holds_are_not_left_out(half, shared):
    run = shared / "run"
    with open_for_writing(half) as store:
        keep(store, 3)
        shutil.copytree(half, run, ignore=shutil.ignore_patterns("*-shm"))
    with read_only(shared), pytest.raises(StoreError, match="copy the folder to where you may"):
        reading(run)


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


def test_a_store_is_what_reading_and_writing_give(half):
    reader = reading(half)
    assert isinstance(reader, Store)
    assert reader.folder == half
    with pytest.raises(StoreError, match="or keep records in"):
        reader.add_result("x", 1, 0.0)
    assert reader.results() == {}
    reader.close()
