"""The database of a run: its tables, its format, and whether it is whole."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from . import digests

DATABASE = "run.sqlite"
# The first format had no digests. A run of it is read as it is, and gets them when it goes on.
FORMAT, FIRST_FORMAT = "2", "1"
# Every run on disk has these words in it, to the letter: what differs is no run.
SCHEMA = f"""
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
{digests.SCHEMA}"""


#: As long as a value of a run may be: the largest result has some megabytes.
MOST_BYTES = 2**28


class StoreError(Exception):
    """A run on disk that cannot be read or written; the message says what to do."""


def bounded(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The same connection, which takes no value into memory that is longer than a run has."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    return connection


def require_whole(connection: sqlite3.Connection, folder: Path) -> None:
    """Raises unless a database has the tables of a run and nothing else, all of them intact.

    A view or a trigger of someone else's would be carried out when it is read.
    """
    foreign = _tables(connection) - _known_tables()
    if foreign:
        names = ", ".join(sorted(str(name) for _, name, _ in foreign))
        raise StoreError(
            f"{folder / DATABASE} must be the database of a run, but has {names!r:.200}, as none "
            "has: it is another program's or damaged; take another folder, or move it away"
        )
    ((verdict,), *_) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != "ok":
        raise StoreError(damaged(folder, verdict))


def _tables(connection: sqlite3.Connection) -> set[Any]:
    return set(connection.execute("SELECT type, name, sql FROM sqlite_master"))


@cache
def _known_tables() -> set[Any]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return _tables(connection)


def require_as_written(connection: sqlite3.Connection, folder: Path) -> None:
    """Raises unless what a database holds is what was written, as far as its format can tell."""
    format = dict(connection.execute("SELECT name, value FROM header")).get("format")
    if format not in (FORMAT, FIRST_FORMAT, None):
        raise StoreError(
            f"{folder} holds a run of another format, {format!r:.20}: read it with the version of "
            "counterflow that wrote it, or move it away"
        )
    if format == FORMAT:
        wrong = digests.first_difference(connection)
    else:
        there = any(name == "digests" for _, name, _ in _tables(connection))
        sealed = there and connection.execute("SELECT * FROM digests LIMIT 1").fetchall()
        wrong = "its format is not what was written" if sealed else ""
    if wrong:
        raise StoreError(damaged(folder, wrong))


def damaged(folder: Path, reason: str) -> str:
    """What to say of a database that is damaged."""
    return (
        f"{folder / DATABASE} is damaged ({reason}): put a copy of the folder from before in its "
        "place, or move the folder away to compute it anew"
    )


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Says what failed, where, and what to do, instead of what SQLite or the system call it."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        reason = str(error)
        broken = any(word in reason for word in ("malformed", "decode", "no such", "too big"))
        if isinstance(error, sqlite3.OperationalError) and not broken:
            raise StoreError(
                f"cannot read or keep records in {folder}: {reason}; those before are intact, and "
                "the same command goes on from there. Is the disk full, or the folder read-only?"
            ) from error
        raise StoreError(damaged(folder, reason)) from error
    except UnicodeDecodeError as error:  # of a name in SQLite's own message
        raise StoreError(damaged(folder, str(error))) from error
    except UnicodeEncodeError as error:
        raise StoreError(
            f"cannot keep {error.object!r:.200} in {folder}: it must be text that can be written, "
            "and has characters that stand for none; give it another name"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot read or keep records in {folder}: {error.strerror or error}; those before are "
            "intact, and the same command goes on from there"
        ) from error
