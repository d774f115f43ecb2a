"""One run of a sweep, as a worker carries it out: what fails there is a reason, not an end."""

import pytest

import counterflow as cf
from command_line import MODEL
from counterflow.cli.models import load_model
from counterflow.cli.sweep_run import Task, carry_out_one
from counterflow.runs.analysis import Analysis, digest_of
from counterflow.runs.run import open_run


@pytest.fixture
def task(tmp_path):
    """A task for the model in a file, which may be changed."""
    (tmp_path / "my_model.py").write_text(MODEL, encoding="utf-8")
    model = f"{tmp_path / 'my_model.py'}:problem"
    known = load_model(model)
    digest = digest_of(known.problem, known.params, known.source)
    settings = {"orders": (0,), "records": 2, "rtol": 1e-6, "method": "taylor"}
    analysis = Analysis(known.name, digest, 0.01, 0.1, 4, **settings)
    return Task(analysis, tmp_path / "runs", "a command", model=model)


def test_what_is_done_gives_no_reason(task):
    assert carry_out_one(task) == ""
    run = open_run(task.folder / task.configuration.name)
    (known,) = run.trainings.values()
    assert known.finished
    assert (run.folder / "report.html").is_file()


def test_a_problem_that_raises_is_a_reason_with_the_line_of_the_file(task, monkeypatch):
    def raising(problem, params):
        raise FloatingPointError("nothing but air")

    monkeypatch.setattr(cf.Problem, "gradient", raising)
    monkeypatch.setattr("counterflow.cli.sweep_run.digest_of", lambda *_: task.configuration.digest)
    assert "nothing but air" in carry_out_one(task)


def test_a_file_that_was_changed_is_a_reason(task):
    path = task.model.rpartition(":")[0]
    with open(path, "a", encoding="utf-8") as file:
        file.write("# another text\n")
    assert "must be the same for all workers" in carry_out_one(task)
    assert not (task.folder / task.configuration.name).exists()


def test_a_file_that_is_gone_is_a_reason(task):
    assert "nowhere.py" in carry_out_one(
        Task(task.configuration, task.folder, "a command", model="nowhere.py:problem")
    )
    assert not task.folder.exists()
