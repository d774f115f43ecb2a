"""`kill -9` at any moment, then the same command: no record is lost, and every bit is the same.

Importing takes longer than a training of a few numbers. So this file, run as a program, imports
everything and computes nothing, and every process that is to be killed is a fork of that one.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.runs import commits, opening, states, store as store_module
from counterflow.runs.opening import writing
from counterflow.runs.run import open_run
from counterflow.runs.training import Training, train

KILLS, STEPS, SEED = 20, 200, 3
WANTED = Training(0.05, 0.1, 7, STEPS, STEPS, (0,), predict=True, restart=STEPS // 8)

# --- what is killed -------------------------------------------------------------------------


def loss(params):
    return jnp.sum(params["hidden"] ** 4) / 4 + jnp.sum(jnp.cos(params["readout"]))


def training(folder, compiled):
    """A training of five numbers, which says when a record is kept."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_compilation_cache_dir", compiled)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    params = {"hidden": jnp.array([0.9, -0.4]), "readout": jnp.array([0.3, 0.8, -0.6])}
    problem = cf.Problem(loss, weight_decay=0.1)

    def complain(message):
        say("complaint", message)

    with writing(Path(folder), "{}", "a command", complain) as store:
        train(
            WANTED,
            problem,
            params,
            lambda params: {"sum": float(jnp.sum(params["readout"]))},
            store,
            lambda update: say("record", update.done),
            lambda: False,
            complain,
        )


def keeping(folder):
    """The same without computing anything: two records, and the end."""
    with writing(Path(folder), "{}", "a command", print) as store:
        store.begin("short", {}, [0, 1])
        if store.trainings()["short"]["status"] != "running":
            return
        done, _ = store.resume("short", lambda ended, load: None)
        for record in range(done, 2):
            state = {"x": np.full(3, record / 7)}
            store.keep("short", record, {"descent": {"loss": record / 3}}, state, {}, {}, 0.0)
        store.finish("short", "completed")


def keeping_until(folder, count):
    """The same, killed when so many lines of the code that writes have begun or ended."""
    files = {module.__file__ for module in (commits, opening, states, store_module)}
    seen = Counter()

    def every_line(frame, event, argument):
        del argument
        place = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and seen[place] < 2:  # a `with` comes twice; loops not once more
            seen[place] += 1
            if seen.total() > count:
                os.kill(os.getpid(), signal.SIGKILL)
        return every_line

    def every_call(frame, event, argument):
        del event, argument
        return every_line if frame.f_code.co_filename in files else None

    opening.commit = lambda: ""  # starts a process, which takes its time
    sys.settrace(every_call)
    keeping(folder)
    sys.settrace(None)


def say(*words):
    os.write(1, (json.dumps(words) + "\n").encode())


