"""Ray: tasks on its workers, those whose worker dies begun again."""

import importlib
import logging
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Set before Ray is imported: it tells nobody, prints nothing, and if it is this machine's own, it
# is on no network.
_SILENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# Nor are its workers to be the last that a busy machine gives time to.
_OWN = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}

# Ray gives a machine half a minute to start it; a busy one may take longer.
_STARTS = 3
# What tasks return is a line of text: no store of objects is needed but the smallest.
_OBJECT_STORE = 100 * 2**20
# Seconds within which the machine of a cluster must answer.
_PATIENCE = 10.0
# Seconds between two looks at what is going on.
_PAUSE = 0.5
# Runs that a worker carries out before another one takes its place.
_CALLS = 20


class ClusterError(Exception):
    """A cluster that cannot be had; the message says what to do."""


@dataclass(frozen=True)
class Ended:
    """A task that ended.

    Attributes:
        name: Its name.
        reason: Why it failed, or nothing if it did not.
    """

    name: str
    reason: str


@dataclass(frozen=True)
class Retried:
    """A task whose worker died, and which was begun again.

    Attributes:
        name: Its name.
        reason: What became of the worker.
        again: For which time it was begun.
    """

    name: str
    reason: str
    again: int


class Cluster:
    """A Ray cluster; `connected` gives one."""

    def __init__(self, ray: Any):
        self._ray = ray
        self._tasks: dict[Any, str] = {}

    def carry_out(
        self,
        work: Callable[[Any], str],
        tasks: Mapping[str, Any],
        cpus: float,
        retries: int,
    ) -> Iterator[Ended | Retried | None]:
        """Carries tasks out; gives what ends and what is begun again, and now and then nothing.

        Args:
            work: Carries one out, in a worker; returns why it failed, or nothing. It must be a
                function of a module.
            tasks: By name, what it is called with.
            cpus: How many processors each takes.
            retries: How often one is begun again whose worker died.
        """
        ray = self._ray
        # Begun again here, not by Ray, which would do so in silence and without end where memory
        # runs out.
        # A worker keeps every program that it compiled, and the system runs out of room for them.
        remote = ray.remote(num_cpus=cpus, max_retries=0, max_calls=_CALLS)(work)
        self._tasks = {remote.remote(task): name for name, task in tasks.items()}
        tried = dict.fromkeys(tasks, 1)
        while self._tasks:
            done, _ = ray.wait(list(self._tasks), timeout=_PAUSE)
            if not done:
                yield None
            for ref in done:
                name = self._tasks.pop(ref)
                reason, died = self._outcome(ref)
                if died and tried[name] <= retries:
                    tried[name] += 1
                    self._tasks[remote.remote(tasks[name])] = name
                    yield Retried(name, reason, tried[name])
                elif died:
                    yield Ended(name, f"{reason}, {tried[name]} times; all records so far are kept")
                else:
                    yield Ended(name, reason)

    def cancel(self) -> None:
        """Stops what is still at work, at once; every record so far is kept."""
        for ref in self._tasks:
            self._ray.cancel(ref, force=True)
        self._tasks = {}

    def _outcome(self, ref: Any) -> tuple[str, bool]:
        """Why a task failed, or nothing; and whether it was its worker that died."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(ref), False
        except errors.RayTaskError as error:  # before the work began, as where it is not installed
            return f"the worker could not begin: {error.cause or error}", False
        except errors.OutOfMemoryError:
            return "its worker was ended because memory ran out", True
        except errors.WorkerCrashedError:
            return "its worker died", True
        except errors.RayError as error:
            return f"its worker was lost ({type(error).__name__})", True


@contextmanager
def connected(address: str | None, cpus: float) -> Iterator[Cluster]:
    """A cluster: that at an address, or one of this machine's own for as long as this lasts.

    Args:
        address: As Ray has it, such as `10.0.0.1:6379` or `ray://10.0.0.1:10001`.
        cpus: How many processors a task takes.

    Raises:
        ClusterError: If Ray is not installed, or there is no cluster.
    """
    ray = _imported(local=address is None)
    if address is None:
        _start(ray)
        most = max(node["Resources"].get("CPU", 0) for node in ray.nodes())
        if most < cpus:
            ray.shutdown()
            raise ClusterError(f"a run cannot take {cpus:g} processors, this machine has {most:g}")
    else:
        _join(ray, address)
    cluster = Cluster(ray)
    try:
        yield cluster
    finally:
        try:
            if address is not None:
                cluster.cancel()
        finally:
            ray.shutdown()


def _imported(local: bool) -> Any:
    for name, value in (_SILENT | (_OWN if local else {})).items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.exceptions")
    except ImportError as error:
        raise ClusterError(
            "a sweep needs Ray, which is not installed: pip install '.[cluster]' in a clone of "
            "counterflow"
        ) from error
    return ray


_QUIETLY: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}


def _start(ray: Any) -> None:
    for left in reversed(range(_STARTS)):
        try:
            with warnings.catch_warnings():
                # Of processes started beside JAX: those of Ray become other programs at once.
                warnings.simplefilter("ignore")
                ray.init(
                    address="local",
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE,
                    **_QUIETLY,
                )
            return
        except Exception as error:  # Ray raises nothing more particular
            ray.shutdown()
            if not left:
                raise ClusterError(
                    f"Ray could not be started on this machine: {_line(error)}; is it busy, or "
                    "its memory full?"
                ) from error
            time.sleep(2)


def _join(ray: Any, address: str) -> None:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    try:
        if colon and port.isdecimal():
            # Where nobody listens, Ray would try for minutes, and say so all the while.
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
        ray.init(address=address, **_QUIETLY)
    except Exception as error:  # of many kinds
        raise ClusterError(
            f"there is no Ray cluster to be had at {address!r}: {_line(error)}; is it started (ray "
            f"start --head), reachable from here, and of Ray {ray.__version__}? One that asks for "
            "a token is told it by RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        ) from error


def _line(error: BaseException) -> str:
    """What an error says, in a line."""
    said = " ".join(str(error).split())
    return said[:300] or type(error).__name__
