"""One of several processes that compute together: how it joins the others, and which one speaks."""

import os
import sys
import threading
from typing import Literal

import jax

from ..runs.processes import is_first, same_everywhere
from .working import CommandError

#: How many processes compute together: so many on this machine, or those of a cluster.
Processes = int | Literal["cluster"]

#: The exit code of a process that lost the others, and leaves it to its parent to say so.
LOST = 3
#: Added to the exit code of one that failed and has said why, so that its parent need not.
SAID = 100
#: What the parent tells a process: its number and where the first one is to be found (not in a
#: cluster, which knows); and descriptors: of a pipe that closes when the parent is gone, and of
#: what the parent prints to.
NUMBER, ADDRESS = "COUNTERFLOW_PROCESS", "COUNTERFLOW_ADDRESS"
DESCRIPTORS = "COUNTERFLOW_DESCRIPTORS"


def has_parent() -> bool:
    """Whether this process was started to compute together with others."""
    return DESCRIPTORS in os.environ


def join(processes: Processes, patience: int) -> None:
    """Joins the other processes: JAX then sees the devices of all, and only the first one prints.

    Libraries below Python print to the log that standard output and error are, in all of them.

    Args:
        processes: How many there are.
        patience: Seconds after which one that does not answer is given up.
    """
    pipe, *terminal = map(int, os.environ[DESCRIPTORS].split())
    threading.Thread(target=_end_with_the_parent, args=(pipe,), daemon=True).start()
    log = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1) for number in terminal)
    if processes == "cluster":
        try:
            jax.distributed.initialize(heartbeat_timeout_seconds=patience)
        except ValueError as error:
            raise CommandError(
                "--processes cluster is for processes that Slurm, Open MPI or Kubernetes started, "
                f"and JAX found none of them: {error}"
            ) from error
    else:
        address = os.environ[ADDRESS]
        jax.distributed.initialize(
            address,
            processes,
            int(os.environ[NUMBER]),
            heartbeat_timeout_seconds=patience,
            coordinator_bind_address=address,
        )
    # All are here now. For the first collective they must be, within half a minute, which on CPUs
    # cannot be changed; for later ones, in which one waits for another that loads or compiles, half
    # an hour (XLA's `--xla_cpu_collective_timeout_seconds`).
    same_everywhere("")
    if not is_first():
        sys.stdout, sys.stderr = log


def _end_with_the_parent(pipe: int) -> None:
    """Ends this process when its parent is gone, whatever became of it."""
    os.read(pipe, 1)
    os._exit(LOST)
