"""Runs of a few numbers on disk, and all that is in them."""

import math
from hashlib import sha256

import numpy as np
import pytest

from counterflow.runs.opening import reading, writing

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


def everything(folder):
    """All that the database and the states hold."""
    store = reading(folder)
    tables = ("header", "sittings", "trainings", "states", "series", "results", "digests")
    found = {table: store._rows(f"SELECT * FROM {table}") for table in tables}
    store.close()
    return found | {path.name: sha256(path.read_bytes()).hexdigest() for path in states(folder)}
