"""Sweeps on Ray: workers are killed, the command is stopped, and nothing is lost or done twice.

`make test-cluster` runs these; they need Ray.
"""

import math
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import counterflow as cf
from command_line import COMMAND, assert_same_series

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: run `make test-cluster`"),
]

# On a busy machine, Ray alone may take minutes to start.
SECONDS = 900
RECORDS = 120
# Without predictions, which take longest to compile.
SWEEP = f"""
name = "killed"
experiments = ["figure4"]

[settings]
samples = 40
hidden_widths = [4, 3]
weight_decays = [1e-2, 1e-3]
steps = 1200
records = {RECORDS}
orders = [0, 1]

[grid]
learning_rates = [0.1, 0.05, 0.02, -1]
"""
FAILED = {"η = -1": "`learning_rates` must be positive, got -1"}
NAMES = ["η = 0.1", "η = 0.05", "η = 0.02"]
# Compiled as other tests are, and Ray on the loopback, which no other machine reaches.
ENVIRONMENT = os.environ | {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # memory that others use is not to end a worker
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # of the clusters of these tests alone
}


def begin(file, folder, *options):
    command = [COMMAND, "sweep", str(file), "--folder", str(folder), *options]
    return subprocess.Popen(
        command,
        text=True,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Who runs the tests in the background ignores Ctrl-C, and hands that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def at_work(folder):
    """The process of every run that is at work, with how many records it has, by folder."""
    found = {}
    for lock in folder.glob("digits-*/lock"):
        try:
            (known,) = cf.open_run(lock.parent).trainings.values()
            holder = int(lock.read_text().removeprefix("process "))
        except (ValueError, cf.StoreError):  # it is just being made
            continue
        if not known.finished and alive(holder):
            found[lock.parent.name] = holder, len(known.steps)
    return found


def alive(process):
    """Whether a process is at work; one that ended and that nobody asked after is not."""
    seen = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True)
    return seen.stdout.strip()[:1] not in ("", "Z")


def wait_for(what, process):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := what():
            return found
        if process.poll() is not None:
            pytest.fail(f"it ended with {process.returncode}: {process.communicate()}")
        time.sleep(0.02)
    pytest.fail("nothing happened")


