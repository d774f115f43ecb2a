"""`kill -9` of the workers of `counterflow sweep`, and of the command itself, at any moment."""

import os
import random
import signal
from importlib.util import find_spec
from pathlib import Path

from common import COMMAND, MODEL, RUN, Row, committed
from server import SECONDS

RATES = ("0.05", "0.04", "0.03", "0.02")
SWEEP = f"""
model = "{MODEL}"
[settings]
steps = 60
records = 60
orders = [0]
[grid]
learning_rate = [{", ".join(RATES)}]
"""
# Every so many kills hit the command, and with it the Ray that it started.
COMMANDS = 5
NOTHING = {"records": {}, "results": {}, "sittings": {}}


def killed_sweep(workshop, trials):
    row, chance = Row("SIGKILL", "`counterflow sweep`, its workers and itself"), random.Random(6)
    if find_spec("ray") is None:
        row.happened["left out: needs Ray (make test-cluster installs it)"] += 1
        return row
    wanted = dict(workshop.reference(_alone(rate)) for rate in RATES)
    wanted = {place.name: found for place, found in wanted.items()}
    file = workshop.folder() / "sweep.toml"
    file.write_text(SWEEP, encoding="utf-8")
    while row.trials < trials:
        folder = workshop.folder()
        line = [COMMAND, "sweep", str(file), "--folder", str(folder), "--retries", str(trials)]
        before, process = dict.fromkeys(wanted, NOTHING), workshop.server.start_anew(line)
        while process.code is None:
            moved = row.trials < trials and process.sleep(SECONDS, lambda: _workers(folder))  # noqa: B023
            process.sleep(chance.uniform(0, 2) if moved else 0.1)
            if not moved:
                continue
            if row.trials % COMMANDS == COMMANDS - 1:
                killed = process.kill()
                process = workshop.server.start_anew(line)
            else:
                killed = _kill(chance, _workers(folder))
            if killed:
                before = _count(row, workshop, folder, before)
                row.trials += 1
                row.happened["killed"] += 1
                row.committed += sum(map(committed, before.values()))
                print(f"{row.where}: kill {row.trials} of {trials}", flush=True)
        row.ended(process)
        for name, found in _count(row, workshop, folder, before).items():
            row.compare(found, wanted[name])
    return row


def _alone(rate):
    """The command of one of its runs."""
    arguments = list(RUN)
    arguments[arguments.index("--learning-rate") + 1] = rate
    return arguments


def _count(row, workshop, folder, before):
    """Counts what was lost since the last look; returns what is there now."""
    found = {name: workshop.look(folder / name) for name in before}
    for name, there in found.items():
        row.survived(before[name], there)
    return found


def _workers(folder):
    """The workers that hold the lock of a run."""
    found = []
    for lock in folder.glob("*/lock"):
        try:
            holder = int(lock.read_text(encoding="utf-8").removeprefix("process "))
            if Path(f"/proc/{holder}/cmdline").read_bytes().startswith(b"ray::"):
                found.append(holder)
        except (OSError, ValueError):  # it has ended, or is just being made
            continue
    return found


def _kill(chance, workers):
    """Kills one of them; returns whether there was one."""
    try:
        os.kill(chance.choice(workers), signal.SIGKILL)
    except (IndexError, ProcessLookupError):
        return False
    return True
