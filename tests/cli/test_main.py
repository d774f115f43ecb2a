"""The commands: what each does, what is not done twice, and how each refuses."""

import csv
import importlib
import re
import shutil
from html import escape
from importlib.metadata import version

import numpy as np
import pytest
import xarray

from command_line import TINY, assert_same_series, counterflow, reproduce
from counterflow.cli import main
from counterflow.experiments.registry import EXPERIMENTS
from counterflow.runs.run import open_run

# The package's `main` is the function; this is the module.
MODULE = importlib.import_module("counterflow.cli.reproduce")

MIDDLE = "η = 0.01, λ = 0.01, seed 7"


def refused(capsys, *arguments, code):
    """What a command says that exits with a code and nothing on the output."""
    try:
        found = main([str(argument) for argument in arguments])
    except SystemExit as ended:  # by the parser
        found = ended.code
    said = capsys.readouterr()
    assert found == code, said.err
    assert said.out == ""
    assert "Traceback" not in said.err
    return " ".join(said.err.split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of Figure 2."""
    return reproduce(tmp_path_factory.mktemp("finished"), "figure2", *TINY)


@pytest.fixture
def nothing_to_compute(monkeypatch):
    """Whoever asks for the data has something to compute."""
    monkeypatch.setattr(MODULE, "load", pytest.fail)


@pytest.fixture
def no_pictures(monkeypatch):
    """Saves the drawing of many pictures, which the tests of the report see to."""
    monkeypatch.setattr("counterflow.report.report.write_figures", lambda *arguments: [])


# --- nothing is computed twice ------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_to_compute")
def test_the_same_command_again_computes_nothing_and_writes_the_report(finished, capsys):
    page = finished.folder / "report.html"
    page.write_text("an old page")
    again = reproduce(finished.folder.parent, "figure2", *TINY)
    assert again.folder == finished.folder
    assert_same_series(again, finished)
    assert "done" not in capsys.readouterr().out
    assert page.read_text(encoding="utf-8").count('<section id="figure2"') == 1
    assert (finished.folder / "figures" / "figure2.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("no_pictures")
def test_all_experiments_go_on_from_some_of_them(finished, capsys):
    command = ["reproduce", *TINY, "--folder", str(finished.folder.parent)]
    assert main(command) == 0
    output = capsys.readouterr().out
    every = open_run(finished.folder)
    assert len(every.trainings) == 3 * 2 + 1 + 1
    assert all(known.finished for known in every.trainings.values())
    assert set(every.results) == {"symmetries", "figure1", "figure5", "equilibrium"}
    # What Figure 2 needed was there: as it was, and not announced.
    assert_same_series(finished, every)
    assert every.trainings[MIDDLE].seconds == finished.trainings[MIDDLE].seconds
    announced = re.findall(r"^\[\d+/(\d+)\] (.*): done", output, re.MULTILINE)
    assert {total for total, _ in announced} == {"10"}
    assert [name for _, name in announced] == ["figure1", "figure5", "equilibrium"] + [
        name for name in every.trainings if name != MIDDLE
    ]
    verdicts = re.findall(r"^│ (\w+) +│ (?:holds|FAILS) ", output, re.MULTILINE)
    assert verdicts == ["symmetries", *EXPERIMENTS]
    page = (finished.folder / "report.html").read_text(encoding="utf-8")
    assert all(f'<section id="{name}"' in page for name in EXPERIMENTS)
    claims = re.search(r"(\d+) of (\d+) claims hold; [\d,]+ gradient evaluations", output)
    assert claims is not None
    printed = re.findall(r"^│ \w* +│ (holds|FAILS) ", output, re.MULTILINE)
    assert (int(claims[1]), int(claims[2])) == (printed.count("holds"), len(printed))


def test_another_configuration_has_a_folder_of_its_own(finished):
    other = reproduce(finished.folder.parent, "figure2", *TINY, "--seed", "3")
    assert other.folder != finished.folder
    assert other.folder.parent == finished.folder.parent
    assert list(other.trainings) == ["η = 0.01, λ = 0.01, seed 3"]


# --- what is typed wrong --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--size huge", "huge"),
        ("--data imagenet", "imagenet"),
        ("--size", "--size"),
        ("--samples many", "many"),
        ("--samples 1", "`samples` must be at least 2, got 1"),
        ("--samples -5", "`samples` must be at least 2, got -5"),
        ("--hidden-widths 4", "--hidden-widths"),
        ("--hidden-widths 4 0", "`hidden_widths` must be 2 whole numbers from 1 to"),
        ("--steps 6 8", "`steps` must be 3 whole numbers from 1 to"),
        ("--steps 6 8 0", "`steps` must be 3 whole numbers from 1 to"),
        (
            "--learning-rates --steps",
            "`learning_rates` must be one or more different values, got ()",
        ),
        ("--learning-rates 0.1 0.1 0.1", "`learning_rates` must be one or more different values"),
        ("--learning-rates 0.1 0.01 0", "`learning_rates` must be positive, got 0"),
        ("--learning-rates 0.1 0.01 nan", "`learning_rates` must be positive, got nan"),
        ("--learning-rates 0.1 0.01 inf", "`learning_rates` must be positive, got inf"),
        ("--weight-decays", "`weight_decays` must be one or more different values, got ()"),
        ("--weight-decays 0.01 0.01", "`weight_decays` must be one or more different values"),
        ("--weight-decays 0.01 -1", "`weight_decays` must be positive, got -1"),
        ("--large-learning-rate 0", "`large_learning_rate` must be positive, got 0"),
        ("--large-learning-rate 0.1", "`large_learning_rate` must be larger than all of"),
        ("--rtol 0", "`rtol` must be from 1e-14"),
        ("--orders 1 2", "`orders` must contain 0 (gradient flow) and 1"),
        ("--orders 0 1 -1", "`orders` must contain 0 (gradient flow) and 1"),
        ("--orders 0 1 1", "`orders` must be one or more different values, got (0, 1, 1)"),
        ("--large-steps 0", "`large_steps` must be 1 whole number from 1 to"),
        ("--records 0", "`records` must be 1 whole number from 1 to"),
        ("--restart 0", "`restart` must be 1 whole number from 1 to"),
        ("--restart 6", "`restart` must be a step before the end of every run, got 6 with steps"),
        ("--long-steps 0", "`long_steps` must be 1 whole number from 1 to"),
        ("--long-samples 0", "`long_samples` must be 1 whole number from 1 to"),
        ("--long-steps 9999999999", "`long_steps` must be 1 whole number from 1 to"),
        ("--seed -1", "`seed` and `seeds` must be different numbers that are not negative"),
        ("--seeds 8 8", "`seed` and `seeds` must be different numbers that are not negative"),
        ("--seeds 7", "`seed` and `seeds` must be different numbers that are not negative"),
        ("--data-dir .", "--data-dir is for the files of mnist and fashion-mnist"),
        ("--no-such-option 3", "--no-such-option"),
    ],
)
def test_what_is_typed_wrong_is_refused_in_words(options, message, tmp_path, capsys):
    folder = tmp_path / "runs"
    command = ["reproduce", "figure2", *TINY, "--folder", folder, *options.split()]
    assert message in refused(capsys, *command, code=2)
    assert not folder.exists()


def test_an_unknown_experiment_is_answered_by_the_nearest(capsys):
    said = refused(capsys, "reproduce", "figur2", code=2)
    assert "there is no experiment 'figur2': did you mean figure2? Known are figure1," in said
    said = refused(capsys, "reproduce", "figure2", "xyz", code=2)
    assert "there is no experiment 'xyz'. Known are figure1, figure2," in said


def test_a_command_is_needed_and_must_be_known(capsys):
    for words in ([], ["repeat"], ["report"], ["export"]):
        assert refused(capsys, *words, code=2)


# --- what cannot be done ------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_named(finished, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "runs"
    said = refused(capsys, "reproduce", "figure2", *TINY, "--folder", folder, code=1)
    assert f"counterflow: cannot read or keep records in {folder}" in said
    said = refused(capsys, "export", finished.folder, "--folder", folder, code=1)
    assert str(tmp_path / "file") in said


@pytest.mark.parametrize("command", ["report", "export"])
def test_what_is_not_a_run_is_named(command, tmp_path, capsys):
    for place in (tmp_path, tmp_path / "missing"):
        said = refused(capsys, command, place, code=1)
        assert f"counterflow: {place} is not a run: it has no run.sqlite" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["not a database at all" * 100, ""])
def test_a_damaged_run_is_named(damage, finished, tmp_path, capsys):
    place = tmp_path / finished.folder.name
    place.mkdir()
    (place / "run.sqlite").write_text(damage)
    commands = [["report", place], ["export", place]]
    if damage:  # in an empty file a run may begin
        commands.append(["reproduce", "figure2", *TINY, "--folder", tmp_path, "--quiet"])
    for command in commands:
        said = refused(capsys, *command, code=1)
        assert said.startswith("counterflow: ")
        assert str(place) in said
    assert (place / "run.sqlite").read_text() == damage


# --- the other commands ---------------------------------------------------------------------------


def test_the_report_of_an_unfinished_run_says_what_is_missing(tmp_path, monkeypatch, capsys):
    def stopped(self, update):
        if update.done == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("counterflow.cli.views.PlainView.recorded", stopped)
        assert main(["reproduce", "figure2", *TINY, "--folder", str(tmp_path)]) == 130
    (place,) = tmp_path.iterdir()
    assert not (place / "report.html").exists()
    capsys.readouterr()
    assert main(["report", str(place)]) == 0
    output = capsys.readouterr().out
    assert f"report: {place / 'report.html'}" in output
    assert "1 of 1 claims hold" in output  # the symmetries; Figure 2 has no verdict yet
    page = (place / "report.html").read_text(encoding="utf-8")
    assert f"{MIDDLE} is not finished: 2 of 4 records are done" in page
    assert '<section id="figure2"' not in page


@pytest.mark.usefixtures("no_pictures")
def test_the_report_of_a_finished_run_has_no_such_warning(finished, capsys):
    (finished.folder / "report.html").unlink()
    assert main(["report", str(finished.folder)]) == 0
    assert f"report: {finished.folder / 'report.html'}" in capsys.readouterr().out
    page = (finished.folder / "report.html").read_text(encoding="utf-8")
    assert '<section id="figure2"' in page
    assert "is not finished" not in page
    assert escape(open_run(finished.folder).sittings[-1]["command"]) in page


def test_a_report_that_cannot_be_written_is_told(finished, tmp_path, capsys):
    place = tmp_path / "run"
    shutil.copytree(finished.folder, place)
    shutil.rmtree(place / "figures")
    (place / "figures").write_text("a file where the folder should be")
    before = (place / "report.html").read_bytes()
    said = refused(capsys, "report", place, code=1)
    assert said.startswith(f"counterflow: cannot write the report into {place}: File exists; ")
    assert f"`counterflow report {place}` writes it later" in said
    assert (place / "report.html").read_bytes() == before


def test_export_reads_back_to_the_last_bit(finished, tmp_path, capsys):
    assert main(["export", str(finished.folder)]) == 0
    paths = [finished.folder / name for name in ("series.csv", "series.nc")]
    assert capsys.readouterr().out.splitlines() == [str(path) for path in paths]
    run = open_run(finished.folder)

    found = {}
    with paths[0].open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = row["training"], row["process"], row["quantity"]
            assert float(row["time"]) == int(row["step"]) * float(row["learning_rate"])
            found.setdefault(key, {})[int(row["step"])] = float(row["value"])
    stored = {
        (name, *key): dict(zip(known.steps.tolist(), values.tolist(), strict=True))
        for name, known in run.trainings.items()
        for key, values in known.series.items()
    }
    np.testing.assert_equal(found, stored)

    with xarray.open_dataset(paths[1], engine="scipy") as dataset:
        xarray.testing.assert_equal(dataset.load(), run.to_xarray())
        for name, known in run.trainings.items():
            for (process, quantity), values in known.series.items():
                at = dataset[quantity].sel(training=name, process=process).values
                np.testing.assert_array_equal(at[: len(values)], values)
                assert np.isnan(at[len(values) :]).all()


def test_version_and_help(capsys):
    done = counterflow("version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{version('counterflow')}\n", "")
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(command in said for command in ("reproduce", "report", "export", "version"))
