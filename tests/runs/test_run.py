"""A run that is on disk, read again: its series, as a dataset, as CSV and as netCDF."""

import csv
import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import xarray

from counterflow.runs.configuration import Configuration
from counterflow.runs.database import StoreError
from counterflow.runs.environment import fingerprint
from counterflow.runs.export import CSV, NETCDF, export_csv, export_netcdf
from counterflow.runs.opening import writing
from counterflow.runs.run import open_run
from counterflow.runs.store import Store
from counterflow.runs.training import Training

CONFIGURATION = Configuration(seed=3, weight_decays=(0.1 + 0.2,))
LONG = Training(0.1, 0.1 + 0.2, 3, steps=8, records=4, orders=(0, 1), predict=True, restart=5)
SHORT = Training(0.01, 0.1 + 0.2, 3, steps=8, records=8, orders=(0,))
# Two records fewer for the flow than for descent, values that are no numbers, and all digits.
VALUES = {
    ("descent", "loss"): [1 / 3, math.inf, math.nan, 5e-324, 0.1],
    ("descent", "sharpness"): [2.5, None, None, None, -1e300],
    ("flow 0", "error"): [0.0, 1 / 7, math.pi, None, None],
    ("flow 1", "error"): [0.0, 1e-17, 2.0, 3.0, 4.0],
}


def keep(store, training, record, values):
    rows = {}
    for (process, quantity), series in values.items():
        if series[record] is not None:
            rows.setdefault(process, {})[quantity] = series[record]
    state = {"x": np.zeros(2)}
    store.keep(training.name, record, rows, state, {}, {"descent": {"accepted_steps": 3}}, 1.5)


def opened(folder):
    return writing(folder, CONFIGURATION.to_json(), "counterflow reproduce", pytest.fail)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / CONFIGURATION.name
    with opened(folder) as store:
        for training in (LONG, SHORT):
            store.begin(training.name, asdict(training), training.record_steps.tolist())
        for record in range(5):
            keep(store, LONG, record, VALUES)
        store.finish(LONG.name, "descent diverged")
        for record in range(2):
            keep(store, SHORT, record, {("descent", "loss"): [1.0, 0.5]})
        store.add_result("figure 1", {"slope": 2.0}, 0.25)
    return folder


@pytest.fixture(scope="module")
def run(folder):
    return open_run(folder)


def same(values, expected):
    expected = [math.nan if value is None else value for value in expected]
    return [float(v).hex() for v in values] == [v.hex() for v in expected]


def test_everything_that_is_kept_is_read(run, folder):
    assert run.folder == folder
    assert run.configuration == CONFIGURATION
    assert list(run.trainings) == [LONG.name, SHORT.name]
    assert run.results == {"figure 1": {"slope": 2.0}}
    assert run.result_seconds == {"figure 1": 0.25}
    assert run.processes == ("descent", "flow 0", "flow 1")
    (sitting,) = run.sittings
    assert sitting["command"] == "counterflow reproduce"
    assert sitting["fingerprint"] == fingerprint()
    assert repr(run) == (
        f"Run({CONFIGURATION.name}: 1 of 2 trainings finished, 7 records, 1 further results)"
    )
    assert open_run(str(folder)).trainings.keys() == run.trainings.keys()


def test_a_training_is_read_as_far_as_it_is(run):
    long, short = run.trainings[LONG.name], run.trainings[SHORT.name]
    assert (long.training, short.training) == (LONG, SHORT)
    assert long.steps.tolist() == LONG.record_steps.tolist()[:5] == [0, 2, 4, 5, 6]
    assert (long.total, short.total) == (6, 9)
    np.testing.assert_array_equal(short.times, [0.0, 0.01])
    assert (long.finished, short.finished) == (True, False)
    assert (long.status, short.status) == ("descent diverged", "running")
    assert long.statistics == {"descent": {"accepted_steps": 3}}
    assert long.seconds == 1.5
    for (process, quantity), values in VALUES.items():
        assert same(long(process, quantity), values)
    assert same(long.flow(0, "error"), VALUES["flow 0", "error"])
    assert same(short.flow(3, "error"), [math.nan] * 2)  # there is none


