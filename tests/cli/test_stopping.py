"""A command that is asked to stop stops at a record, says so, and goes on when it is repeated."""

import signal

import pytest

from command_line import TINY, assert_same_series, reproduce
from counterflow.cli import main
from counterflow.cli.stopping import stopping_at_a_record
from counterflow.errors.lock_step import LockStep
from counterflow.runs.run import open_run


def test_the_first_ctrl_c_only_asks_and_the_second_interrupts():
    said = []
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stopping_at_a_record(said.append) as stopping:
        assert not stopping()
        signal.raise_signal(signal.SIGINT)
        assert stopping()
        assert len(said) == 1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_request_to_terminate_interrupts():
    with stopping_at_a_record(pytest.fail), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in one piece."""
    return reproduce(tmp_path_factory.mktemp("whole"), "figure2", *TINY)


@pytest.mark.parametrize(
    ("signals", "kept"),
    [
        ([signal.SIGINT], 3),  # the record at work is still made
        ([signal.SIGINT, signal.SIGINT], 2),
        ([signal.SIGTERM], 2),
    ],
)
def test_a_stopped_command_says_how_to_go_on_and_goes_on(
    signals, kept, whole, tmp_path, monkeypatch, capsys
):
    def advance(self, index, advance=LockStep.advance):
        if index == 2:
            for number in signals:
                signal.raise_signal(number)
        return advance(self, index)

    command = ["reproduce", "figure2", *TINY, "--folder", str(tmp_path / "the runs")]
    with monkeypatch.context() as patched:
        patched.setattr(LockStep, "advance", advance)
        assert main(command) == 130
    place = tmp_path / "the runs" / whole.folder.name
    said, kept_in, go_on = capsys.readouterr().out.splitlines()[-3:]
    assert said.startswith("stopping at the next record") == (signal.SIGINT in signals)
    assert kept_in == f"stopped; every record so far is in {place}"
    assert go_on.startswith("to go on: counterflow reproduce figure2 --samples 40 ")
    assert go_on.endswith(f" --folder '{tmp_path}/the runs'")
    (training,) = open_run(place).trainings.values()
    assert (len(training.steps), training.status) == (kept, "running")

    assert main(command) == 0
    output = capsys.readouterr().out
    assert "symmetries: done" not in output
    assert "[1/1] η = 0.01, λ = 0.01, seed 7: done" in output
    assert_same_series(open_run(place), whole)


def test_ctrl_c_while_the_report_is_written_is_no_traceback(whole, monkeypatch, capsys):
    def interrupted(*arguments):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("counterflow.report.report.write_figures", interrupted)
    command = ["reproduce", "figure2", *TINY, "--folder", str(whole.folder.parent)]
    assert main(command) == 130
    assert "to go on: counterflow reproduce figure2" in capsys.readouterr().out
    monkeypatch.setattr("counterflow.report.report.write_figures", _ctrl_c)
    assert main(["report", str(whole.folder)]) == 130
    assert capsys.readouterr().err == "counterflow: stopped\n"


def _ctrl_c(*arguments):
    raise KeyboardInterrupt
