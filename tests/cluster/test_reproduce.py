"""The paper's experiments by two processes: as by one, also where the samples cannot be shared."""

import subprocess

import pytest

from command_line import AS_USERS, COMMAND, TINY
from counterflow.runs.agreement import apart
from counterflow.runs.run import open_run

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("samples", [40, 41])
def test_two_processes_find_what_one_finds(samples, tmp_path):
    found = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        command = [COMMAND, "reproduce", "table1", *TINY, "--samples", str(samples), "--quiet"]
        more = ["--folder", str(folder), "--processes", str(processes), "--patience", "60"]
        ended = subprocess.run(
            [*command, *more],
            capture_output=True,
            text=True,
            env=AS_USERS | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
            timeout=1200,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "table1" in ended.stdout
        (place,) = folder.iterdir()
        found[processes] = open_run(place)
        assert (place / "report.html").is_file()
    one, two = found.values()
    assert one.trainings.keys() == two.trainings.keys()
    assert two.sittings[0]["fingerprint"]["processes"] == "2"
    differences = apart(one, two)
    assert all(difference < 1e-12 for difference in differences.values()), differences
