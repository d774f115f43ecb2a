"""What numbers depend on besides their configuration: versions, machine, cores, flags."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("counterflow", "jax", "jaxlib", "diffrax", "equinox", "numpy")


def environment() -> dict[str, str]:
    """The versions and the kind of machine that results depend on."""
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    return machine | {name: version(name) for name in PACKAGES}


def fingerprint() -> dict[str, str]:
    """What has to be equal for two runs to agree to the last bit."""
    return environment() | {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }


def commit() -> str:
    """The commit of the source code, or nothing where it is not a git repository."""
    folder = Path(__file__).parent
    found = subprocess.run(
        ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() if found.returncode == 0 else ""


def differences(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """What differs between two fingerprints, in words.

    >>> differences({"jax": "0.10.1", "cores": "2"}, {"jax": "0.10.2", "cores": "2"})
    ['jax was 0.10.1, is 0.10.2']
    """
    names = sorted(before.keys() | now.keys())
    return [
        f"{name} was {before.get(name, 'unknown')}, is {now.get(name, 'unknown')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