def check_dataset(dataset):
    assert dict(dataset.sizes) == {"training": 2, "process": 3, "record": 5}
    assert dataset.training.values.tolist() == [LONG.name, SHORT.name]
    assert dataset.process.values.tolist() == ["descent", "flow 0", "flow 1"]
    assert set(dataset.data_vars) == {"loss", "sharpness", "error"}
    for (process, quantity), values in VALUES.items():
        found = dataset[quantity].sel(training=LONG.name, process=process)
        assert same(found.values, values)
        assert found.attrs["units"] == "1"
    assert same(dataset.loss.values[1, 0], [1.0, 0.5, None, None, None])
    assert same(dataset.step.values[0], [0.0, 2.0, 4.0, 5.0, 6.0])
    assert same(dataset.time.values[1], [0.0, 0.01, None, None, None])
    assert dataset.learning_rate.values.tolist() == [0.1, 0.01]
    assert dataset.weight_decay.values.tolist() == [0.1 + 0.2] * 2
    assert dataset.seed.values.tolist() == [3, 3]
    assert dataset.error.attrs["long_name"].startswith("discretization error")
    assert Configuration.from_json(dataset.attrs["configuration"]) == CONFIGURATION
    assert dataset.attrs["status"] == f"{LONG.name}: descent diverged\n{SHORT.name}: running"


def test_the_series_are_a_dataset(run):
    dataset = run.to_xarray()
    check_dataset(dataset)
    assert CONFIGURATION.name in dataset.attrs["title"]


def test_netcdf_reads_back_to_the_last_bit(run, tmp_path):
    path = export_netcdf(run, tmp_path / NETCDF)
    assert path == tmp_path / "series.nc"
    with xarray.open_dataset(path) as dataset:
        check_dataset(dataset.load())


def test_csv_reads_back_to_the_last_bit(run, tmp_path):
    path = export_csv(run, tmp_path / CSV)
    assert path == tmp_path / "series.csv"
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert len(found) == 5 * len(VALUES) + 2
    for (process, quantity), values in VALUES.items():
        chosen = [
            row
            for row in found
            if (row["training"], row["process"], row["quantity"]) == (LONG.name, process, quantity)
        ]
        assert same([float(row["value"]) for row in chosen], values)
        assert [int(row["record"]) for row in chosen] == list(range(5))
        assert [int(row["step"]) for row in chosen] == [0, 2, 4, 5, 6]
        assert [float(row["time"]) for row in chosen] == [step * 0.1 for step in (0, 2, 4, 5, 6)]
        settings = {(row["learning_rate"], row["weight_decay"], row["seed"]) for row in chosen}
        assert settings == {("0.1", repr(0.1 + 0.2), "3")}


def test_a_run_without_records_has_no_series_to_export(tmp_path):
    with opened(tmp_path / "run") as store:
        store.add_result("figure 1", 1, 0.0)
    run = open_run(tmp_path / "run")
    assert run.processes == ()
    assert dict(run.to_xarray().sizes) == {"training": 0, "process": 0, "record": 0}
    assert len(export_csv(run, tmp_path / CSV).read_text().splitlines()) == 1
    with pytest.raises(StoreError, match="has no records yet: there are no series to write"):
        export_netcdf(run, tmp_path / NETCDF)
    assert not (tmp_path / NETCDF).exists()


def test_a_training_without_records_is_read(tmp_path):
    with opened(tmp_path) as store:
        store.begin(LONG.name, asdict(LONG), LONG.record_steps.tolist())
    (known,) = open_run(tmp_path).trainings.values()
    assert known.steps.tolist() == []
    assert (known.total, known.status) == (6, "running")
    assert known("descent", "loss").shape == (0,)


def test_a_record_that_comes_while_a_run_is_read_waits_for_the_next_reading(tmp_path, monkeypatch):
    values = {("descent", "loss"): [1.0, 0.5, 0.25]}
    with opened(tmp_path) as store:
        store.begin(SHORT.name, asdict(SHORT), SHORT.record_steps.tolist())
        keep(store, SHORT, 0, values)
        trainings = Store.trainings

        def meanwhile(reader):
            found = trainings(reader)
            if store.records(SHORT.name) == 1:
                keep(store, SHORT, 1, values)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(Store, "trainings", meanwhile)
            assert open_run(tmp_path).trainings[SHORT.name]("descent", "loss").tolist() == [1.0]
        assert open_run(tmp_path).trainings[SHORT.name]("descent", "loss").tolist() == [1.0, 0.5]


def test_what_is_not_a_run_is_said(tmp_path):
    with pytest.raises(StoreError, match="is not a run"):
        open_run(tmp_path)


def test_a_configuration_of_another_version_is_said(tmp_path):
    stored = json.loads(CONFIGURATION.to_json()) | {"colour": 3}
    with writing(tmp_path, json.dumps(stored), "a command", pytest.fail):
        pass
    with pytest.raises(StoreError, match=r"a configuration has no \['colour'\]"):
        open_run(tmp_path)
