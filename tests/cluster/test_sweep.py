"""Sweeps on Ray: workers are killed, the command is stopped, and nothing is lost or done twice.

`make test-cluster` runs these; they need Ray.
"""

import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

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
    for line in process.stdout:
        if "--block" in line:  # it is up, and stays
            break
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
    """The same sweep, gone on with while two of its workers are killed; and what it said."""
    folder, _, _ = stopped
    process = begin(file, folder)
    chance, records = random.Random(0), {}
    for _ in range(2):
        least = chance.randrange(2, RECORDS // 2)

        def chosen(least=least):
            return [
                (name, holder, count)
                for name, (holder, count) in at_work(folder).items()
                if name not in records and count >= least
            ]

        name, holder, count = chance.choice(wait_for(chosen, process))
        os.kill(holder, signal.SIGKILL)
        records[name] = count

    def never_fewer():
        # While the others go on, those that were killed keep what they had.
        for name, count in records.items():
            (known,) = cf.open_run(folder / name).trainings.values()
            assert len(known.steps) >= count
        return process.poll() is not None

    wait_until(never_fewer)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (1, ""), output
    (place,) = folder.glob("sweep-killed-*")
    return cf.open_sweep(place), output, records


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
        # Equal to the last bit, at the same count of gradients: no record was computed twice.
        assert_same_series(run, undisturbed.runs[name])
        (known,) = run.trainings.values()
        assert len(known.steps) == known.total == RECORDS + 1
        assert len(run.sittings) >= (2 if run.folder.name in records else 1)


def test_a_failing_configuration_is_listed_and_stops_nobody(killed):
    sweep, output, _ = killed
    assert sweep.failed == FAILED
    assert "failed: η = -1: `learning_rates` must be positive, got -1" in output


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
    process = begin(file, tmp_path, "--retries", "0", "--cpus", "2")
    (holder, _), *others = wait_for(lambda: list(at_work(tmp_path).values()), process)
    assert not others  # a run takes both processors
    os.kill(holder, signal.SIGKILL)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (1, ""), output
    assert output.count("its worker died, 1 times; all records so far are kept") == 2
    (place,) = tmp_path.glob("sweep-killed-*")
    assert len(cf.open_sweep(place).failed) == 2
