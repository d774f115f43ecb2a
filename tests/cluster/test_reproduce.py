"""The paper's experiments by two processes: as by one, also where the samples cannot be shared."""

import subprocess
import time

import pytest

from command_line import AS_USERS, COMMAND, TINY
from counterflow.runs.agreement import apart
from counterflow.runs.database import StoreError
from counterflow.runs.run import open_run

pytestmark = pytest.mark.cluster

# Samples that two processes share, and a prediction that is restarted on the way.
SHARED = [*TINY, "--steps", "6", "60", "8", "--records", "60"]
# Samples that they cannot share.
ODD = [*TINY, "--samples", "41"]


def start(folder, processes, experiment, settings):
    """The command at work."""
    command = [COMMAND, "reproduce", experiment, *settings, "--quiet", "--folder", str(folder)]
    return subprocess.Popen(
        [*command, "--processes", str(processes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=AS_USERS | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
    )


def finished(folder, processes, experiment, settings):
    """The run, when the command has ended well."""
    process = start(folder, processes, experiment, settings)
    said, wrong = process.communicate(timeout=1200)
    assert (process.returncode, wrong) == (0, "")
    assert experiment in said
    (place,) = folder.iterdir()
    assert (place / "report.html").is_file()
    return open_run(place)


def assert_as_one(one, two):
    assert one.trainings.keys() == two.trainings.keys()
    assert two.sittings[0]["fingerprint"]["processes"] == "2"
    differences = apart(one, two)
    assert all(difference < 1e-12 for difference in differences.values()), differences


def test_two_processes_find_what_one_finds_where_the_samples_cannot_be_shared(tmp_path):
    one, two = (finished(tmp_path / str(n), n, "table1", ODD) for n in (1, 2))
    assert_as_one(one, two)


def test_two_processes_go_on_after_a_prediction_was_restarted(tmp_path):
    folder = tmp_path / "2"
    process = start(folder, 2, "figure2", SHARED)
    while restarted(folder) < 5:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.kill()
    process.communicate()
    two = finished(folder, 2, "figure2", SHARED)
    assert len(two.sittings) == 2
    assert_as_one(finished(tmp_path / "1", 1, "figure2", SHARED), two)


def restarted(folder):
    """How many records have a prediction that was restarted."""
    try:
        (place,) = folder.iterdir()
        known = open_run(place).trainings.values()
    except (StoreError, ValueError, OSError):
        return 0
    found = [one("flow 0", "restarted_propagated_prediction") for one in known]
    return max((int((values >= 0).sum()) for values in found), default=0)
