"""What is seen of a sweep at work in a terminal."""

import io

from rich.console import Console

from counterflow.cli.sweep_views import LiveSweepView
from counterflow.sweeps.carry_out import Progress


def drawn(view):
    """What a live view shows now."""
    file = io.StringIO()
    Console(file=file, width=100).print(view._live.renderable)
    return file.getvalue().splitlines()


def test_the_live_table_shows_every_run_and_what_happens_to_it():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=12)
    board = {
        "η = 0.1": Progress(100, "at work", 40, 2, started=0.0, ended=5.0),
        "η = 0.01\x1b[2J": Progress(100),
        "η = -1": Progress(0, "failed", reason="`learning_rates` must be positive"),
    }
    with LiveSweepView(console) as view:
        view.planned(board)
        first, header, *rows = drawn(view)
        view.retried("η = 0.1", "its worker died", board)
        board["η = 0.1"].status, board["η = 0.1"].records = "done", 100
        view.ended("η = 0.1", board)
        over = drawn(view)[0]
    assert first.split(";") == ["3 runs: 1 at work, 1 waiting, 1 failed", " 40 of 200 records"]
    assert header.split() == ["run", "status", "records", "tries", "time"]
    assert [row.split() for row in rows] == [
        *(["η", "=", "0.1", "at", "work", "40", "/", "100", "2", "5", "s"],),
        *(["η", "=", "0.01\\x1b[2J", "waiting", "0", "/", "100"], ["η", "=", "-1", "failed"]),
    ]
    assert "1 done" in over
    said = file.getvalue()
    assert "η = 0.1: its worker died; going on from its last record" in said
    assert "[2/3] η = 0.1: done in 5 s" in said
    assert "\x1b[2J" not in said


def test_with_more_runs_than_lines_those_at_work_are_shown():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=10)
    board = {f"run {i}": Progress(10, "done", 10) for i in range(20)}
    board["run 17"] = Progress(10, "at work", 3)
    with LiveSweepView(console) as view:
        view.looked(board)
        lines = drawn(view)
    assert any("run 17" in line and "at work" in line for line in lines)
    assert lines[-1] == "and 16 more"
