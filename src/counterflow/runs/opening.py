"""A run on disk is opened: for reading at one moment of it, or for writing by one process alone."""

import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import commits, digests
from .database import (
    DATABASE,
    FIRST_FORMAT,
    FORMAT,
    SCHEMA,
    StoreError,
    bounded,
    damaged,
    explained,
    require_as_written,
    require_whole,
)
from .environment import commit, differences, fingerprint
from .store import STATES, Store, plain_name

LOCK = "lock"
# Why SQLite cannot open what may not be written to.
_NO_NOTE = ("SQLITE_CANTOPEN", "SQLITE_READONLY_DIRECTORY", "SQLITE_READONLY_CANTINIT")


class BeingWritten(StoreError):
    """A run that another process is writing."""


def reading(folder: Path, *, verify: bool = True) -> Store:
    """A run on disk as it is now, open for reading, also while it is being written.

    Args:
        folder: The folder of the run.
        verify: Whether to make sure that everything in it is what was written.
    """
    path = folder / DATABASE
    with explained(folder):
        if not path.is_file():
            raise StoreError(
                f"{folder} is not a run: it has no {DATABASE}. A run is a folder that `counterflow "
                "reproduce` wrote, such as runs/digits-quick-…"
            )
        # Before the database is looked at, which may go on meanwhile.
        number, states = commits.noted(folder) if verify else 0, _states(folder)
        try:
            connection = _snapshot(path, "mode=ro", verify)
        except sqlite3.OperationalError as error:
            # In a folder that cannot be written to, SQLite cannot note that it reads.
            if getattr(error, "sqlite_errorname", "") not in _NO_NOTE:
                raise
            log = folder / f"{DATABASE}-wal"
            if log.exists() and log.stat().st_size:
                raise StoreError(
                    f"{folder} cannot be written to, and {log.name} there holds records that "
                    "cannot be read without: copy the folder to where you may write"
                ) from error
            connection = _snapshot(path, "immutable=1", verify)
        store = Store(folder, connection)
        try:
            if verify:
                _require_records(store, states)
                commits.require_commits(connection, folder, number)
        except BaseException:
            store.close()
            raise
    return store


def _snapshot(path: Path, mode: str, verify: bool) -> sqlite3.Connection:
    """A database in which nothing changes any more, whatever is written meanwhile."""
    connection = bounded(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True))
    try:
        connection.execute("BEGIN")
        if verify:
            require_whole(connection, path.parent)
            require_as_written(connection, path.parent)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def writing(
    folder: Path, configuration: str, command: str, say: Callable[[str], None]
) -> Iterator[Store]:
    """A run on disk, open for writing, by this process alone.

    Args:
        folder: The folder of the run, made if need be.
        configuration: The configuration that everything in it belongs to.
        command: The command that is at work.
        say: Called with what the user should know, as that versions differ from earlier ones.
    """
    with explained(folder):
        (folder / STATES).mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+", encoding="utf-8")
    with lock:
        with explained(folder):
            _lock(lock, folder)
            _require_database(folder)
            connection = bounded(sqlite3.connect(folder / DATABASE, isolation_level=None))
        try:
            with explained(folder):
                require_whole(connection, folder)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(f"BEGIN;{SCHEMA}COMMIT;")  # all tables, or none
                require_as_written(connection, folder)
                store = Store(folder, connection)
                _require_records(store, _states(folder))
                commits.require_commits(connection, folder, commits.noted(folder))
                _open(store, connection, configuration, command, say)
            yield store
        finally:
            connection.close()  # also of a run that could not be opened


def _open(
    store: Store,
    connection: sqlite3.Connection,
    configuration: str,
    command: str,
    say: Callable[[str], None],
) -> None:
    """Notes a sitting, after having looked whether the run is of this configuration."""
    noted = dict(connection.execute("SELECT name, value FROM header"))
    if not noted:
        with store.transaction():
            rows = (("format", FORMAT), ("configuration", configuration))
            connection.executemany("INSERT INTO header VALUES (?, ?)", rows)
            digests.seal_all(connection)
    if store.header("configuration") != configuration:
        raise StoreError(
            f"{store.folder} holds a run of another configuration: take another folder, or move it "
            "away"
        )
    now = fingerprint()
    if sittings := store.sittings():
        changed = differences(sittings[-1]["fingerprint"], now)
        if changed:
            say(
                f"this run was begun elsewhere ({'; '.join(changed)}): it goes on, but its last "
                "digits may differ from those of a run in one piece"
            )
    row = (datetime.now(UTC).isoformat(timespec="seconds"), command, commit(), json.dumps(now))
    with store.transaction("sittings"):
        if noted.get("format") == FIRST_FORMAT:
            connection.execute("UPDATE header SET value = ? WHERE name = 'format'", (FORMAT,))
            digests.seal_all(connection)
        connection.execute(
            "INSERT INTO sittings (started, command, source, fingerprint) VALUES (?, ?, ?, ?)", row
        )
    store.delete_other_states()


def _lock(lock: Any, folder: Path) -> None:
    """Takes the folder's lock, which the system gives back even after `kill -9`."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        raise BeingWritten(
            f"{folder} is being written by {holder}: wait until it is done, or stop it; nothing "
            "was changed"
        ) from None
    # Not through the file's buffer, which on a full disk would fail once more when it is closed.
    os.ftruncate(lock.fileno(), 0)
    os.write(lock.fileno(), f"process {os.getpid()}".encode())


def _require_database(folder: Path) -> None:
    """Raises if the database is empty or gone where a run was: SQLite would begin anew."""
    path = folder / DATABASE
    known = path.exists() and path.stat().st_size > 0
    if not known and _states(folder):
        raise StoreError(damaged(folder, "it is empty or gone, but there are states of a run"))
    if not known and commits.noted(folder):
        raise StoreError(damaged(folder, "it is empty or gone, but commits were noted"))


def _states(folder: Path) -> list[Path]:
    return list((folder / STATES).glob("*.safetensors"))


def _require_records(store: Store, states: Sequence[Path]) -> None:
    """Raises if a state is ahead of the records by more than the one that was being kept.

    Then records are gone, as when the log of the database was cut off, and would be computed anew.
    So is one whose state is there if the state two before it is named and was deleted: that comes
    after the commit.
    """
    there = {path.name for path in states}
    deleted = {plain_name(name) for name, file in store.state_files() if file not in there}
    done = {plain_name(name): records for name, records in store.record_counts().items()}
    for path in states:
        training, _, record = path.stem.rpartition("-")
        if not record.isdigit():
            continue
        ahead = int(record) - done.get(training, 0)
        if ahead > 0 or (ahead == 0 and training in deleted):
            what = "the records before it" if ahead else "its record, though that was kept"
            reason = f"there is the state {path.name}, but not {what}"
            raise StoreError(damaged(store.folder, reason))
