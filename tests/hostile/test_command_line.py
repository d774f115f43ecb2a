"""Command lines at random, from the real options and what nobody would type: told, never a trace.

No value lets a computation begin: every model and every folder of data is missing, and processes
are not started.
"""

import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest
from hypothesis import given, settings, strategies as st

from counterflow.cli import launch, main
from counterflow.cli.working import CommandError

COMMANDS = ["reproduce", "run", "sweep", "init", "report", "export", "version", "", "rn"]
JUNK = st.one_of(
    st.text(max_size=12),
    st.text("-:./ =[]{}0123456789eE+\x1b\0\n\udcff\u202e'\"", max_size=8),
    st.sampled_from("nan inf -1 0 1e999 None quick mnist full digits figure2 taylor -- -h".split()),
    st.sampled_from(["x.py:y", "nowhere", "a" * 300, "9" * 40, "__import__('os')"]),
)
MISSING = ["--data", "mnist", "--data-dir", "nowhere"]


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """The options of every command, from what its help prints."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("help"))
        for command in COMMANDS[:7]:
            code, said = carried_out([command, "--help"])
            assert code == 0
            found[command] = sorted(set(re.findall(r"--[a-z][a-z-]+", said)))
    assert "--learning-rate" in found["run"]
    assert "--hidden-widths" in found["reproduce"]
    return found


def carried_out(arguments):
    """The exit code of a command, and what it printed."""
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            code = main(arguments)
        except SystemExit as ended:  # by the parser
            code = ended.code
    return code, said.getvalue()


@pytest.fixture
def _nothing_is_started(monkeypatch):
    """In place of starting processes, their number is looked at, and refused as if typed wrong."""

    def refuse(arguments, processes):
        assert processes == "cluster" or 2 <= processes <= launch.MOST, arguments
        raise CommandError("processes are not started here")

    monkeypatch.setattr(launch, "launch", refuse)


@pytest.mark.usefixtures("_nothing_is_started")
@settings(max_examples=80)
@given(data=st.data())
def test_every_command_line_is_carried_out_or_told(data, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = data.draw(st.sampled_from(COMMANDS))
    known = st.sampled_from(options.get(command) or ["--size"])
    rest = data.draw(st.lists(known | JUNK, max_size=6))
    if command == "reproduce":
        rest += MISSING
    if command == "run":
        rest = ["nowhere.py:problem", *rest]
    code, said = carried_out([command, *rest] if command else rest)
    assert code in (0, 1, 2)
    assert said.strip()
    assert "Traceback" not in said
    assert "\x1b" not in said


@pytest.mark.usefixtures("_nothing_is_started")
@pytest.mark.parametrize("command", [["run", "nowhere.py:problem"], ["reproduce", *MISSING]])
@pytest.mark.parametrize("option", ["--processes", "--patience"])
def test_no_number_starts_more_processes_than_a_machine_has_room_for(command, option, tmp_path):
    steps = "--learning-rate 0.1 --steps 3".split() if command[0] == "run" else []
    given = [*command, *steps, "--folder", str(tmp_path), option, str(10**40)]
    code, said = carried_out(given)
    assert code == 2
    assert re.search(rf"{option} must be at most \d+, got 1", said)
    assert not list(tmp_path.iterdir())
