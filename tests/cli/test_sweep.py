"""`counterflow sweep` of runs that are finished, which needs no cluster: found, listed, told."""

import json
import re
import sys

import numpy as np
import pytest

import counterflow as cf
from command_line import MODEL
from counterflow.cli import main
from counterflow.sweeps.cluster import ClusterError, connected
from counterflow.sweeps.page import sweep_page

SWEEP = """
name = "tiny"
model = "my_model.py:problem"

[settings]
steps = 12
records = 4

[grid]
learning_rate = [0.1, 0.05, -1]
orders = [[0, 1]]
"""
NAMES = [f"η = {rate}, γ = 0 1" for rate in ("0.1", "0.05", "-1")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    place = tmp_path_factory.mktemp("sweep")
    (place / "my_model.py").write_text(MODEL, encoding="utf-8")
    (place / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def done(files):
    """The folder of a sweep whose runs `counterflow run` has made, and its runs' folder."""
    runs = files / "runs"
    for rate in ("0.1", "0.05"):
        options = f"--learning-rate {rate} --steps 12 --records 4 --orders 0 1 --quiet".split()
        model = f"{files / 'my_model.py'}:problem"
        assert main(["run", model, *options, "--folder", str(runs)]) == 0
    assert main(["sweep", str(files / "sweep.toml"), "--folder", str(runs)]) == 1
    (place,) = runs.glob("sweep-tiny-*")
    return place, runs


def test_one_that_fails_is_listed_with_its_reason_and_the_others_are_done(done):
    place, _ = done
    sweep = cf.open_sweep(place)
    assert list(sweep.runs) == NAMES[:2]
    assert sweep.failed == {NAMES[2]: "`learning_rate` must be positive, got -1"}
    for run in sweep.runs.values():
        assert all(known.status == "completed" for known in run.trainings.values())
        assert (run.folder / "report.html").is_file()
    assert "2 of 3 runs over learning_rate, orders; 1 failed" in repr(sweep)


def test_the_same_command_again_finds_everything(done, files, capsys):
    place, runs = done
    before = {path: path.stat().st_mtime_ns for path in runs.glob("my_model*/run.sqlite")}
    assert main(["sweep", str(files / "sweep.toml"), "--folder", str(runs)]) == 1
    said = capsys.readouterr().out
    assert "3 runs: 2 finished before, 1 failed; 10 of 10 records" in said
    assert f"failed: {NAMES[2]}: `learning_rate` must be positive, got -1" in said
    assert said.rstrip().endswith(f"report: {place / 'report.html'}")
    assert before == {path: path.stat().st_mtime_ns for path in runs.glob("my_model*/run.sqlite")}


def test_a_run_of_it_is_the_one_that_counterflow_run_makes(done):
    place, runs = done
    found = {run.folder.name for run in cf.open_sweep(place).runs.values()}
    assert found == {path.name for path in runs.glob("my_model*")}
    assert len(found) == 2


def test_all_series_are_one_dataset_with_what_is_swept_as_coordinates(done):
    sweep = cf.open_sweep(done[0])
    dataset = sweep.to_xarray()
    assert dict(dataset.sizes) == {"run": 2, "training": 1, "process": 3, "record": 5}
    assert dataset.learning_rate.values.tolist() == [0.1, 0.05]
    assert dataset.orders.values.tolist() == ["[0, 1]", "[0, 1]"]
    assert dataset.attrs["failed"].startswith(NAMES[2])
    for name, run in sweep.runs.items():
        (known,) = run.trainings.values()
        for (process, quantity), values in known.series.items():
            found = dataset[quantity].sel(run=name, process=process, training=0)
            np.testing.assert_array_equal(found, values)
        assert dataset.training_name.sel(run=name).item() == known.training.name
    assert dataset.time.sel(run=NAMES[1], training=0).values[-1] == 12 * 0.05


def test_a_run_killed_before_its_report_was_written_gets_one(done, files, capsys):
    place, _ = done
    page = cf.open_sweep(place).runs[NAMES[0]].folder / "report.html"
    page.unlink()
    options = ["--folder", str(place.parent), "--quiet"]
    assert main(["sweep", str(files / "sweep.toml"), *options]) == 1
    assert page.is_file()
    assert "not finished" not in capsys.readouterr().out


def test_a_quiet_sweep_prints_only_how_it_ended(done, files, capsys):
    place, runs = done
    said = {}
    for quiet in ([], ["--quiet"]):
        assert main(["sweep", str(files / "sweep.toml"), "--folder", str(runs), *quiet]) == 1
        said[bool(quiet)] = capsys.readouterr().out.splitlines()
    assert said[True][-1] == f"report: {place / 'report.html'}"
    assert said[True][0].startswith("3 runs: 2 finished before, 1 failed")
    planned = len(said[False]) - len(said[True])
    assert planned > 0
    assert said[False][planned:] == said[True]


def test_the_data_of_a_sweep_are_those_in_its_data_dir(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    file = tmp_path / "images.toml"
    file.write_text('experiments = ["table1"]\n[settings]\ndata = "mnist"\n[grid]\nseed = [1, 2]\n')
    folders = ["--folder", str(tmp_path / "runs"), "--data-dir", str(tmp_path / "data")]
    assert main(["sweep", str(file), *folders, "--quiet"]) == 1
    said = "".join(capsys.readouterr().out.splitlines())
    # Nothing is downloaded: the files are looked for there, for all runs.
    assert "2 runs: 2 failed" in said
    assert said.count(str(tmp_path / "data")) >= 2


# --- the report -----------------------------------------------------------------------------------


def test_the_report_has_a_chart_for_every_run_on_one_scale(done):
    sweep = cf.open_sweep(done[0])
    page = (sweep.folder / "report.html").read_text(encoding="utf-8")
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1])
    (panels,) = figures.values()
    assert [panel["title"] for panel in panels] == NAMES[:2]
    assert panels[0]["y"]["ends"] == panels[1]["y"]["ends"]
    assert {line["curve"] for line in panels[0]["lines"]} == {"gradient flow", "EoM (γ = 1)"}
    assert page.count('<figure id="figure-errors" class="small"') == 1
    assert "2 of 3 runs are finished" in page
    assert f"<dt>{NAMES[2]}</dt><dd>`learning_rate` must be positive, got -1</dd>" in page
    for run in sweep.runs.values():
        assert f'href="../{run.folder.name}/report.html"' in page


def test_what_comes_from_users_is_escaped(done):
    sweep = cf.open_sweep(done[0])
    evil = '"><script>alert(1)</script>'
    told = cf.Sweep(
        sweep.folder,
        evil,
        evil,
        {evil: {evil: evil}, **{name: {evil: evil} for name in sweep.runs}},
        {evil: next(iter(sweep.runs.values()))},
        dict.fromkeys(sweep.runs, evil),
    )
    page = sweep_page(told)
    assert "<script>alert" not in page
    assert page.count("</script>") == sweep_page(sweep).count("</script>")


def test_counterflow_report_writes_that_of_a_sweep(done, capsys):
    page = done[0] / "report.html"
    page.unlink()
    assert main(["report", str(done[0])]) == 0
    assert capsys.readouterr().out == f"report: {page}\n"
    assert page.is_file()


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cpus", "0"], "--cpus must be positive, got 0"),
        (["--cpus", "nan"], "--cpus must be positive, got nan"),
        (["--retries", "-1"], "--retries must not be negative, got -1"),
        (["--data-dir", "."], "--data-dir is for the files of mnist and fashion-mnist"),
    ],
)
def test_what_is_typed_wrong_is_refused_in_words(options, message, files, tmp_path, capsys):
    folder = tmp_path / "runs"
    code = main(["sweep", str(files / "sweep.toml"), "--folder", str(folder), *options])
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.startswith(f"counterflow: {message}")
    assert not folder.exists()


def test_a_wrong_file_is_refused_before_anything_is_made(tmp_path, capsys):
    (tmp_path / "s.toml").write_text("[grid]\nsead = [1]")
    assert main(["sweep", str(tmp_path / "s.toml"), "--folder", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"counterflow: {tmp_path / 's.toml'}: [grid]: there is no field `sead`")
    assert not (tmp_path / "runs").exists()


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(ClusterError, match=r"pip install '.\[cluster\]'"),
        connected(None, 1.0),
    ):
        pass


def test_without_ray_the_command_says_so(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    code = main(["sweep", str(files / "sweep.toml"), "--folder", str(tmp_path), "--quiet"])
    said = capsys.readouterr()
    assert code == 1
    assert said.err == (
        "counterflow: a sweep needs Ray, which is not installed: pip install '.[cluster]' in a "
        "clone of counterflow\n"
    )


@pytest.mark.parametrize("content", [None, "{}", "not JSON", '{"format": "9"}', "[]"])
def test_what_is_not_a_sweep_is_named(content, tmp_path):
    if content is not None:
        (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(cf.StoreError, match=re.escape(str(tmp_path))):
        cf.open_sweep(tmp_path)
