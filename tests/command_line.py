"""The command line for tests: in this process, where compilations are shared, or in its own."""

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np

from counterflow.cli import main
from counterflow.runs.run import open_run

COMMAND = str(Path(sys.executable).with_name("counterflow"))

# A process of its own compiles as users do, not as the tests do to save time (conftest.py).
AS_USERS = {
    k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")
}

# Every experiment in seconds.
TINY = (
    "--samples 40 --hidden-widths 4 3 --steps 6 8 8 --restart 3 --records 3 --orders 0 1 "
    "--large-steps 4 --long-steps 30 --long-samples 40 --seeds 8"
).split()

# A network of one's own, in milliseconds.
MODEL = """
import jax.numpy as jnp

import counterflow as cf


def loss(params, data):
    inputs, targets = data
    return jnp.mean((inputs @ params["first"] @ params["second"] - targets) ** 2)


def problem():
    inputs = jnp.sin(jnp.arange(12.0)).reshape(4, 3)
    params = {
        "first": jnp.cos(jnp.arange(6.0)).reshape(3, 2),
        "second": jnp.sin(jnp.arange(2.0) + 1).reshape(2, 1),
    }
    return cf.Problem(loss, (inputs, jnp.ones((4, 1))), weight_decay=0.01), params


pair = problem()
"""


def reproduce(folder, *arguments):
    """The run that a command in this process made or went on with, among those in a folder."""
    assert main(["reproduce", *arguments, "--folder", str(folder)]) == 0
    reports = folder.glob("*/report.html")
    return open_run(max(reports, key=lambda path: path.stat().st_mtime_ns).parent)


def assert_same_series(run, other):
    """Asserts that the trainings of a run are in another one, equal to the last bit."""
    assert run.trainings.keys() <= other.trainings.keys()
    for name, known in run.trainings.items():
        expected = other.trainings[name]
        assert (known.status, known.steps.tolist()) == (expected.status, expected.steps.tolist())
        assert known.series.keys() == expected.series.keys()
        for key, values in known.series.items():
            np.testing.assert_array_equal(values, expected.series[key], f"{name}: {key}")
        assert known.statistics == expected.statistics


def counterflow(*arguments, **options):
    """A command in a process of its own, when it has ended."""
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, env=AS_USERS, **options
    )


def in_terminal(*arguments):
    """The exit code of a command in a terminal of its own, and all that it wrote there."""
    terminal, inside = pty.openpty()
    environment = AS_USERS | {"TERM": "xterm-256color", "COLUMNS": "110", "LINES": "40"}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inside)
    process = subprocess.Popen([COMMAND, *arguments], env=environment, **streams)
    os.close(inside)
    seen = b""
    with open(terminal, "rb", buffering=0) as output, contextlib.suppress(OSError):
        while chunk := output.read(65536):  # an error says that the other end was closed
            seen += chunk
    return process.wait(timeout=60), seen.decode()


def start(*arguments, **options):
    """A command in a process of its own, at work."""
    return subprocess.Popen([COMMAND, *arguments], text=True, env=AS_USERS, **options)
