"""The command line: in a process of its own where that matters, else in this one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from counterflow.cli import main

COMMAND = [str(Path(sys.executable).with_name("counterflow"))]
SMALL = ["--hidden-widths", "4", "4", "--taylor-orders", "0", "1", "--orbit-orders", "0", "1"]


# A process of its own compiles as users do, not as the tests do to save time (conftest.py).
AS_USERS = {
    k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")
}


def counterflow(*arguments, **options):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, env=AS_USERS, **options
    )


def stored(folder):
    return json.loads((folder / "accuracy_by_order.json").read_text())


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    done = counterflow("reproduce", "--folder", str(folder), "--steps", "20", *SMALL)
    return done, stored(folder)["results"]


def test_reproduce_prints_a_table_and_saves_it(plain):
    done, results = plain
    assert done.returncode == 1, done.stderr  # two orders do not reach 1e-11, and it says so
    assert "FAILS: taylor" in done.stdout
    error = results["taylor 1"]["relative_error"]
    assert f"{error:.2e}" in done.stdout
    assert f"{results['orbit 1']['gradient_evaluations']:,}" in done.stdout
    assert "[1/5]" in done.stdout


ONE_FLOW = ["--steps", "5", "--taylor-orders", "0", "--orbit-orders", "0"]


def in_process(folder, *options):
    """The stored results of a command that runs in this process, where compilations are shared."""
    main(["reproduce", "--folder", str(folder), "--quiet", *SMALL, *ONE_FLOW, *options])
    return stored(folder)["results"]


@pytest.mark.parametrize(
    "option",
    [
        ["--learning-rate", "0.02"],
        ["--weight-decay", "0.3"],
        ["--seed", "8"],
        ["--hidden-widths", "5", "3"],
        ["--tolerance", "1e-6"],
        ["--steps", "6"],
        ["--taylor-orders", "1"],
        ["--orbit-orders", "1"],
    ],
)
def test_every_option_has_an_effect(tmp_path_factory, option):
    plain = in_process(tmp_path_factory.getbasetemp() / "in-process")
    assert in_process(tmp_path_factory.mktemp("option"), *option) != plain


def test_quiet_prints_no_progress(tmp_path, capsys):
    for quiet in ([], ["--quiet"]):
        folder = tmp_path / f"quiet {len(quiet)}"
        main(["reproduce", "--folder", str(folder), *SMALL, *ONE_FLOW, *quiet])
        output = capsys.readouterr().out
        assert "FAILS: taylor" in output
        assert ("[1/" in output) == (not quiet)


def test_a_killed_run_goes_on_where_it_was(plain, tmp_path):
    command = [*COMMAND, "reproduce", "--folder", str(tmp_path), "--steps", "20", *SMALL]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=AS_USERS)
    path = tmp_path / "accuracy_by_order.json"
    deadline = time.time() + 120
    while not path.exists() and time.time() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kept = stored(tmp_path)["results"]
    assert 0 < len(kept) < 5
    done = counterflow(*command[len(COMMAND) :])
    assert "[1/5]" not in done.stdout
    assert stored(tmp_path)["results"] == plain[1]


def test_ctrl_c_says_how_to_go_on(tmp_path):
    command = [*COMMAND, "reproduce", "--folder", str(tmp_path), "--steps", "2000", *SMALL]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, env=AS_USERS)
    for line in process.stdout:
        if line.startswith("[2/"):
            break
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command goes on" in output
    assert "Traceback" not in errors


def test_bad_input_is_refused_in_words(tmp_path):
    done = counterflow("reproduce", "--folder", str(tmp_path), "--learning-rate", "-1")
    assert done.returncode == 2
    assert "must be a positive" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "runs"
    assert main(["reproduce", "--folder", str(folder), *SMALL, *ONE_FLOW]) == 1
    errors = capsys.readouterr().err
    assert f"cannot keep results in {folder}" in errors
    assert "Traceback" not in errors


def test_version_and_help(capsys):
    assert counterflow("version").stdout.strip() == "0.1.0"
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "reproduce" in capsys.readouterr().out
