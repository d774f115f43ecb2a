"""Folders that are said to be runs: an error in words, at once and in little memory."""

import json
import os
import random
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, strategies as st

from counterflow.cli import main
from counterflow.runs import database
from counterflow.runs.database import SCHEMA, StoreError
from counterflow.runs.opening import writing
from counterflow.runs.run import open_run
from databases import as_first_written, change
from memory import peak_memory

NAME = "η = 0.1"
SETTINGS = {
    "learning_rate": 0.1,
    "weight_decay": 0.0,
    "seed": 7,
    "steps": 2,
    "records": 2,
    "orders": [0],
}


def begun(folder):
    """A run of two records and a result."""
    with writing(folder, "{}", "a command", pytest.fail) as store:
        store.begin(NAME, SETTINGS, [0, 1, 2])
        for record in range(2):
            rows = {"descent": {"loss": 1.0}, "flow 0": {"error": 0.5}}
            store.keep(NAME, record, rows, {}, {}, {"descent": {"gradient_evaluations": 2}}, 0.5)
        store.add_result("symmetries", {"found": []}, 0.5)
    return folder


@pytest.fixture
def run(tmp_path):
    return begun(tmp_path / "run")


def refused(folder, capsys):
    """Asserts that a folder is not opened, and that every command says so."""
    with pytest.raises(StoreError):
        open_run(folder)
    for command in ("report", "export"):
        assert main([command, str(folder)]) == 1
        said = capsys.readouterr().err
        assert said.startswith("counterflow: ")
        assert "Traceback" not in said


def test_a_value_longer_than_any_run_has_is_not_taken_into_memory(run, capsys, monkeypatch):
    size = 2**25
    change(run, f"UPDATE results SET value = hex(zeroblob({size // 2}))")
    monkeypatch.setattr(database, "MOST_BYTES", size // 8)
    with (
        peak_memory() as peak,
        pytest.raises(StoreError, match=r"damaged \(string or blob too big"),
    ):
        open_run(run)
    assert peak() < size // 4
    refused(run, capsys)


def test_what_is_no_run_is_refused_without_waiting(tmp_path, capsys):
    made = {
        "empty": lambda path: None,
        "pipe": lambda path: os.mkfifo(path),
        "folder": lambda path: path.mkdir(),
        "loop": lambda path: path.symlink_to("run.sqlite"),
        "device": lambda path: path.symlink_to("/dev/zero"),
        "zeros": lambda path: path.write_bytes(bytes(10_000)),
        "sparse": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 2**40),
        "nothing": lambda path: path.write_bytes(b""),
    }
    for name, make in made.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / "run.sqlite")
        with peak_memory() as peak, pytest.raises(StoreError):
            open_run(tmp_path / name)
        assert peak() < 2**24
    refused(tmp_path / "sparse", capsys)
    for named in ("x" * 5000, "\udcff", "/dev/null", "-"):
        with pytest.raises(StoreError):
            open_run(named)


def test_what_lies_beside_a_database_is_told_if_it_cannot_be_used(run):
    for name, make in (
        ("lock", os.mkfifo),
        ("lock", os.mkdir),
        ("commits", os.mkfifo),
        ("commits", os.mkdir),
        ("run.sqlite-wal", os.mkdir),
    ):
        (run / name).unlink(missing_ok=True)
        make(run / name)
        with pytest.raises(StoreError), writing(run, "{}", "again", pytest.fail):
            pass
        (run / name).rmdir() if (run / name).is_dir() else (run / name).unlink()


# What would be carried out, or never end, if it were read.
COUNTING = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
FOREIGN = [
    f"CREATE VIEW header AS {COUNTING} SELECT i AS name, i AS value FROM n",
    "CREATE TABLE header (name TEXT, value TEXT GENERATED ALWAYS AS (hex(zeroblob(900000000))))",
    "CREATE TABLE header (name TEXT PRIMARY KEY, value BLOB)",
    "CREATE TABLE other (x)",
]