def serve():
    """Runs every task it is told of in a fork of this process."""
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                {"training": training, "keeping_until": keeping_until}[name](*arguments)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        say("started", child)
        say("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


# --- who kills ------------------------------------------------------------------------------


class Server:
    """The process that runs tasks, and what is heard of them."""

    def __init__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        self.process = subprocess.Popen([sys.executable, __file__], env=environment, **pipes)
        self.heard = []

    def start(self, task, *arguments):
        """Starts a task; returns the number of its process."""
        self.process.stdin.write(json.dumps([task.__name__, *arguments]) + "\n")
        self.process.stdin.flush()
        self.heard = []
        while (words := self._hear())[0] != "started":
            self.heard.append(words)  # a fast task speaks first
        return words[1]

    def until(self, wanted):
        """All that was heard of a task, until it has said so, or ended."""
        while not self.heard or self.heard[-1][0] not in (wanted, "ended"):
            self.heard.append(self._hear())
        return self.heard

    def records(self, count):
        """Waits until a task has kept so many records."""
        while sum(word == "record" for word, _ in self.heard) < count:
            self.heard.append(self._hear())
            assert self.heard[-1][0] != "ended", self.heard

    def _hear(self):
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.close()


def kept(folder):
    """How many records are kept: none is missing, and every state that is noted is whole."""
    if not (folder / "run.sqlite").exists():
        return 0
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection:

        def rows(query):
            return connection.execute(query).fetchall()

        assert rows("PRAGMA integrity_check") == [("ok",)]
        if not rows("SELECT * FROM sqlite_master WHERE name = 'results'"):
            return 0  # not even the tables
        found = [record for (record,) in rows("SELECT DISTINCT record FROM series ORDER BY 1")]
        assert found == list(range(len(found)))
        noted = rows("SELECT record, file, sha256 FROM states ORDER BY 1")
        if not rows("SELECT * FROM trainings WHERE status != 'running'"):
            assert [record for record, *_ in noted] == found[-2:]
    for _, file, digest in noted:
        assert sha256((folder / "states" / file).read_bytes()).hexdigest() == digest
    return len(found)


def everything(folder):
    """Settings, costs and series as SQLite has them, with all bits."""
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection:
        known = connection.execute(
            "SELECT name, settings, steps, statistics, status FROM trainings"
        )
        rows = connection.execute("SELECT * FROM series ORDER BY 1, 2, 3, 4").fetchall()
        return known.fetchall(), [(*key, value and value.hex()) for *key, value in rows]


def test_twenty_kills_at_random_moments_lose_nothing(server, tmp_path):
    compiled = str(tmp_path / "compiled")
    server.start(training, str(tmp_path / "whole"), compiled)
    server.records(STEPS // 2)  # by then everything is compiled
    since = time.perf_counter()
    said = [["record", done + 1] for done in range(STEPS + 1)]
    assert server.until("ended") == [*said, ["ended", 0]]
    pace = (time.perf_counter() - since) / (STEPS - STEPS // 2)

    folder, count, done, startup = tmp_path / "killed", 0, [], 1.0
    random = np.random.default_rng(SEED)
    for _ in range(KILLS):
        # Some while it starts, most while it computes and writes, within a record or two.
        wanted = int(random.integers(6))
        moment = random.uniform(0, 1.5 * pace if wanted else startup)
        process = server.start(training, str(folder), compiled)
        since = time.perf_counter()
        server.records(wanted)
        if wanted:
            startup = min(startup, time.perf_counter() - since)
            (known,) = open_run(folder).trainings.values()  # while it is being written
            assert len(known.steps) >= count + wanted, done
        time.sleep(moment)
        os.kill(process, signal.SIGKILL)
        heard = server.until("ended")
        before, count = count, kept(folder)
        done.append((wanted, round(moment, 4), count))
        assert heard[-1] == ["ended", -signal.SIGKILL], done
        # All that was said to be kept is, and at most one more, which was about to be said.
        said = [number for word, number in heard if word == "record"]
        assert said == list(range(before + 1, before + 1 + len(said))), done
        assert count - before - len(said) in (0, 1), done
        if count:
            (known,) = open_run(folder).trainings.values()
            assert len(known.steps) == count
    assert WANTED.restart < count < STEPS, done

    server.start(training, str(folder), compiled)
    said = [["record", number + 1] for number in range(count, STEPS + 1)]
    assert server.until("ended") == [*said, ["ended", 0]], done
    assert everything(folder) == everything(tmp_path / "whole"), done
    assert not list((folder / "states").iterdir())


@pytest.fixture
def in_memory(tmp_path):
    """A folder in memory, where there is one: what is killed there need not wait for a disk."""
    memory = "/dev/shm"
    where = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)


def test_a_kill_at_every_line_that_writes_loses_nothing(server, in_memory, monkeypatch):
    monkeypatch.setattr(opening, "commit", lambda: "")
    keeping(in_memory / "whole")
    expected = everything(in_memory / "whole")
    found = []
    for count in range(1000):
        folder = in_memory / str(count)
        server.start(keeping_until, str(folder), count)
        ((_, code),) = server.until("ended")
        if code == 0:
            break
        assert code == -signal.SIGKILL
        found.append(kept(folder))
        keeping(folder)
        assert everything(folder) == expected, count
        assert not list((folder / "states").iterdir())
        shutil.rmtree(folder)
    # There are many lines to be killed at, and later ones never have fewer records.
    assert len(found) > 100
    assert found == sorted(found)
    assert set(found) == {0, 1, 2}


if __name__ == "__main__":
    serve()
