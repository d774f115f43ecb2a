"""How many commits a database has seen, noted beside it.

SQLite reads a log up to where it is whole: one that was cut off is an earlier moment of the run,
and what came after it would be missing without a word. So commits are counted in the database, and
the number is noted in a file after each: a database with fewer than that has lost some.
"""

import sqlite3
from hashlib import sha256
from pathlib import Path

from ..data.files import read_plain
from .database import DATABASE, StoreError, damaged

COMMITS = "commits"
# A number and its digest are shorter.
_LONGEST = 100


def count_one(connection: sqlite3.Connection) -> int:
    """Counts the commit that is being made; returns how many there are with it."""
    number = _counted(connection) + 1
    connection.execute(f"PRAGMA user_version = {number}")  # it is rolled back like everything else
    return number


def note(folder: Path, number: int) -> None:
    """Notes that so many commits were made.

    It is not synced, so that it costs next to nothing: after a power cut it may lag behind the
    database, which is safe by then, as it does after a kill in between; but it never leads.
    """
    aside = folder / f"{COMMITS}.part"
    aside.write_bytes(_content(number))
    aside.replace(folder / COMMITS)


def noted(folder: Path) -> int:
    """How many commits were noted: none in a run of an earlier version, or after a power cut."""
    path = folder / COMMITS
    if not path.exists():
        return 0
    content = read_plain(path, _LONGEST)
    number = content.split(b" ")[0]
    if not content:
        return 0
    if not number.isdigit() or content != _content(int(number)):
        raise StoreError(
            f"{path} is damaged: it must hold a number and its digest, got {content!r}; without it "
            f"the run is read as {DATABASE} has it, so delete it if nothing else was damaged"
        )
    return int(number)


def require_commits(connection: sqlite3.Connection, folder: Path, number: int) -> None:
    """Raises if a database has seen fewer commits than were noted before it was looked at."""
    there = _counted(connection)
    if there < number:
        reason = f"the last {number - there} of the {number} commits that were noted are gone"
        raise StoreError(damaged(folder, reason))


def _counted(connection: sqlite3.Connection) -> int:
    ((number,),) = connection.execute("PRAGMA user_version").fetchall()
    return number


def _content(number: int) -> bytes:
    return f"{number} {sha256(str(number).encode()).hexdigest()}\n".encode()