@pytest.mark.parametrize("statement", FOREIGN, ids=["view", "generated", "column", "table"])
def test_tables_of_someone_else_are_not_read(statement, tmp_path):
    tables = SCHEMA.replace("CREATE TABLE IF NOT EXISTS header", "CREATE TABLE elsewhere")
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as connection:
        connection.executescript(f"{statement};{tables}DROP TABLE elsewhere;")
    with peak_memory() as peak, pytest.raises(StoreError, match="as none has"):
        open_run(tmp_path)
    assert peak() < 2**24
    with pytest.raises(StoreError), writing(tmp_path, "{}", "again", pytest.fail):
        pass


def test_a_trigger_of_someone_else_is_not_carried_out(run):
    change(run, "CREATE TRIGGER t AFTER INSERT ON sittings BEGIN DELETE FROM series; END")
    with (
        pytest.raises(StoreError, match="but has 't', as none has"),
        writing(run, "{}", "again", pytest.fail),
    ):
        pass


VALUES = [
    *("NULL", "''", "'{}'", "'[]'", "'null'", "'NaN'", "'{'", "1", "-1", "1e999", "x'00ff'"),
    *("9223372036854775807", "'[1, \"x\"]'", '\'{"a": {"b": []}}\'', "'[' || hex(zeroblob(9))"),
    "replace(hex(zeroblob(50000)), '0', '[')",
]
COLUMNS = [
    *("header.value", "sittings.command", "sittings.fingerprint", "sittings.started"),
    *("trainings.name", "trainings.settings", "trainings.steps", "trainings.statistics"),
    *("trainings.status", "trainings.seconds", "series.record", "series.process"),
    *("series.value", "series.quantity", "results.value", "results.seconds", "results.name"),
]


@given(column=st.sampled_from(COLUMNS), value=st.sampled_from(VALUES))
def test_any_value_in_any_column_is_read_or_refused(column, value, tmp_path_factory):
    folder = begun(tmp_path_factory.mktemp("run"))
    table, name = column.split(".")
    as_first_written(folder)  # with digests, all of it would be noticed at once
    where = {"header": " WHERE name = 'configuration'", "series": " WHERE record = 1"}
    change(folder, f"UPDATE OR IGNORE {table} SET {name} = {value}{where.get(table, '')}")
    assert main(["export", str(folder)]) in (0, 1)


@pytest.mark.parametrize("value", ["null", "[]", '{"found": [{}], "unused": 3}'])
def test_a_result_that_is_not_understood_is_told(value, run, capsys):
    with writing(run, "{}", "again", pytest.fail) as store:
        store.add_result("symmetries", json.loads(value), 0.5)
    refusal = main(["report", str(run)])
    assert refusal == 1
    assert "another version of counterflow" in capsys.readouterr().err


@given(seed=st.integers(0, 2**32))
def test_a_mutated_database_is_refused_or_true(seed, run):
    path = run / "run.sqlite"
    whole, before = path.read_bytes(), repr(open_run(run).to_xarray())
    chosen = random.Random(seed)
    content = bytearray(whole)
    for _ in range(chosen.randint(1, 20)):
        start = chosen.randrange(len(content))
        kind = chosen.choice(("bytes", "zeros", "cut", "swap"))
        if kind == "bytes":
            content[start : start + 4] = chosen.randbytes(4)
        elif kind == "zeros":
            content[start : start + 512] = bytes(512)
        elif kind == "cut" and start > 100:
            del content[start:]
        else:
            page = start // 4096 * 4096
            content[:4096], content[page : page + 4096] = (
                content[page : page + 4096],
                content[:4096],
            )
    path.write_bytes(bytes(content))
    try:
        assert repr(open_run(run).to_xarray()) == before
    except StoreError as error:
        assert "run.sqlite" in str(error) or str(run) in str(error)  # noqa: PT017
    finally:
        path.write_bytes(whole)
