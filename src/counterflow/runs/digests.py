"""Digests of what a database holds: SQLite finds broken pages, not a number that has changed.

There is one for each record of the series, and one for each further table as a whole. They are
written in the transaction that changes what they are of.
"""

import json
import sqlite3
from collections.abc import Iterable
from hashlib import sha256
from itertools import groupby
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS digests (
    part TEXT, training TEXT, record INTEGER, sha256 TEXT NOT NULL,
    PRIMARY KEY (part, training, record)) WITHOUT ROWID;
"""
TABLES = ("header", "sittings", "trainings", "states", "results")
_SERIES = "SELECT training, record, process, quantity, value FROM series"
_ORDER = "ORDER BY training, record, process, quantity"


def seal_tables(connection: sqlite3.Connection, *tables: str) -> None:
    """Notes the digests of tables as they are now."""
    for table in tables:
        _note(connection, table, "", 0, _of_table(connection, table))


def seal_record(connection: sqlite3.Connection, training: str, record: int) -> None:
    """Notes the digest of a record as it is now."""
    query = f"{_SERIES} WHERE training = ? AND record = ? {_ORDER}"
    rows = connection.execute(query, (training, record))
    _note(connection, "series", training, record, _digest(rows))


def seal_all(connection: sqlite3.Connection) -> None:
    """Notes the digests of everything as it is now, as of a run that has none."""
    connection.execute("DELETE FROM digests")
    seal_tables(connection, *TABLES)
    for (training, record), digest in _of_series(connection).items():
        _note(connection, "series", training, record, digest)


def forget_records(connection: sqlite3.Connection, training: str, last: int) -> None:
    """Removes the digests of the records after the last one that stays."""
    query = "DELETE FROM digests WHERE part = 'series' AND training = ? AND record > ?"
    connection.execute(query, (training, last))


def first_difference(connection: sqlite3.Connection) -> str:
    """What is not as it was written, in words; nothing if all is."""
    noted = {
        (part, training, record): digest
        for part, training, record, digest in connection.execute("SELECT * FROM digests")
    }
    found = {(table, "", 0): _of_table(connection, table) for table in TABLES}
    found |= {("series", *key): digest for key, digest in _of_series(connection).items()}
    for part, training, record in sorted(noted.keys() | found.keys(), key=repr):
        key = (part, training, record)
        if noted.get(key) != found.get(key):
            what = f"record {record} of {training!r}" if part == "series" else f"the table {part}"
            return f"{what} is not what was written"
    return ""


def _of_table(connection: sqlite3.Connection, table: str) -> str:
    return _digest(connection.execute(f"SELECT * FROM {table} ORDER BY rowid"))


def _of_series(connection: sqlite3.Connection) -> dict[tuple[str, int], str]:
    rows = connection.execute(f"{_SERIES} {_ORDER}")
    return {key: _digest(group) for key, group in groupby(rows, key=lambda row: row[:2])}


def _digest(rows: Iterable[Any]) -> str:
    """The SHA-256 of rows, as JSON: every bit of a number counts, and so does its type."""
    digest = sha256()
    for row in rows:
        # A damaged row may hold bytes, which JSON has not.
        digest.update(json.dumps(row, default=repr).encode() + b"\n")
    return digest.hexdigest()


def _note(
    connection: sqlite3.Connection, part: str, training: str, record: int, digest: str
) -> None:
    row = (part, training, record, digest)
    connection.execute("INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?)", row)
