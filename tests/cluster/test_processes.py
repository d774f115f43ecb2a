"""Several processes that compute together, for real: the same series, and nothing lost."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from command_line import AS_USERS, COMMAND, assert_same_series
from counterflow.runs.agreement import apart
from counterflow.runs.database import StoreError
from counterflow.runs.run import open_run

pytestmark = pytest.mark.cluster

MODEL = f"{Path(__file__).parent / 'model.py'}:problem"
# Where one is to hang: elsewhere, and with four that compile on two cores, it may be too short.
PATIENCE = 10
RUN = ["run", MODEL, *"--learning-rate 1e-2 --steps 20 --orders 0 1 --records 10".split()]
# With little to compile, and many records to be killed between.
LONG = (
    "reproduce figure4 --samples 40 --hidden-widths 4 3 --learning-rates 0.01 --weight-decays 0.01 "
    "0.001 --steps 200 --records 100 --orders 0 1"
).split()
# How far two series may be apart; see `apart`.
CLOSE = 1e-12
# A cluster that these tests are run on is none of theirs.
CLUSTERS = ("SLURM_", "OMPI_", "KUBERNETES_")
ALONE = {name: value for name, value in AS_USERS.items() if not name.startswith(CLUSTERS)}


@pytest.fixture(scope="module", autouse=True)
def _compiled(tmp_path_factory):
    """The first process finds what an earlier one compiled; the others compile for themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same analysis by one, two and four processes."""
    folder = tmp_path_factory.mktemp("runs")
    return {n: finished(folder / str(n), n, RUN) for n in (1, 2, 4)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The long run by one, two and four processes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return {n: finished(folder / str(n), n) for n in (1, 2, 4)}


def environment():
    return ALONE | {k: v for k, v in os.environ.items() if k.startswith("JAX")}


def start(folder, processes, command=LONG, *options, **told):
    """The command at work."""
    places = ["--folder", str(folder), "--processes", str(processes)]
    return subprocess.Popen(
        [COMMAND, *command, *places, *options],
        text=True,
        env=environment() | told,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(folder, processes, command=LONG):
    """The run, when the command has ended well."""
    said, wrong = start(folder, processes, command).communicate(timeout=1200)
    assert "claims hold" in said, said + wrong
    assert not wrong
    return only_run(folder)


def only_run(folder):
    (place,) = folder.iterdir()
    return open_run(place)


def records(folder):
    """How many records are kept so far."""
    try:
        return records_of(only_run(folder))
    except (StoreError, ValueError, OSError):
        return 0


def records_of(run):
    return sum(len(known.steps) for known in run.trainings.values())


def at_work(folder, processes, *options):
    """The command, when it has kept some records, and the numbers of its processes."""
    command = start(folder, processes, LONG, *options)
    before = records(folder)
    while records(folder) < before + 3:
        assert command.poll() is None, command.communicate()
        time.sleep(0.05)
    return command, children(command.pid)


def children(parent):
    """The processes of a parent, in their order."""
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True).stdout
    number = {}
    for pid in map(int, found.split()):
        told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        (number[pid],) = [one for one in told if one.startswith(b"COUNTERFLOW_PROCESS=")]
    return sorted(number, key=number.__getitem__)


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("processes", [2, 4])
def test_an_analysis_by_several_processes_is_that_of_one(runs, processes):
    found = apart(runs[1], runs[processes])
    assert {"loss", "error", "relative_error", "propagated_prediction"} <= found.keys()
    assert all(difference < CLOSE for difference in found.values()), found


@pytest.mark.parametrize("processes", [2, 4])
def test_the_series_are_those_of_one_process(undisturbed, processes):
    found = apart(undisturbed[1], undisturbed[processes])
    assert {"loss", "error", "relative_error"} <= found.keys()
    assert all(difference < CLOSE for difference in found.values()), found


def test_one_process_writes_and_notes_how_many_there_were(runs):
    for processes in (2, 4):
        (sitting,) = runs[processes].sittings
        assert sitting["fingerprint"]["processes"] == str(processes)
    assert "processes" not in runs[1].sittings[0]["fingerprint"]


@pytest.mark.parametrize(
    ("count", "number", "fault", "said"),
    [
        (2, 1, signal.SIGKILL, "process 2 of 2 ended by SIGKILL"),
        (2, 0, signal.SIGKILL, "process 1 of 2 ended by SIGKILL"),
        (4, 2, signal.SIGKILL, "process 3 of 4 ended by SIGKILL"),
        (2, 1, signal.SIGSTOP, "process 2 of 2 did not answer"),
        (2, 0, signal.SIGSTOP, "process 1 of 2 did not answer"),
        (4, 2, signal.SIGSTOP, "process 3 of 4 did not answer"),
    ],
)
def test_one_that_dies_or_hangs_ends_the_others_and_the_run_goes_on(
    undisturbed, tmp_path, count, number, fault, said
):
    hangs = fault == signal.SIGSTOP
    command, pids = at_work(tmp_path, count, *(["--patience", str(PATIENCE)] if hangs else []))
    since = time.monotonic()
    os.kill(pids[number], fault)
    _, wrong = command.communicate(timeout=120)
    # What docs/clusters.md states.
    assert time.monotonic() - since < (PATIENCE + 10 if hangs else 10)
    assert command.returncode == 1
    assert said in wrong
    assert "the same command goes on" in wrong
    assert all(map(is_gone, pids))
    if (count, fault) != (4, signal.SIGKILL):  # four that go on are tried once
        kept = only_run(tmp_path)
        gone_on = finished(tmp_path, count)
        assert_same_series(gone_on, undisturbed[count])
        assert_goes_on(kept, gone_on)


def assert_goes_on(kept, gone_on):
    """Asserts that what was on disk is there as it was, and that more was computed than that."""
    assert len(gone_on.sittings) == len(kept.sittings) + 1
    for name, known in kept.trainings.items():
        for key, values in known.series.items():
            found = gone_on.trainings[name].series[key][: len(values)]
            np.testing.assert_array_equal(found, values)
    assert records_of(gone_on) > records_of(kept)


def test_one_that_waits_in_its_own_code_is_given_up_when_xla_loses_patience(tmp_path):
    file, seconds = tmp_path / "waits.py", 15
    file.write_text(
        Path(__file__).with_name("model.py").read_text()
        + "\nimport time\n\nimport jax\n\nif jax.process_index():\n    time.sleep(600)\n"
    )
    command = start(
        tmp_path / "runs",
        2,
        ["run", f"{file}:problem", "--learning-rate", "1e-2", "--steps", "20"],
        XLA_FLAGS=f"--xla_cpu_collective_timeout_seconds={seconds}",
    )
    _, wrong = command.communicate(timeout=300)
    assert command.returncode == 1
    assert "of 2 failed, or gave up waiting for another one" in wrong
    log = Path(wrong.split()[-1])
    assert f"Timed out waiting {seconds * 1000}ms" in log.read_text()


TAKEN_FIRST = """
import socket, sys
from counterflow.cli import launch, main

