"""`counterflow run` and `counterflow init`: one's own network, from a file."""

import re
import textwrap
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

import counterflow as cf
from command_line import MODEL
from counterflow.cli import main
from counterflow.cli.models import load_model
from counterflow.experiments.own import charges as own_charges
from counterflow.experiments.registry import OWN
from counterflow.runs.run import open_run

OPTIONS = "--learning-rate 0.1 --steps 12 --records 4 --orders 0 1 --quiet".split()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


def only_run(folder):
    (place,) = folder.iterdir()
    return open_run(place)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run of the model, its file and its folder."""
    place = tmp_path_factory.mktemp("own")
    path = place / "my_model.py"
    path.write_text(MODEL, encoding="utf-8")
    assert main(["run", f"{path}:problem", *OPTIONS, "--folder", str(place / "runs")]) == 0
    return only_run(place / "runs"), path, place / "runs"


def test_everything_is_asked_and_reported(done):
    run, _, _ = done
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert all(f'<section id="{one.name}"' in page for one in OWN)
    assert "Gradient descent on my_model.py:problem" in page
    assert "not computed yet" not in page
    assert {path.stem for path in (run.folder / "figures").glob("*.png")} == {
        "errors",
        "predictions",
        "charges",
        "sharpness",
    }
    assert re.fullmatch(r"my_model-problem-[0-9a-f]{8}", run.folder.name)


def test_its_series_are_those_of_a_comparison(done):
    run, path, _ = done
    model = load_model(f"{path}:pair")
    (known,) = run.trainings.values()
    comparison = cf.compare(
        model.problem, model.params, 0.1, 12, orders=(0, 1), records=known.steps.tolist()
    )
    for order in (0, 1):
        found = known.flow(order, "error")
        np.testing.assert_allclose(found, comparison.error[order], rtol=1e-2, atol=1e-12)
        predicted = known.flow(order, "propagated_prediction")
        expected = comparison.predictions["propagated"].prediction[order]
        np.testing.assert_allclose(predicted, expected, rtol=1e-3, atol=1e-12)


def test_the_charge_of_the_symmetry_that_was_found_is_followed(done):
    run, path, _ = done
    params = load_model(f"{path}:pair").params
    (known,) = run.trainings.values()
    ((name, series),) = (
        (quantity, values)
        for (process, quantity), values in known.series.items()
        if process == "descent" and quantity.startswith("charge of ")
    )
    assert name.startswith("charge of Rescale('first', 'second'")
    balance = jnp.sum(params["first"] ** 2) - jnp.sum(params["second"] ** 2)
    assert abs(series[0]) == pytest.approx(float(balance))


def test_how_far_its_charge_is_from_descents_is_drawn_where_it_is_more_than_rounding(done):
    run, _, _ = done
    charge, gap = own_charges.EXPERIMENT.finding(run).panels
    descent, *flows = charge.curves
    assert (charge.y_scale, gap.y_scale) == ("linear", "log")
    for flow, distance in zip(flows, gap.curves, strict=True):
        np.testing.assert_array_equal(distance.y, np.abs(flow.y - descent.y))
    assert gap.curves[1].y.max() < gap.curves[0].y.max() / 2
    # As of a layer of zeros that stays one: what differs is rounding, and nothing to compare.
    ((name, known),) = run.trainings.items()
    noise = {
        key: 1e-17 * np.cos(np.arange(len(values)) + index)
        for index, (key, values) in enumerate(known.series.items())
        if key[1].startswith("charge of ")
    }
    known = replace(known, series={**known.series, **noise})
    found = own_charges.EXPERIMENT.finding(replace(run, trainings={name: known}))
    assert len(found.panels) == 1
    assert found.holds


def test_the_same_command_finds_its_run_and_another_file_makes_another(done, capsys):
    run, path, folder = done
    loud = [option for option in OPTIONS if option != "--quiet"]
    assert main(["run", f"{path}:problem", *loud, "--folder", str(folder)]) == 0
    assert "[1/" not in capsys.readouterr().out  # there was nothing left to do
    assert only_run(folder).trainings.keys() == run.trainings.keys()
    path.write_text(MODEL.replace("weight_decay=0.01", "weight_decay=0.02"), encoding="utf-8")
    # A name in the file may also be the pair itself.
    assert main(["run", f"{path}:pair", *OPTIONS, "--orders", "0", "--folder", str(folder)]) == 0
    path.write_text(MODEL, encoding="utf-8")
    assert len(list(folder.iterdir())) == 2


def test_a_loss_with_kinks_is_noted_and_solved_less_exactly(tmp_path, capsys):
    path = tmp_path / "kinked.py"
    path.write_text(
        """
import jax.numpy as jnp

import counterflow as cf

