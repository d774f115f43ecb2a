"""Digests: whatever changes in a database that was closed is noticed, or changes nothing."""

import json
from contextlib import closing

import numpy as np
import pytest

from counterflow.runs.database import StoreError
from counterflow.runs.digests import TABLES
from counterflow.runs.opening import reading, writing
from databases import as_first_written, change

NAME = "η = 0.1"
RECORDS = 6


def kept(store, record):
    values = {f"quantity {i}": np.sin(record + i) for i in range(8)}
    store.keep(
        NAME,
        record,
        {"descent": values, "flow 0": {"error": float("nan")}},
        {"x": np.arange(3.0)},
        {"flow 0": {"flow": "COMPLETED"}},
        {"descent": {"gradient_evaluations": record}},
        record / 7,
    )


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    with writing(folder, json.dumps({"seed": 3}), "a command", pytest.fail) as store:
        store.begin(NAME, {"learning_rate": 0.1}, list(range(RECORDS)))
        for record in range(RECORDS):
            kept(store, record)
        store.add_result("numbers", [0.1, 0.2, "three"], 0.5)
    return folder


def values(folder):
    """All that can be read of a run, with all bits."""
    with closing(reading(folder)) as store:
        series = {
            key: {record: value.hex() for record, value in at.items()}
            for key, at in store.series(NAME).items()
        }
        found = (store.trainings(), store.results(), store.result_seconds(), store.sittings())
        header = [store.header(name) for name in ("format", "configuration")]
        states = store._rows("SELECT * FROM states ORDER BY record")
        return repr((series, found, header, states))


def test_a_bit_that_flips_anywhere_is_noticed_or_changes_nothing(run):
    path, before = run / "run.sqlite", values(run)
    whole = path.read_bytes()
    random = np.random.default_rng(5)
    # Most of a page is empty: half of the bits are taken where something is written.
    written = np.flatnonzero(np.frombuffer(whole, np.uint8))
    places = [*random.integers(len(whole), size=250), *random.choice(written, 750)]
    noticed = 0
    for place in places:
        content = bytearray(whole)
        content[place] ^= 1 << random.integers(8)
        path.write_bytes(content)
        try:
            found = values(run)
        except StoreError:
            noticed += 1
            continue
        assert found == before, f"byte {place}"
    assert noticed > 500
    path.write_bytes(whole)
    assert values(run) == before


def test_a_number_that_changed_is_told_by_its_record(run):
    change(run, "UPDATE series SET value = value + 1e-16 WHERE record = 3 AND process = 'descent'")
    assert "record 3 of 'η = 0.1' is not what was written" in refusal(run)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM series WHERE record = 5", "record 5 of"),
        ("DELETE FROM series WHERE record = 2 AND quantity = 'error'", "record 2 of"),
        ("INSERT INTO series VALUES ('η = 0.1', 9, 'flow 0', 'error', 1.0)", "record 9 of"),
        ("UPDATE series SET value = 0 WHERE value IS NULL", "record 0 of"),
        ("DELETE FROM digests", "the table header"),
        ("DELETE FROM digests WHERE record = 4", "record 4 of"),
        ("UPDATE header SET value = '1' WHERE name = 'format'", "its format"),
        ("DELETE FROM header", "its format"),
        ("UPDATE header SET value = '{}' WHERE name = 'configuration'", "the table header"),
        ("UPDATE trainings SET status = 'completed'", "the table trainings"),
        ("UPDATE trainings SET seconds = 9", "the table trainings"),
        ("UPDATE results SET value = '[]'", "the table results"),
        ("UPDATE sittings SET command = 'x'", "the table sittings"),
        ("UPDATE states SET sha256 = ''", "the table states"),
    ],
)
def test_what_changed_is_named_and_nothing_goes_on(run, statement, said):
    change(run, statement)
    assert f"run.sqlite is damaged ({said}" in refusal(run)


def refusal(run):
    """What is said of a run that can be neither read nor gone on with."""
    with pytest.raises(StoreError) as reader:
        reading(run)
    with (
        pytest.raises(StoreError) as writer,
        writing(run, json.dumps({"seed": 3}), "again", pytest.fail),
    ):
        pass
    assert str(reader.value) == str(writer.value)
    return str(reader.value)


def test_digests_that_are_gone_with_their_table_are_missed(run):
    change(run, "DROP TABLE digests")
    with pytest.raises(StoreError, match=r"damaged \(no such table: digests\)"):
        reading(run)


def test_every_table_has_a_digest(run):
    with closing(reading(run)) as store:
        tables = {name for (name,) in store._rows("SELECT name FROM sqlite_master WHERE sql != ''")}
        noted = {part for (part,) in store._rows("SELECT part FROM digests")}
    assert tables - {"digests"} == noted == {*TABLES, "series"}


def test_a_run_of_the_first_format_is_read_as_it_is(run):
    before = values(run)
    as_first_written(run)
    content = (run / "run.sqlite").read_bytes()
    assert values(run) == before.replace("['2', ", "['1', ")
    assert (run / "run.sqlite").read_bytes() == content


def test_a_run_of_the_first_format_goes_on_and_gets_digests(run):
    as_first_written(run)
    with writing(run, json.dumps({"seed": 3}), "again", pytest.fail) as store:
        done, wrong = store.resume(NAME, lambda ended, load: load({"x": np.zeros(3)}))
        assert (done, wrong) == (RECORDS, "")
        kept(store, RECORDS)
    with closing(reading(run)) as store:
        assert store.header("format") == "2"
        assert store.records(NAME) == RECORDS + 1
    change(run, "UPDATE series SET value = 1 WHERE record = 0")
    assert "record 0 of" in refusal(run)


def test_records_that_a_resumption_drops_take_their_digests_along(run):
    (run / "states" / "η___0.1-5.safetensors").unlink()
    with writing(run, json.dumps({"seed": 3}), "again", pytest.fail) as store:
        done, wrong = store.resume(NAME, lambda ended, load: load({"x": np.zeros(3)}))
        assert done == RECORDS - 1
        assert "No such file" in wrong
    with closing(reading(run)) as store:
        assert store.records(NAME) == RECORDS - 1


def test_another_configuration_leaves_a_run_of_the_first_format_as_it_is(run):
    as_first_written(run)
    with (
        pytest.raises(StoreError, match="another configuration"),
        writing(run, "{}", "again", pytest.fail),
    ):
        pass
    with closing(reading(run)) as store:
        assert store.header("format") == "1"
