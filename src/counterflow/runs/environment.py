"""What numbers depend on besides their configuration: versions, machine, cores, flags."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import jax

PACKAGES = ("counterflow", "jax", "jaxlib", "diffrax", "equinox", "numpy")
# What may compute the loss of one's own problem.
_OF_MODELS = ("torch", "flax", "optax")


def environment() -> dict[str, str]:
    """The versions and the kind of machine that results depend on."""
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    return machine | {name: version(name) for name in PACKAGES}


def fingerprint() -> dict[str, str]:
    """What has to be equal for two runs to agree to the last bit."""
    flags = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")
    # Noted where there are several: sums over samples are then made of parts.
    several = {"devices": jax.device_count(), "processes": jax.process_count()}
    return environment() | {
        **{name: str(count) for name, count in several.items() if count > 1},
        "scipy": version("scipy"),
        **_of_models(),
        "processor": _processor(),
        "cores": str(_cores()),
        **{name: os.environ.get(name, "") for name in flags},
    }


def _of_models() -> dict[str, str]:
    """The versions of those libraries for models that are in use, and PyTorch's threads."""
    used = {name: module for name in _OF_MODELS if (module := sys.modules.get(name)) is not None}
    # Of the modules themselves: a user's file may have such a name.
    found = {name: str(getattr(module, "__version__", "")) for name, module in used.items()}
    threads = getattr(used.get("torch"), "get_num_threads", None)
    return found | ({} if threads is None else {"threads of torch": str(threads())})


def commit() -> str:
    """The commit of the source code, or nothing where it is not a git repository."""
    source = Path(__file__)
    asked = (
        ("ls-files", "--error-unmatch", source.name),  # installed, it may lie in another's folder
        ("describe", "--always", "--dirty", "--abbrev=12"),
    )
    found = ""
    for question in asked:
        command = ["git", "-C", str(source.parent), *question]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            return ""  # there is no git
        if answer.returncode != 0:
            return ""
        found = answer.stdout.strip()
    return found


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


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
