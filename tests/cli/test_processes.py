"""The command in processes of its own, as users have it: in a terminal, killed, or two at once."""

import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from command_line import TINY, assert_same_series, counterflow, in_terminal, start
from counterflow.runs.database import StoreError
from counterflow.runs.run import open_run

SECONDS = 120
# Long enough to be killed in between, and without predictions, which take longest to compile.
LONG = ["figure3", *TINY, "--learning-rates", "0.1", "--steps", "100", "--records", "25"]
TRAINING = "η = 0.1, λ = 0.001, seed 7"


def only_run(folder):
    """The only run in a folder, or nothing if it cannot be read yet."""
    try:
        (place,) = folder.iterdir()
        return open_run(place)
    except (FileNotFoundError, ValueError, StoreError):
        return None


def wait_for_records(folder, count, process):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        run = only_run(folder)
        if run and any(len(known.steps) >= count for known in run.trainings.values()):
            return
        time.sleep(0.02)
    pytest.fail(f"no {count} records: exit code {process.poll()}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What was seen in a terminal of a run in one piece, and the run."""
    folder = tmp_path_factory.mktemp("whole")
    code, seen = in_terminal("reproduce", *LONG, "--folder", str(folder))
    assert code == 0, seen
    return seen, only_run(folder)


def test_a_terminal_shows_the_table_while_it_runs(whole):
    seen, run = whole
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r", "")
    assert "Traceback" not in text
    assert f"[2/3] {TRAINING}: compiling and computing" in text
    assert re.search(r"record \d+ of 26, about \d+ s left for this part", text)
    assert re.search(r"process +step +time +loss +error +gradients +gradients/s", text)
    assert re.search(r"descent +\d+ +[\d.]+ +[\d.]+ +\d+ +[\d,]+", text)
    assert re.search(r"flow 0 +\d+ +[\d.]+ +[\d.]+ +\d\.\d\de[-+]\d\d +[\d,]+ +[\d,]+", text)
    assert f"[2/3] {TRAINING}: done in" in text
    assert text.rstrip().splitlines()[-2:] == [
        f"report: {run.folder / 'report.html'}",
        f"figures: {run.folder / 'figures'}",
    ]
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h")  # the cursor is shown again


def test_a_killed_run_goes_on_where_it_was_to_the_same_last_bit(whole, tmp_path):
    command = ["reproduce", *LONG, "--folder", str(tmp_path)]
    process = start(*command, stdout=subprocess.DEVNULL)
    wait_for_records(tmp_path, 2, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (before,) = only_run(tmp_path).trainings.values()
    assert before.status == "running"
    assert 2 <= len(before.steps) < before.total

    done = counterflow(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "symmetries: done" not in done.stdout
    assert f"[1/2] {TRAINING}" in done.stdout
    after = only_run(tmp_path)
    assert_same_series(after, whole[1])
    known = after.trainings[TRAINING]
    for key, values in before.series.items():
        np.testing.assert_array_equal(values, known.series[key][: len(values)])
    assert len({sitting["command"] for sitting in after.sittings}) == 1
    assert len(after.sittings) == 2


def test_ctrl_c_of_a_process_at_work_and_a_second_process_on_its_run(tmp_path):
    # Its end is out of reach, but it stops after any of its windows.
    endless = ["equilibrium", *TINY, "--long-steps", "400000", "--folder", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start("reproduce", *endless, **pipes)
    told = []

    def read_to(words):
        for line in process.stdout:
            told.append(line)
            if words in line:
                return
        pytest.fail("".join(told))

    read_to("[2/2] equilibrium")
    second = counterflow("reproduce", *endless)
    assert second.returncode == 1
    holder = rf"counterflow: {only_run(tmp_path).folder} is being written by process {process.pid}"
    assert re.fullmatch(rf"{holder}: .*\n", second.stderr)

    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "stopping at the next record; Ctrl-C once more stops at once" in output
    assert "to go on: counterflow reproduce equilibrium --samples 40" in output
    assert errors == ""
    run = only_run(tmp_path)
    assert list(run.results) == ["symmetries"]
    # The windows that are done are kept: it goes on from them.
    assert list((run.folder / "states").glob("equilibrium-*"))