free, taken = launch._free_address, socket.socket()
taken.bind(("127.0.0.1", 0))
addresses = [f"127.0.0.1:{taken.getsockname()[1]}"]
launch._free_address = lambda: addresses.pop() if addresses else free()
code = main(sys.argv[1:])
assert not addresses
raise SystemExit(code)
"""


def test_an_address_that_somebody_took_is_not_the_end(tmp_path):
    # A file that is not there is noticed when they have joined.
    options = "--learning-rate 1e-2 --steps 20 --processes 2 --folder".split()
    command = [sys.executable, "-c", TAKEN_FIRST, "run", "nowhere.py:problem", *options]
    found = subprocess.run(
        [*command, str(tmp_path)], capture_output=True, text=True, env=ALONE, timeout=300
    )
    assert found.returncode == 2
    assert "nowhere.py" in found.stderr
    assert "cannot go on without" not in found.stderr


def test_ctrl_c_stops_all_of_them_at_a_record(tmp_path):
    command, pids = at_work(tmp_path, 2)
    command.send_signal(signal.SIGINT)
    said, wrong = command.communicate(timeout=60)
    assert command.returncode == 130, wrong
    assert "to go on: counterflow reproduce" in said
    assert all(map(is_gone, pids))


def test_without_their_parent_they_end(tmp_path):
    command, pids = at_work(tmp_path, 2)
    command.kill()
    command.communicate()
    deadline = time.monotonic() + 20
    while not all(map(is_gone, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # With another number of processes it goes on too, and says so.
    said, _ = start(tmp_path, 1).communicate(timeout=300)
    assert "processes was 2, is unknown" in said
    assert "claims hold" in said


def test_processes_that_slurm_started_find_each_other(runs, tmp_path):
    # What Slurm tells each of its processes, and JAX's coordinator kept to this machine.
    job, address = free_job()
    commands = [
        subprocess.Popen(
            [COMMAND, *RUN, "--folder", str(tmp_path / str(number)), "--processes", "cluster"],
            text=True,
            env=environment()
            | {
                "SLURM_JOB_ID": str(job),
                "SLURM_STEP_NODELIST": "127.0.0.1",
                "SLURM_NTASKS": "2",
                "SLURM_PROCID": str(number),
                "SLURM_LOCALID": str(number),
                "JAX_COORDINATOR_BIND_ADDRESS": address,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(2)
    ]
    (first, wrong), (second, also) = (one.communicate(timeout=1200) for one in commands)
    assert [one.returncode for one in commands] == [0, 0], wrong + also
    assert "claims hold" in first
    # One of them speaks and writes.
    assert not second
    assert [place.name for place in tmp_path.iterdir()] == ["0"]
    assert_same_series(only_run(tmp_path / "0"), runs[2])


def free_job():
    """The number of a job whose address, as JAX derives it, nobody has; and that address."""
    for job in random.sample(range(2**12), 100):
        port = 65536 - 2**12 + job
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return job, f"127.0.0.1:{port}"
    pytest.fail("no port is free")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--processes", "1000"], "--processes must be at most 256, got 1000"),
        (["--processes", "cluster"], "JAX found none of them"),
    ],
)
def test_what_cannot_be_is_said(options, said, tmp_path):
    command = [COMMAND, *RUN, "--folder", str(tmp_path), *options]
    found = subprocess.run(command, capture_output=True, text=True, env=ALONE, timeout=120)
    assert found.returncode == 2
    assert said in found.stderr
    assert not list(tmp_path.iterdir())