problem = cf.Problem(lambda theta: jnp.sum(jnp.abs(theta) + theta**2)), jnp.array([0.05, -0.5])
"""
    )
    options = [option for option in OPTIONS if option != "--quiet"]
    assert main(["run", f"{path}:problem", *options, "--folder", str(tmp_path / "runs")]) == 0
    assert "note: smoothness: " in capsys.readouterr().out
    run = only_run(tmp_path / "runs")
    assert run.configuration.rtol == 1e-5
    # The same command finds it, and one that is to be quiet is.
    assert main(["run", f"{path}:problem", *OPTIONS, "--folder", str(tmp_path / "runs")]) == 0
    assert "note: smoothness" not in capsys.readouterr().out
    assert len(only_run(tmp_path / "runs").sittings) == 2


def test_a_run_is_exported_and_reported_like_any_other(done, capsys):
    run, _, _ = done
    assert main(["report", str(run.folder)]) == 0
    assert main(["export", str(run.folder), "--folder", str(run.folder / "exported")]) == 0
    assert len(list((run.folder / "exported").iterdir())) == 2
    assert "my_model.py:problem" in run.to_xarray().attrs["configuration"]


# --- what is wrong in the file, or with its name ---------------------------------------------


def said(capsys, *arguments):
    code = main(["run", *arguments, *OPTIONS])
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert code == 2
    return shown


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("my_model.py", "did you mean my_model.py:problem?"),
        ("my_modle.py:problem", "there is no file .*: did you mean my_model.py?"),
        ("elsewhere/model.py:problem", "`counterflow init` writes one"),
        ("my_model.py:probelm", "has no 'probelm': did you mean problem?"),
        ("my_model.py:something", "it has loss, problem, pair"),
    ],
)
def test_a_wrong_name_is_told(named, expected, file, monkeypatch, capsys):
    monkeypatch.chdir(file.parent)
    assert re.search(expected, said(capsys, named))


WRONG = {
    "a name that is not there": ("    return jnp.mean(", "    return jnp.maen(", "in loss", "maen"),
    "an import that is not there": ("import jax.numpy", "import jaxx.numpy", "line 2", "jaxx"),
    "no Python": ("def problem():", "def problem(:", "line 12", "invalid syntax"),
    "a loss per sample": ("jnp.mean(", "(", "must return one float"),
    "whole numbers": ("jnp.cos(jnp.arange(6.0))", "jnp.arange(6)", "float arrays", "int64"),
    "no params": ("weight_decay=0.01), params", "weight_decay=0.01)", "a Problem without params"),
    "a shape": ('@ params["second"]', '@ params["first"]', "in loss", "dot_general"),
    "something else": ("    return cf.Problem", "    return 3, cf.Problem", "a tuple of int"),
    "infinity": ("jnp.ones((4, 1))", "jnp.ones((4, 1)) / 0", "must be finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_in_the_file_is_told_by_its_own_lines(case, file, monkeypatch, capsys):
    right, wrong, *expected = WRONG[case]
    assert MODEL.count(right) == 1
    file.write_text(MODEL.replace(right, wrong), encoding="utf-8")
    monkeypatch.chdir(file.parent)
    shown = said(capsys, "my_model.py:problem")
    assert all(text in shown for text in expected), shown
    assert "site-packages" not in shown


def test_an_error_in_a_folder_beside_the_file_is_told_by_its_lines_too(tmp_path, capsys):
    package = tmp_path / "a_package_beside_the_model"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "net.py").write_text(MODEL.replace("jnp.mean(", "jnp.maen("))
    path = tmp_path / "my_model.py"
    path.write_text("from a_package_beside_the_model.inner.net import problem\n")
    shown = said(capsys, f"{path}:problem")
    assert f"{package / 'inner' / 'net.py'}, line 9, in loss\n    return jnp.maen(" in shown
    assert "AttributeError" in shown
    assert "site-packages" not in shown
    assert "counterflow/" not in shown


def test_a_random_loss_is_refused_before_anything_is_written(file, monkeypatch, capsys):
    noisy = MODEL.replace("- targets", "- targets + np.random.normal()").replace(
        "import jax.numpy as jnp\n", "import jax.numpy as jnp\nimport numpy as np\n"
    )
    file.write_text(noisy, encoding="utf-8")
    monkeypatch.chdir(file.parent)
    assert "determinism" in said(capsys, "my_model.py:problem")
    assert not (file.parent / "runs").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--learning-rate", "0"), "`learning_rate` must be positive"),
        (("--steps", "0"), "`steps` must be 1 whole number"),
        (("--orders", "1", "2"), "must contain 0"),
        (("--tolerance", "-1"), "`tolerance` must be positive"),
        (("--rtol", "1"), "`rtol` must be from 1e-14"),
    ],
)
def test_a_wrong_setting_is_told(options, expected, file, capsys):
    assert main(["run", f"{file}:problem", *OPTIONS, *options]) == 2
    assert expected in capsys.readouterr().err


# --- a file to start from ---------------------------------------------------------------------


def test_init_writes_a_file_that_is_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert "counterflow run my_model.py:problem" in capsys.readouterr().out
    model = load_model("my_model.py:problem")
    assert float(model.problem.loss(model.params)) == pytest.approx(2.3, abs=0.3)


def test_the_file_of_the_page_is_a_model(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "run.md"
    text, *_ = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "of_the_page.py"
    path.write_text(text, encoding="utf-8")
    model = load_model(f"{path}:problem")
    assert float(model.problem.loss(model.params)) == pytest.approx(2.3, abs=0.3)


def test_init_never_overwrites(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text("mine", encoding="utf-8")
    assert main(["init", str(path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "mine"
    assert main(["init", str(tmp_path / "mine.txt")]) == 2


def test_files_beside_it_can_be_imported(tmp_path):
    (tmp_path / "beside_the_model.py").write_text("decay = 0.5\n", encoding="utf-8")
    text = textwrap.dedent(MODEL).replace("weight_decay=0.01", "weight_decay=decay")
    path = tmp_path / "with_import.py"
    path.write_text("from beside_the_model import decay\n" + text, encoding="utf-8")
    assert load_model(f"{path}:problem").problem.weight_decay == 0.5


def test_a_file_of_equinox_goes_to_a_report(tmp_path, monkeypatch, capsys):
    images, classes = load_digits(return_X_y=True)
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda **_: (images[:60], classes[:60]))
    file = Path(__file__).parents[2] / "examples" / "equinox_model.py"
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 20
    settings = "--learning-rate 0.1 --steps 4 --orders 0 1 --records 2".split()
    assert main(["run", f"{file}:problem", *settings, "--folder", str(tmp_path)]) == 0
    assert "claims hold" in capsys.readouterr().out
    (run,) = tmp_path.iterdir()
    assert (run / "report.html").is_file()
