"""One run on disk: its series in SQLite, the states to go on from in files beside it.

A record is kept in this order: the state is written aside, synced, renamed, its folder synced; then
one transaction adds the record's rows and the name and SHA-256 of the state; then the state two
records back is deleted. So the database is the only truth, and whatever a power cut or `kill -9`
interrupts, it names a state that is whole.
"""

import fcntl
import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from .environment import commit, differences, fingerprint
from .states import read_state, write_state

DATABASE, STATES, LOCK = "run.sqlite", "states", "lock"
_FORMAT = "1"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS header (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sittings (
    number INTEGER PRIMARY KEY, started TEXT, command TEXT, source TEXT, fingerprint TEXT);
CREATE TABLE IF NOT EXISTS trainings (
    name TEXT PRIMARY KEY, settings TEXT, steps TEXT, statistics TEXT, status TEXT, seconds REAL);
CREATE TABLE IF NOT EXISTS states (
    training TEXT, record INTEGER, file TEXT, sha256 TEXT, ended TEXT,
    PRIMARY KEY (training, record));
CREATE TABLE IF NOT EXISTS series (
    training TEXT, record INTEGER, process TEXT, quantity TEXT, value REAL,
    PRIMARY KEY (training, record, process, quantity)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (name TEXT PRIMARY KEY, value TEXT, seconds REAL);
"""


class StoreError(Exception):
    """A run on disk that cannot be read or written; the message says what to do."""


class BeingWritten(StoreError):
    """A run that another process is writing."""


#: The value of each quantity of each process, at one record.
Rows = Mapping[str, Mapping[str, float]]


class Store:
    """A run on disk, open for reading; `writing` opens one for writing.

    Args:
        folder: The folder of the run.
        connection: Its database.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection):
        self.folder, self._connection = folder, connection

    # --- reading --------------------------------------------------------------------------

    def header(self, name: str) -> str:
        """What is noted about the run under a name."""
        rows = self._rows("SELECT value FROM header WHERE name = ?", name)
        if not rows:
            raise StoreError(
                f"the run in {self.folder} has no {name}: it was stopped before it began; run the "
                "command once more"
            )
        return rows[0][0]

    def sittings(self) -> list[dict[str, Any]]:
        """When the run was worked on, by which command, with which versions."""
        names = ("started", "command", "source", "fingerprint")
        rows = self._rows(f"SELECT {', '.join(names)} FROM sittings ORDER BY number")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [sitting | {"fingerprint": json.loads(sitting["fingerprint"])} for sitting in found]

    def trainings(self) -> dict[str, dict[str, Any]]:
        """By name, what is known of every training: settings, steps, status, costs, records."""
        names = ("settings", "steps", "statistics", "status", "seconds")
        rows = self._rows(f"SELECT name, {', '.join(names)} FROM trainings ORDER BY rowid")
        found = {}
        for name, *values in rows:
            stored = dict(zip(names, values, strict=True))
            found[name] = {n: json.loads(v) if n in names[:3] else v for n, v in stored.items()}
            found[name]["records"] = self.records(name)
        return found

    def records(self, training: str) -> int:
        """How many records of a training are kept."""
        query = "SELECT max(record) FROM series WHERE training = ?"
        ((last,),) = self._rows(query, training)
        return 0 if last is None else last + 1

    def series(self, training: str) -> dict[tuple[str, str], dict[int, float]]:
        """By process and quantity, the value at every record."""
        query = "SELECT process, quantity, record, value FROM series WHERE training = ?"
        found: dict[tuple[str, str], dict[int, float]] = {}
        for process, quantity, record, value in self._rows(query, training):
            at = found.setdefault((process, quantity), {})
            at[record] = math.nan if value is None else value
        return found

    def results(self) -> dict[str, Any]:
        """The results that are not series, by name."""
        return {n: json.loads(v) for n, v in self._rows("SELECT name, value FROM results")}

    def result_seconds(self) -> dict[str, float]:
        """How long each of the results took."""
        return dict(self._rows("SELECT name, seconds FROM results"))

    def close(self) -> None:
        """Closes the database."""
        self._connection.close()

    def _rows(self, query: str, *arguments: Any) -> list[Any]:
        with _explained(self.folder):
            return self._connection.execute(query, arguments).fetchall()

    # --- writing --------------------------------------------------------------------------

    def begin(self, training: str, settings: Any, steps: list[int]) -> None:
        """Notes a training that is about to start, unless it is noted already."""
        row = (training, json.dumps(settings), json.dumps(steps), "{}", "running", 0.0)
        with self._transaction():
            self._connection.execute(
                "INSERT OR IGNORE INTO trainings VALUES (?, ?, ?, ?, ?, ?)", row
            )
        self.require_settings(training, settings, steps)

    def require_settings(self, training: str, settings: Any, steps: list[int]) -> None:
        """Raises if a training is noted with other settings or steps than these."""
        noted = self._rows("SELECT settings, steps FROM trainings WHERE name = ?", training)
        if noted != [(json.dumps(settings), json.dumps(steps))]:
            raise StoreError(
                f"{training!r} in {self.folder} was begun with other settings, by another version "
                "of counterflow: its records can be exported (counterflow export); to compute them "
                "anew, move the folder away"
            )

    def keep(
        self,
        training: str,
        record: int,
        rows: Rows,
        state: PyTree,
        ended: Any,
        statistics: Any,
        seconds: float,
    ) -> None:
        """Keeps a record and the state to go on from: both are safe on disk when this returns."""
        path = self.folder / STATES / f"{_plain(training)}-{record}.safetensors"
        with _explained(self.folder):
            digest = write_state(path, state)
        values = [
            (training, record, process, quantity, value)
            for process, quantities in rows.items()
            for quantity, value in quantities.items()
        ]
        with self._transaction():
            execute = self._connection.execute
            self._connection.executemany("INSERT INTO series VALUES (?, ?, ?, ?, ?)", values)
            named = (training, record, path.name, digest, json.dumps(ended))
            execute("INSERT INTO states VALUES (?, ?, ?, ?, ?)", named)
            execute("DELETE FROM states WHERE training = ? AND record < ?", (training, record - 1))
            execute(
                "UPDATE trainings SET statistics = ?, seconds = ? WHERE name = ?",
                (json.dumps(statistics), seconds, training),
            )
        self._delete_other_states()

    def resume(
        self, training: str, fill: Callable[[Any, Callable[[PyTree], PyTree]], None]
    ) -> tuple[int, str]:
        """Goes on with a training from the last record whose state is whole.

        Args:
            training: Its name.
            fill: Called with what `keep` was given as `ended` and with a function that returns the
                stored state, given one of its structure.

        Returns:
            How many records are done, and what was wrong with a later state, if anything was.
        """
        columns = "record, file, sha256, ended"
        query = f"SELECT {columns} FROM states WHERE training = ? ORDER BY record DESC"
        wrong = ""
        for record, file, digest, ended in self._rows(query, training):
            path = self.folder / STATES / file
            try:
                fill(json.loads(ended), lambda like, p=path, d=digest: read_state(p, d, like))
            except (OSError, ValueError) as error:
                wrong = str(error)
                continue
            with self._transaction():
                for table in ("series", "states"):
                    self._connection.execute(
                        f"DELETE FROM {table} WHERE training = ? AND record > ?", (training, record)
                    )
            return record + 1, wrong
        if self.records(training):
            raise StoreError(
                f"cannot go on with {training!r} in {self.folder}: {wrong or 'its state is gone'}. "
                "Its records are intact and can be exported (counterflow export); to compute them "
                "anew, move the folder away"
            )
        return 0, wrong

    def finish(self, training: str, status: str) -> None:
        """Notes how a training ended; its states are not needed any more."""
        with self._transaction():
            execute = self._connection.execute
            execute("UPDATE trainings SET status = ? WHERE name = ?", (status, training))
            execute("DELETE FROM states WHERE training = ?", (training,))
        self._delete_other_states()

    def add_result(self, name: str, value: Any, seconds: float) -> None:
        """Keeps a result that is not a series."""
        with self._transaction():
            row = (name, json.dumps(value), seconds)
            self._connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", row)

    def _delete_other_states(self) -> None:
        """Deletes the states that the database does not name."""
        named = {file for (file,) in self._rows("SELECT file FROM states")}
        with _explained(self.folder):
            for path in (self.folder / STATES).iterdir():
                if path.name not in named:
                    path.unlink(missing_ok=True)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explained(self.folder), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield


def reading(folder: Path) -> Store:
    """A run on disk as it is now, open for reading, also while it is being written."""
    path = folder / DATABASE
    if not path.is_file():
        raise StoreError(
            f"{folder} is not a run: it has no {DATABASE}. A run is a folder that `counterflow "
            "reproduce` wrote, such as runs/digits-quick-…"
        )
    with _explained(folder):
        try:
            connection = _snapshot(path, "mode=ro")
        except sqlite3.OperationalError:
            # In a folder that cannot be written to, SQLite cannot note that it reads.
            connection = _snapshot(path, "immutable=1")
    return Store(folder, connection)


def _snapshot(path: Path, mode: str) -> sqlite3.Connection:
    """A database in which nothing changes any more, whatever is written meanwhile."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM header").fetchall()
    except sqlite3.Error:
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
    with _explained(folder):
        (folder / STATES).mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+", encoding="utf-8")
    with lock:
        with _explained(folder):
            _lock(lock, folder)
            _require_database(folder)
            connection = sqlite3.connect(folder / DATABASE, isolation_level=None)
        try:
            with _explained(folder):
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(_SCHEMA)
                _check(connection, folder)
                store = Store(folder, connection)
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
    header = {"format": _FORMAT, "configuration": configuration}
    with store._transaction():
        for row in header.items():
            connection.execute("INSERT OR IGNORE INTO header VALUES (?, ?)", row)
    for name, value in header.items():
        if store.header(name) != value:
            raise StoreError(
                f"{store.folder} holds a run of another {name}: take another folder, or move it "
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
    with store._transaction():
        connection.execute(
            "INSERT INTO sittings (started, command, source, fingerprint) VALUES (?, ?, ?, ?)", row
        )
    store._delete_other_states()


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
    """Raises if the database is empty or gone where a run left states: SQLite would begin anew."""
    path = folder / DATABASE
    known = path.exists() and path.stat().st_size > 0
    if not known and any((folder / STATES).glob("*.safetensors")):
        raise StoreError(_damaged(folder, "it is empty or gone, but there are states of a run"))


def _check(connection: sqlite3.Connection, folder: Path) -> None:
    ((verdict,), *_) = connection.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != "ok":
        raise StoreError(_damaged(folder, verdict))


def _damaged(folder: Path, reason: str) -> str:
    return (
        f"{folder / DATABASE} is damaged ({reason}): what can be read of it can be exported "
        "(counterflow export); to compute it anew, move the folder away"
    )


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Says what failed, where, and what to do, instead of what SQLite or the system call it."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        reason = str(error)
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in reason:
            raise StoreError(
                f"cannot read or keep records in {folder}: {reason}; those before are intact, and "
                "the same command goes on from there. Is the disk full, or the folder read-only?"
            ) from error
        raise StoreError(_damaged(folder, reason)) from error
    except OSError as error:
        raise StoreError(
            f"cannot read or keep records in {folder}: {error.strerror or error}; those before are "
            "intact, and the same command goes on from there"
        ) from error


def _plain(name: str) -> str:
    """A name without spaces and other characters that files should not have."""
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in name)