def wait_until(what):
    deadline = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    place = tmp_path_factory.mktemp("files")
    (place / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    return place / "sweep.toml"


@pytest.fixture(scope="module")
def address():
    """The address of a cluster that was started for others than us, on the loopback alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = (
        f"--head --block --port {port} --node-ip-address 127.0.0.1 --num-cpus 2 "
        "--object-store-memory 100000000 --include-dashboard false --disable-usage-stats"
    )
    command = [str(Path(sys.executable).with_name("ray")), "start", *options.split()]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    said = []
    for line in process.stdout:
        said.append(line)
        if "--block" in line:  # it is up, and stays
            break
    else:
        pytest.fail(f"Ray did not start: {''.join(said)}")
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.communicate(timeout=SECONDS)


@pytest.fixture(scope="module")
def undisturbed(file, address, tmp_path_factory):
    """A sweep on a cluster by its address."""
    folder = tmp_path_factory.mktemp("undisturbed")
    process = begin(file, folder, "--ray", address)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (1, ""), output
    (place,) = folder.glob("sweep-killed-*")
    return cf.open_sweep(place)


@pytest.fixture(scope="module")
def stopped(file, tmp_path_factory):
    """The folder of a sweep on a Ray of its own that was stopped by Ctrl-C, and what it said."""
    folder = tmp_path_factory.mktemp("stopped")
    process = begin(file, folder)
    workers = wait_for(lambda: at_work(folder), process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (130, ""), output
    return folder, output, [holder for holder, _ in workers.values()]


@pytest.fixture(scope="module")
def killed(file, stopped):
    """The same sweep, gone on with while two of its workers are killed; and what it said.

    With it, the runs of these as they were then.
    """
    folder, _, _ = stopped
    process = begin(file, folder)
    chance, records = random.Random(0), {}
    for _ in range(2):
        least = chance.randrange(2, RECORDS // 4)

        def kill_one(least=least):
            for name, (holder, count) in at_work(folder).items():
                if name not in records and count >= least:
                    return name if killed_at_work(folder, name, holder, records) else None
            return None

        wait_for(kill_one, process)

    def never_fewer():
        # While the others go on, those that were killed keep what they had, and go on from there:
        # each record leaves a state, and none of an earlier one is seen again.
        for name, before in records.items():
            (known,) = cf.open_run(folder / name).trainings.values()
            assert len(known.steps) >= records_of(before)
            states = (folder / name / "states").glob("*.safetensors")
            numbers = [int(path.stem.rpartition("-")[2]) for path in states]
            assert min(numbers, default=math.inf) >= records_of(before) - 3
        return process.poll() is not None

    wait_until(never_fewer)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (1, ""), output
    (place,) = folder.glob("sweep-killed-*")
    return cf.open_sweep(place), output, records


def killed_at_work(folder, name, holder, records):
    """Kills the worker of a run, if it is still at work on it, and notes the run as it was then.

    A worker takes the next run when one is done: it is stopped while that is looked at.
    """
    os.kill(holder, signal.SIGSTOP)
    if at_work(folder).get(name, (None, 0))[0] != holder:
        os.kill(holder, signal.SIGCONT)
        return False
    os.kill(holder, signal.SIGKILL)
    while alive(holder):
        time.sleep(0.01)
    records[name] = cf.open_run(folder / name)
    return True


def records_of(run):
    (known,) = run.trainings.values()
    return len(known.steps)


def test_a_cluster_by_its_address_carries_every_run_out(undisturbed):
    assert list(undisturbed.runs) == NAMES
    assert undisturbed.failed == FAILED
    for run in undisturbed.runs.values():
        assert len(run.sittings) == 1
        assert (run.folder / "report.html").is_file()


def test_ctrl_c_keeps_the_records_and_leaves_no_worker_behind(stopped):
    folder, output, workers = stopped
    assert f"stopped; every record so far is in {folder}\nto go on: counterflow sweep" in output
    deadline = time.monotonic() + SECONDS
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, workers))


def test_killed_workers_are_retried_and_nothing_is_lost_or_done_twice(killed, undisturbed):
    sweep, output, records = killed
    assert len(records) == 2
    assert output.count("its worker died; going on from its last record") == 2
    assert list(sweep.runs) == NAMES
    for name, run in sweep.runs.items():
        assert_same_series(run, undisturbed.runs[name])
        (known,) = run.trainings.values()
        assert len(known.steps) == known.total == RECORDS + 1
        if run.folder.name in records:
            # What had been kept is there as it was.
            before = records[run.folder.name]
            (earlier,) = before.trainings.values()
            assert len(run.sittings) > len(before.sittings)
            assert run.sittings[: len(before.sittings)] == before.sittings
            for key, values in earlier.series.items():
                np.testing.assert_array_equal(known.series[key][: len(values)], values)


def test_a_failing_configuration_is_listed_and_stops_nobody(killed):
    sweep, output, _ = killed
    assert sweep.failed == FAILED
    assert "failed: η = -1: `learning_rates` must be positive, got -1" in output


def test_what_raises_in_a_worker_is_listed_with_its_reason(undisturbed, address, tmp_path):
    # The same run as before, and one of a network whose params no machine can address.
    text = SWEEP.replace("hidden_widths = [4, 3]", "learning_rates = 0.1")
    text = text.replace('"killed"', '"large"')
    text, _, _ = text.partition("learning_rates = [")
    file = tmp_path / "too_large.toml"
    file.write_text(f"{text}hidden_widths = [[4, 3], [100000, 2147483646]]\n", encoding="utf-8")
    process = begin(file, undisturbed.folder.parent, "--ray", address)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (1, ""), output
    assert "2 runs: 1 finished before" in output
    (reason,) = [line for line in output.splitlines() if line.startswith("failed: ")]
    assert "2147483646: " in reason
    assert "Unable to allocate 1.5" in reason


def test_the_same_command_again_computes_nothing(killed, file):
    sweep, _, _ = killed
    sittings = {name: len(run.sittings) for name, run in sweep.runs.items()}
    process = begin(file, sweep.folder.parent)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (1, "")
    assert "4 runs: 3 finished before, 1 failed" in output
    again = cf.open_sweep(sweep.folder)
    assert {name: len(run.sittings) for name, run in again.runs.items()} == sittings


def test_an_address_without_a_cluster_is_named(file, tmp_path):
    process = begin(file, tmp_path, "--ray", "127.0.0.1:1", "--quiet")
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output) == (1, "")
    assert errors.startswith("counterflow: there is no Ray cluster to be had at '127.0.0.1:1'")
    assert "Traceback" not in errors


def test_more_processors_than_there_are_is_refused(file, tmp_path):
    process = begin(file, tmp_path, "--cpus", "100000", "--quiet")
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output) == (1, "")
    assert errors.startswith("counterflow: a run cannot take 100000 processors, this machine has")


def test_without_retries_a_killed_worker_is_a_failure_that_is_listed(file, tmp_path):
    # As many as Ray finds on this machine: one run takes them all.
    everything = import_module("ray._private.utils").get_num_cpus()
    process = begin(file, tmp_path, "--retries", "0", "--cpus", str(everything))
    (holder, _), *others = wait_for(lambda: list(at_work(tmp_path).values()), process)
    assert not others
    os.kill(holder, signal.SIGKILL)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (1, ""), output
    assert output.count("its worker died, 1 times; all records so far are kept") == 2
    (place,) = tmp_path.glob("sweep-killed-*")
    assert len(cf.open_sweep(place).failed) == 2
