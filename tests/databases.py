"""Databases of runs, changed behind the store's back."""

import sqlite3
from contextlib import closing


def change(folder, *statements):
    """Carries out statements in the database of a run, without a word to its digests."""
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def as_first_written(folder):
    """Makes a run what it was in the first format, without digests."""
    change(folder, "DROP TABLE digests", "UPDATE header SET value = '1' WHERE name = 'format'")
