"""The parent of processes that compute together: it starts them, and speaks when one is lost."""

import math
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
from typing import Any, NamedTuple

from .processes import ADDRESS, DESCRIPTORS, LOST, NUMBER, SAID, Processes, has_parent, join
from .working import CommandError

#: Seconds that the others have to end by themselves once one has failed: with what it takes to
#: notice and to end them, less than the ten that docs/clusters.md promises.
GRACE = 7.0
# How often they are looked at.
_INTERVAL = 0.1
# Exit codes of one that lost another: it says so by its exit code, or aborts below Python.
_FOLLOWED = (LOST, -signal.SIGABRT)
# How often an address is looked for that nobody takes before the first process does, and what that
# one's log says when somebody did.
_ADDRESSES = 3
_TAKEN = b"Failed to add port to server"

Child = subprocess.Popen[bytes]

#: Seconds after which a process that does not answer is given up.
PATIENCE = 100
#: As many as are started on one machine, and as long as they wait for each other (a week).
MOST, LONGEST = 256, 7 * 24 * 3600


def together(arguments: Sequence[str], processes: Processes, patience: int) -> int | None:
    """Sees to it that a command runs in as many processes as were asked for.

    Returns:
        The exit code, once they have ended; nothing in each of them, and where there is only one.
    """
    for name, count, most in (("processes", processes, MOST), ("patience", patience, LONGEST)):
        if isinstance(count, int) and not 1 <= count <= most:
            bound = "least 1" if count < 1 else f"most {most}"
            raise CommandError(f"--{name} must be at {bound}, got {count}")
    if has_parent():
        join(processes, patience)
        return None
    return None if processes == 1 else launch(arguments, processes)


class Ending(NamedTuple):
    """How children ended, by their numbers.

    Attributes:
        order: Those that ended by themselves, the first one first.
        hung: Those that had to be ended once another had failed.
        stopped: Those of them that something had stopped, as far as the system can tell.
    """

    order: list[int]
    hung: list[int]
    stopped: list[int]


def launch(arguments: Sequence[str], processes: Processes) -> int:
    """Runs a command in several processes; returns the exit code.

    When one of them dies, the others are ended within ten seconds; when one hangs, within ten
    seconds more than their patience.

    Args:
        arguments: The command, as it was typed.
        processes: How many on this machine; `cluster` for one of those that a cluster started.
    """
    logs = Path(tempfile.mkdtemp(prefix="counterflow-"))
    try:
        children, ending = _carry_out(arguments, processes, logs)
        for _ in range(_ADDRESSES - 1):
            if children[0].returncode and _TAKEN in (logs / "1.log").read_bytes():
                children, ending = _carry_out(arguments, processes, logs)
    except BaseException:
        shutil.rmtree(logs, ignore_errors=True)
        raise
    code = children[0].returncode
    if 0 not in ending.hung and (code == 0 or code >= SAID):
        shutil.rmtree(logs, ignore_errors=True)
        return max(code - SAID, 0)
    codes = [child.returncode for child in children]
    lost = _lost(codes, ending)
    code = codes[lost[0]]
    how = "did not answer" if lost[0] in ending.hung else _end(code)
    if processes != "cluster":
        if lost[0] not in ending.hung and code in _FOLLOWED:
            how = "failed, or gave up waiting for another one"
        which = f"process {lost[0] + 1}"
        if len(lost) > 1:
            which = f"one of processes {', '.join(str(number + 1) for number in lost)}"
        what = f"{which} of {len(children)} {how}, and the others cannot go on without it"
    elif code in _FOLLOWED:
        what = f"the process {how}, as it does when another one has died or hangs"
    else:
        what = f"the process {how}"
    print(
        f"counterflow: {what}; every record so far is kept, and the same command goes on from "
        f"there\nits last words are in {logs / f'{lost[0] + 1}.log'}",
        file=sys.stderr,
    )
    return 1


def _carry_out(
    arguments: Sequence[str], processes: Processes, logs: Path
) -> tuple[list[Child], Ending]:
    """The processes of a command, when all have ended; none is left behind if this fails."""
    count = 1 if processes == "cluster" else processes
    told = {} if processes == "cluster" else {ADDRESS: _free_address()}
    alive, held = os.pipe()  # closes in the children when this process is gone
    children: list[Child] = []
    try:
        for number in range(count):
            log = logs / f"{number + 1}.log"
            children.append(_start(arguments, told | {NUMBER: str(number)}, alive, log))
        with _passing_signals_to(children[0]):
            return children, _wait(children)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
        os.close(alive)
        os.close(held)


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


def _wait(children: Sequence[Child]) -> Ending:
    """Waits for all to end; once one has failed, those that do not end with it are ended."""
    order: list[int] = []
    deadline = math.inf
    while True:
        numbers = [number for number in range(len(children)) if number not in order]
        order += [number for number in numbers if children[number].poll() is not None]
        hung = [number for number in numbers if number not in order]
        if not hung:
            return Ending(order, [], [])
        if deadline == math.inf and any(children[number].returncode for number in order):
            deadline = time.monotonic() + GRACE
        if deadline < math.inf:
            stopped = [number for number in hung if _is_stopped(children[number].pid)]
            if stopped == hung or time.monotonic() > deadline:
                for number in hung:
                    children[number].kill()
                    children[number].wait()
                return Ending(order, hung, stopped)
        time.sleep(_INTERVAL)


def _is_stopped(pid: int) -> bool:
    """Whether something has stopped a process, where the system tells."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


def _lost(codes: Sequence[int], ending: Ending) -> list[int]:
    """Which of them was lost first, as far as can be told from how they ended; or one of which."""
    for failed in (
        lambda code: code < 0 and code not in _FOLLOWED,
        lambda code: code > 0 and code not in _FOLLOWED,
    ):
        if found := [number for number in ending.order if failed(codes[number])]:
            return found[:1]
    # Those that still ran while others had ended: did they hang, or wait for one that did?
    if left := ending.stopped or ending.hung:
        return left
    return [number for number in ending.order if codes[number]][:1]


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
