"""What is seen of a run at work: plain lines, or a live table in a terminal."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from counterflow.cli import views
from counterflow.cli.downloads import download_view
from counterflow.cli.printing import can_be_drawn_on
from counterflow.cli.views import LiveView, PlainView
from counterflow.runs.training import Training, Update

TRAINING = Training(0.01, 0.01, 7, steps=80, records=4, orders=(0,))
UPDATE = Update(
    TRAINING,
    done=1,
    total=5,
    step=0,
    rows={"descent": {"loss": 2.5}, "flow 0": {"error": 0.0, "flow_loss": 2.5}},
    statistics={
        "descent": {"gradient_evaluations": 0},
        "flow 0": {"gradient_evaluations": 12},
        "coarse flow 0": {"gradient_evaluations": None},
    },
    seconds=30.0,
    rate=0.4,
)


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set."""
    now = [1000.0]
    monkeypatch.setattr(views.time, "perf_counter", lambda: now[0])
    return now


def written(terminal=False):
    file = io.StringIO()
    environment = {"TERM": "xterm"}  # whatever the tests are run in
    return file, Console(file=file, force_terminal=terminal, width=100, _environ=environment)


def later(update, done):
    rows = {"descent": {"loss": 2.25}, "flow 0": {"error": 1.5e-4, "flow_loss": 2.125}}
    return replace(update, done=done, step=20 * (done - 1), rows=rows)


def test_plain_lines_say_what_is_begun_and_done_and_now_and_then_how_far(clock):
    file, console = written()
    view = PlainView(console)
    view.planned([TRAINING], ["symmetries"])
    view.started("symmetries")
    clock[0] += 3
    view.finished("symmetries")
    view.started(TRAINING.name)
    clock[0] += 30  # of compilation
    view.recorded(UPDATE)
    clock[0] += 5
    view.recorded(later(UPDATE, 2))  # too soon for another line
    clock[0] += 7
    view.recorded(later(UPDATE, 3))
    view.finished(TRAINING.name)
    assert file.getvalue().splitlines() == [
        "[1/2] symmetries",
        "[1/2] symmetries: done in 3 s",
        "[2/2] η = 0.01, λ = 0.01, seed 7",
        "    step 0 of 80, loss 2.5, error of gradient flow 0.00e+00, 0 gradients/s, "
        "no estimate yet",
        "    step 40 of 80, loss 2.25, error of gradient flow 1.50e-04, 0 gradients/s, "
        "about 12 s left",
        "[2/2] η = 0.01, λ = 0.01, seed 7: done in 42 s",
    ]


def test_work_that_takes_long_says_how_far_it_is(clock):
    file, console = written()
    view = PlainView(console)
    view.planned([], ["equilibrium"])
    view.started("equilibrium")
    clock[0] += 12
    view.progressed(1, 4, "")
    clock[0] += 5
    view.progressed(2, 4, "")  # too soon for another line
    clock[0] += 5
    view.progressed(3, 4, "")
    clock[0] += 20
    view.progressed(0, 0, "learning rate 2 tried, 0.1")
    assert file.getvalue().splitlines()[1:] == [
        "    part 1 of 4, no estimate yet",
        "    part 3 of 4, about 5 s left",
        "    learning rate 2 tried, 0.1",
    ]
    view = LiveView(written(terminal=True)[1])
    view.planned([], ["equilibrium"])
    with view:
        view.started("equilibrium")
        view.progressed(1, 4, "")
        assert drawn(view).strip() == "[1/1] equilibrium: part 1 of 4, no estimate yet"


def test_the_live_table_shows_every_process(clock):
    file, console = written(terminal=True)
    view = LiveView(console)
    view.planned([TRAINING], [])
    with view:
        view.started(TRAINING.name)
        assert "compiling" in drawn(view)
        clock[0] += 30
        view.recorded(UPDATE)
        assert "record 1 of 5, no estimate yet" in drawn(view)
        clock[0] += 4
        view.recorded(later(UPDATE, 2))
        heading, header, *rows = drawn(view).splitlines()
        view.said("something to know")
        view.finished(TRAINING.name)
    assert heading.strip() == (
        "[1/1] η = 0.01, λ = 0.01, seed 7: record 2 of 5, about 12 s left for this part"
    )
    assert header.split() == "process step time loss error gradients gradients/s".split()
    assert [row.split() for row in rows] == [
        ["descent", "20", "0.2", "2.25", "0", "0"],
        ["flow", "0", "20", "0.2", "2.125", "1.50e-04", "12", "0"],
        ["coarse", "flow", "0", "20", "0.2", "0", "0"],
    ]
    assert "something to know" in file.getvalue()
    assert "[1/1] η = 0.01, λ = 0.01, seed 7: done in 34 s" in file.getvalue()


def drawn(view):
    """What a live view shows now."""
    file, console = written()
    console.print(view._live.renderable)
    return file.getvalue()


def test_a_download_is_a_line_or_a_bar_or_nothing():
    for terminal, quiet, seen in (
        (False, False, "downloading images.gz\n"),
        (True, False, "downloading images.gz"),
        (True, True, ""),
        (False, True, ""),
    ):
        file, console = written(terminal)
        with download_view(console, quiet) as progress:
            for done in (0, 500, 1000):
                progress("images.gz", done, 1000)
        assert (seen in file.getvalue()) if seen else file.getvalue() == ""
        if not terminal and seen:
            assert file.getvalue() == seen
    file, console = written()
    with download_view(console, quiet=False):
        pass
    assert file.getvalue() == ""  # nothing was to be downloaded


def test_a_terminal_that_only_takes_lines_gets_lines():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, _environ={"TERM": "dumb"})
    assert not can_be_drawn_on(console)
    assert can_be_drawn_on(written(terminal=True)[1])
    with download_view(console, quiet=False) as progress:
        progress("images.gz", 0, 1000)
    assert "downloading images.gz" in file.getvalue()
