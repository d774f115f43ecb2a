"""The parent of several processes: what it refuses, whom it blames; and it leaves none behind."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from counterflow.cli import launch, main
from counterflow.cli.launch import Ending
from counterflow.cli.processes import LOST

COMMAND = "run nowhere.py:problem --learning-rate 0.1 --steps 3".split()


@pytest.mark.parametrize(
    ("option", "number", "bound"),
    [
        ("--processes", 0, "at least 1"),
        ("--processes", -1, "at least 1"),
        ("--processes", launch.MOST + 1, "at most 256"),
        ("--processes", 10**40, "at most 256"),
        ("--patience", 0, "at least 1"),
        ("--patience", 10**40, "at most 604800"),
    ],
)
def test_numbers_out_of_bounds_are_refused(monkeypatch, capsys, option, number, bound):
    monkeypatch.delattr(launch, "launch")  # it must not come to that
    assert main([*COMMAND, option, str(number)]) == 2
    assert f"{option} must be {bound}, got {number}" in capsys.readouterr().err


def test_if_not_all_can_be_started_none_is_left_behind(monkeypatch, tmp_path, capsys):
    started, pipes, pipe = [], [], os.pipe

    def start(*_):
        if len(started) == 2:
            raise OSError("there is no room for another process")
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[-1]

    def noted_pipe():
        pipes.append(pipe())
        return pipes[-1]

    monkeypatch.setattr(launch, "_start", start)
    monkeypatch.setattr(launch.tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(launch, "os", SimpleNamespace(pipe=noted_pipe, close=os.close))
        assert main([*COMMAND, "--processes", "4"]) == 1
    assert "there is no room for another process" in capsys.readouterr().err
    assert [child.returncode for child in started] == [-signal.SIGKILL] * 2
    assert not list(tmp_path.iterdir())  # nor are their logs
    (ends,) = pipes
    for end in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)


@pytest.mark.parametrize(
    ("codes", "ending", "blamed"),
    [
        # One is killed, and the others lose it.
        ([LOST, LOST, -9, -6], Ending([2, 0, 3, 1], [], []), [2]),
        # One is killed, and another is still at work after the grace.
        ([-9, LOST, -9, LOST], Ending([2, 1, 3], [0], []), [2]),
        # One fails by itself, with an exit code of its own.
        ([LOST, 1, LOST, LOST], Ending([0, 1, 2, 3], [], []), [1]),
        # One was stopped; another did not notice in time that it is alone.
        ([-9, -6, -9, -6], Ending([1, 3], [0, 2], [2]), [2]),
        # Two did not end, and nothing says which of them hung.
        ([-9, -6, -9, -6], Ending([1, 3], [0, 2], []), [0, 2]),
        # All have lost another one: the first that did knows most.
        ([-6, LOST, -6, -6], Ending([1, 0, 2, 3], [], []), [1]),
    ],
)
def test_the_one_that_was_lost_is_blamed(codes, ending, blamed):
    assert launch._lost(codes, ending) == blamed


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_one_that_is_stopped_is_ended_at_once_when_another_fails(monkeypatch):
    monkeypatch.setattr(launch, "GRACE", 600)
    hung = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    hung.send_signal(signal.SIGSTOP)
    failed = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    assert launch._wait([hung, failed]) == Ending([1], [0], [0])
    assert hung.returncode == -signal.SIGKILL
