"""One run on disk: its series in SQLite, the states to go on from in files beside it.

A record is kept in this order: the state is written aside, synced, renamed, its folder synced; then
one transaction adds the record's rows and the name and SHA-256 of the state; then the state two
records back is deleted. So the database is the only truth, and whatever a power cut or `kill -9`
interrupts, it names a state that is whole. Everything in it has a digest: see `digests.py`; that
none of its commits is gone: see `commits.py`.
"""

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from . import commits, digests
from .database import StoreError, damaged, explained
from .fields import conforms
from .resuming import Resuming
from .states import read_state, write_state

STATES = "states"
_JSON_OF_A_TRAINING = {
    "settings": dict[str, Any],
    "steps": list[int],
    "statistics": dict[str, dict[str, Any]],
}


#: The value of each quantity of each process, at one record.
Rows = Mapping[str, Mapping[str, float]]


class Store(Resuming):
    """A run on disk, as `reading` or `writing` opened it.

    Args:
        folder: The folder of the run.
        connection: Its database.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection):
        self.folder, self._connection = folder, connection

    # --- reading --------------------------------------------------------------------------

    def header(self, name: str) -> str:
        """What is noted about the run under a name."""
        noted = dict(self._typed("SELECT name, value FROM header", str, str))
        if name not in noted:
            raise StoreError(
                f"the run in {self.folder} has no {name}: it was stopped before it began; run the "
                "command once more"
            )
        return noted[name]

    def sittings(self) -> list[dict[str, Any]]:
        """When the run was worked on, by which command, with which versions."""
        names = ("started", "command", "source", "fingerprint")
        rows = self._typed(f"SELECT {', '.join(names)} FROM sittings ORDER BY number", *[str] * 4)
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [
            sitting | {"fingerprint": self._json(sitting["fingerprint"], dict[str, str])}
            for sitting in found
        ]

    def trainings(self) -> dict[str, dict[str, Any]]:
        """By name, what is known of every training: settings, steps, status, costs, records."""
        query = f"SELECT name, {', '.join(_JSON_OF_A_TRAINING)}, status, seconds FROM trainings"
        found = {}
        for name, *texts, status, seconds in self._typed(
            f"{query} ORDER BY rowid", *[str] * 5, float
        ):
            pairs = zip(_JSON_OF_A_TRAINING.items(), texts, strict=True)
            found[name] = {key: self._json(text, hint) for (key, hint), text in pairs}
            found[name] |= {"status": status, "seconds": seconds, "records": self.records(name)}
        return found

    def records(self, training: str) -> int:
        """How many records of a training are kept."""
        query = "SELECT max(record) FROM series WHERE training = ?"
        ((last,),) = self._typed(query, int | None, about=training)
        return 0 if last is None else last + 1

    def record_counts(self) -> dict[str, int]:
        """How many records are kept of everything that has any, by name."""
        query = "SELECT training, max(record) + 1 FROM series GROUP BY training"
        return dict(self._typed(query, str, int))

    def series(self, training: str) -> dict[tuple[str, str], dict[int, float]]:
        """By process and quantity, the value at every record."""
        query = "SELECT process, quantity, record, value FROM series WHERE training = ?"
        found: dict[tuple[str, str], dict[int, float]] = {}
        rows = self._typed(query, str, str, int, float | None, about=training)
        for process, quantity, record, value in rows:
            at = found.setdefault((process, quantity), {})
            at[record] = math.nan if value is None else value
        return found

    def results(self) -> dict[str, Any]:
        """The results that are not series, by name."""
        rows = self._typed("SELECT name, value FROM results", str, str)
        return {name: self._json(text, Any) for name, text in rows}

    def result_seconds(self) -> dict[str, float]:
        """How long each of the results took."""
        return dict(self._typed("SELECT name, seconds FROM results", str, float))

    def close(self) -> None:
        """Closes the database."""
        self._connection.close()

    def _rows(self, query: str, *arguments: Any) -> list[Any]:
        with explained(self.folder):
            return self._connection.execute(query, arguments).fetchall()

    def _typed(self, query: str, *hints: Any, about: str | None = None) -> list[Any]:
        """Rows whose values are of the types given: SQLite itself would keep any."""
        rows = self._rows(query, *(() if about is None else (about,)))
        for row in rows:
            if not all(map(conforms, row, hints)):
                raise StoreError(damaged(self.folder, f"{row!r:.200} is no row of a run"))
        return rows

    def _json(self, text: str, hint: Any) -> Any:
        """What was written as JSON, of a type."""
        try:
            value = json.loads(text)
        except (RecursionError, ValueError) as error:
            raise StoreError(damaged(self.folder, f"{text[:200]!r}: {error}")) from error
        if not conforms(value, hint):
            raise StoreError(damaged(self.folder, f"{text[:200]!r} is not what it should be"))
        return value

    # --- writing --------------------------------------------------------------------------

    def begin(self, training: str, settings: Any, steps: list[int]) -> None:
        """Notes a training that is about to start, unless it is noted already."""
        row = (training, json.dumps(settings), json.dumps(steps), "{}", "running", 0.0)
        with self.transaction("trainings"):
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
        path = self.folder / STATES / f"{plain_name(training)}-{record}.safetensors"
        with explained(self.folder):
            digest = write_state(path, state)
        values = [
            (training, record, process, quantity, value)
            for process, quantities in rows.items()
            for quantity, value in quantities.items()
        ]
        with self.transaction("trainings", "states"):
            execute = self._connection.execute
            self._connection.executemany("INSERT INTO series VALUES (?, ?, ?, ?, ?)", values)
            named = (training, record, path.name, digest, json.dumps(ended))
            execute("INSERT INTO states VALUES (?, ?, ?, ?, ?)", named)
            execute("DELETE FROM states WHERE training = ? AND record < ?", (training, record - 1))
            execute(
                "UPDATE trainings SET statistics = ?, seconds = ? WHERE name = ?",
                (json.dumps(statistics), seconds, training),
            )
            digests.seal_record(self._connection, training, record)
        self.delete_other_states()

    def states(self, training: str) -> list[tuple[int, str]]:
        """The records of which there are states, the latest first, with their `ended` as JSON."""
        query = "SELECT record, ended FROM states WHERE training = ? ORDER BY record DESC"
        return self._rows(query, training)

    def state(self, training: str, record: int, like: PyTree) -> PyTree:
        """The state of a record, with the structure of another one."""
        query = "SELECT file, sha256 FROM states WHERE training = ? AND record = ?"
        ((file, digest),) = self._rows(query, training, record)
        return read_state(self.folder / STATES / file, digest, like)

    def state_files(self) -> list[tuple[str, str]]:
        """The training and the file of every state that is named."""
        return self._typed("SELECT training, file FROM states", str, str)

    def go_back(self, training: str, record: int) -> None:
        """Forgets what came after a record."""
        with self.transaction("states"):
            for table in ("series", "states"):
                self._connection.execute(
                    f"DELETE FROM {table} WHERE training = ? AND record > ?", (training, record)
                )
            digests.forget_records(self._connection, training, record)

    def require_no_records(self, training: str, wrong: str) -> None:
        """Raises if there are records, none of which can be gone on from."""
        if self.records(training):
            raise StoreError(
                f"cannot go on with {training!r} in {self.folder}: {wrong or 'its state is gone'}. "
                "Its records are intact and can be exported (counterflow export); to compute them "
                "anew, move the folder away"
            )

    def finish(self, training: str, status: str) -> None:
        """Notes how a training ended; its states are not needed any more."""
        with self.transaction("trainings", "states"):
            execute = self._connection.execute
            execute("UPDATE trainings SET status = ? WHERE name = ?", (status, training))
            execute("DELETE FROM states WHERE training = ?", (training,))
        self.delete_other_states()

    def add_result(self, name: str, value: Any, seconds: float) -> None:
        """Keeps a result that is not a series; states on the way to it are not needed any more."""
        with self.transaction("results", "states"):
            row = (name, json.dumps(value), seconds)
            self._connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", row)
            self._connection.execute("DELETE FROM states WHERE training = ?", (name,))
        self.delete_other_states()

    def delete_other_states(self) -> None:
        """Deletes the states that the database does not name."""
        named = {file for (file,) in self._rows("SELECT file FROM states")}
        with explained(self.folder):
            for path in (self.folder / STATES).iterdir():
                if path.name not in named:
                    path.unlink(missing_ok=True)

    @contextmanager
    def transaction(self, *tables: str) -> Iterator[None]:
        """All of what is done within it is kept, with the digests of the tables, or nothing."""
        with explained(self.folder), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            digests.seal_tables(self._connection, *tables)
            number = commits.count_one(self._connection)
        with explained(self.folder):
            commits.note(self.folder, number)


def plain_name(name: str) -> str:
    """A name without spaces and other characters that files should not have."""
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in name)
