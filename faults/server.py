"""Processes that begin at once: forks of one process that has imported everything.

Importing takes longer than a run of a few numbers. So this file, run as a program, imports the
command line and computes nothing, and starts every task that it is told of in a fork of itself.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

# The longest that any process may take, on a busy machine too.
SECONDS = 1800


# --- the process that imports everything ----------------------------------------------------


def serve():
    """Answers every line with the number of the process it starts, or how one has ended."""
    import altair  # noqa: F401
    import requests  # noqa: F401
    import vl_convert  # noqa: F401

    import counterflow.cli  # noqa: F401

    for line in sys.stdin:
        word, *arguments = json.loads(line)
        print(json.dumps({"start": _start, "ended": _ended}[word](*arguments)), flush=True)


def _start(task, arguments, output):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream in (1, 2):
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        module, name = task.split(":")
        found = getattr(importlib.import_module(module), name)(*arguments)
        code = found if isinstance(found, int) else 0
        if code is not found:
            print(json.dumps(found))
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _ended(child):
    found, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


# --- those who ask it -----------------------------------------------------------------------


class Server:
    """The process that starts tasks.

    Args:
        environment: Its environment, and that of all tasks.
        outputs: A folder for what tasks print.
    """

    def __init__(self, environment, outputs):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([sys.executable, __file__], env=environment, **pipes)
        self._environment, self._outputs, self._started = environment, outputs, 0

    def start(self, function, *arguments):
        """A process that calls a function of a file in this folder, with JSON values."""
        task, output = (
            f"{Path(function.__code__.co_filename).stem}:{function.__name__}",
            self._new(),
        )
        pid = self._ask("start", task, arguments, str(output))
        return Process(pid, output, lambda: self._ask("ended", pid))

    def start_anew(self, command):
        """A process of any command, which imports what it needs itself."""
        output = self._new()
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=self._environment)
        return Process(process.pid, output, process.poll)

    def call(self, function, *arguments):
        """What a function of a file in this folder returns, in a process of its own."""
        process = self.start(function, *arguments)
        if process.wait() != 0:
            raise RuntimeError(f"{function.__name__} failed:\n{process.said}")
        return json.loads(process.said.splitlines()[-1])

    def _new(self):
        self._started += 1
        return self._outputs / f"{self._started}.txt"

    def _ask(self, *words):
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait()


class Process:
    """A process at work, and how it ended."""

    def __init__(self, pid, output, poll):
        self.pid, self._output, self._poll, self._code = pid, output, poll, None

    @property
    def code(self):
        """Its exit code, or nothing while it is at work."""
        if self._code is None:
            self._code = self._poll()
        return self._code

    @property
    def said(self):
        """All that it has printed."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def sleep(self, seconds, until=lambda: False, pause=0.002):
        """Waits so long, unless it ends or something comes true before; returns if it did."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.code is None:
            if until():
                return True
            time.sleep(pause)
        return False

    def wait(self):
        """Its exit code, once it has ended."""
        self.sleep(SECONDS, pause=0.01)
        if self.code is None:
            self.kill()
            raise TimeoutError(f"a process took longer than {SECONDS} s:\n{self.said}")
        return self.code

    def kill(self):
        """Kills it as `kill -9` does, unless it has ended; returns whether that was its end."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        while self.code is None:
            time.sleep(0.002)
        return self.code == -signal.SIGKILL


if __name__ == "__main__":
    serve()
