"""The parent of processes that compute together: it starts them, and speaks when one is lost."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .processes import ADDRESS, DESCRIPTORS, LOST, NUMBER, SAID, Processes, has_parent, join
from .working import CommandError

#: Seconds that the others have to end by themselves once one has failed.
GRACE = 10.0
# How often they are looked at.
_INTERVAL = 0.1
# Exit codes of one that lost another: it says so by its exit code, or aborts below Python.
_FOLLOWED = (LOST, -signal.SIGABRT)

Child = subprocess.Popen[bytes]

#: Seconds after which a process that does not answer is given up.
PATIENCE = 100


def together(arguments: Sequence[str], processes: Processes, patience: int) -> int | None:
    """Sees to it that a command runs in as many processes as were asked for.

    Returns:
        The exit code, once they have ended; nothing in each of them, and where there is only one.
    """
    for name, count in (("processes", processes), ("patience", patience)):
        if isinstance(count, int) and count < 1:
            raise CommandError(f"--{name} must be at least 1, got {count}")
    if has_parent():
        join(processes, patience)
        return None
    return None if processes == 1 else launch(arguments, processes)


def launch(arguments: Sequence[str], processes: Processes) -> int:
    """Runs a command in several processes; returns the exit code.

    When one of them dies, the others are ended within ten seconds; when one hangs, within ten
    seconds more than their patience.

    Args:
        arguments: The command, as it was typed.
        processes: How many on this machine; `cluster` for one of those that a cluster started.
    """
    count = 1 if processes == "cluster" else processes
    logs = Path(tempfile.mkdtemp(prefix="counterflow-"))
    told = {} if processes == "cluster" else {ADDRESS: _free_address()}
    alive, held = os.pipe()  # closes in the children when this process is gone
    children = [
        _start(arguments, told | {NUMBER: str(number)}, alive, logs / f"{number + 1}.log")
        for number in range(count)
    ]
    with _passing_signals_to(children[0]):
        hung = _wait(children)
    os.close(alive)
    os.close(held)
    code = children[0].returncode
    if children[0] not in hung and (code == 0 or code >= SAID):
        shutil.rmtree(logs, ignore_errors=True)
        return max(code - SAID, 0)
    lost = _lost(children, hung)
    how = "did not answer" if children[lost] in hung else _end(children[lost].returncode)
    if processes != "cluster":
        what = f"process {lost + 1} of {count} {how}, and the others cannot go on without it"
    elif children[lost].returncode in _FOLLOWED:
        what = f"the process {how}, as it does when another one has died or hangs"
    else:
        what = f"the process {how}"
    print(
        f"counterflow: {what}; every record so far is kept, and the same command goes on from "
        f"there\nits last words are in {logs / f'{lost + 1}.log'}",
        file=sys.stderr,
    )
    return 1


def _start(arguments: Sequence[str], told: dict[str, str], alive: int, log: Path) -> Child:
    terminal = [os.dup(stream.fileno()) for stream in (sys.stdout, sys.stderr)]
    descriptors = (alive, *terminal)
    try:
        with log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "counterflow", *arguments],
                env=os.environ | told | {DESCRIPTORS: " ".join(map(str, descriptors))},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=descriptors,
                start_new_session=True,  # Ctrl-C comes to the parent, which passes it on
            )
    finally:
        for descriptor in terminal:
            os.close(descriptor)


def _wait(children: Sequence[Child]) -> list[Child]:
    """Waits for all to end; returns those that had to be ended, once another had failed."""
    deadline = None
    while any(child.poll() is None for child in children):
        if deadline is None and any(child.poll() not in (None, 0) for child in children):
            deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            left = [child for child in children if child.poll() is None]
            for child in left:
                child.kill()
                child.wait()
            return left
        time.sleep(_INTERVAL)
    return []


def _lost(children: Sequence[Child], hung: Sequence[Child]) -> int:
    """Which of them was lost first, as far as can be told from how they ended."""

    def innocence(number: int) -> int:
        child = children[number]
        if child in hung:  # or did it wait for one that failed?
            return 2
        if child.returncode in _FOLLOWED:
            return 3
        return 0 if child.returncode < 0 else 1 if child.returncode else 4

    return min(range(len(children)), key=innocence)


def _end(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def _passing_signals_to(child: Child) -> Iterator[None]:
    """Within it, Ctrl-C and a request to terminate are for a child."""

    def handle(number: int, frame: Any) -> None:
        del frame
        child.send_signal(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
