"""A clock that jumps by years while a run goes on: nothing but the dates may know of it."""

import ctypes
import datetime
import os
import random
import time

from common import RUN, Row, command, committed

YEAR = 365.25 * 24 * 3600
NEW_TIME = 0x80  # CLONE_NEWTIME
DAY = 24 * 3600


def jumping_clock(workshop, trials):
    row = Row("clock jumps", "`counterflow run`")
    reference, wanted = workshop.reference(RUN)
    for trial in range(trials):
        folder = workshop.folder()
        before = workshop.look(workshop.half(folder))
        row.trials += 1
        row.committed += committed(before)
        process = workshop.server.start(jumping, [*RUN, "--folder", str(folder)], trial)
        row.ended(process)
        row.happened["another monotonic clock"] += "another monotonic clock" in process.said
        found = workshop.look(folder / reference.name)
        row.survived(before, found)  # also the order of sittings, whatever their dates
        row.compare(found, wanted)
        row.wrong += not all(0 <= seconds < DAY for seconds in found["seconds"])
        print(f"{row.fault}: {trial + 1} of {trials}", flush=True)
    return row


def jumping(arguments, seed):
    """Runs a command under a wall clock that jumps at every look, as far as Python's code sees.

    Where that is permitted, its monotonic clock begins elsewhere too, as after a new start of the
    machine, for the whole process.
    """
    from counterflow.runs import opening

    chance, now = random.Random(seed), time.time
    if _other_monotonic(chance):
        print("another monotonic clock", flush=True)
        # A process is in the time namespace that its parent made.
        if child := os.fork():
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def jumped():
        return now() + chance.uniform(-30, 30) * YEAR

    class Jumping(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(jumped(), tz)

    time.time, time.time_ns = jumped, lambda: int(jumped() * 1e9)
    opening.datetime = datetime.datetime = Jumping
    return command(arguments)


def _other_monotonic(chance):
    """Whether processes started from now on have a monotonic clock that is years ahead."""
    if ctypes.CDLL(None).unshare(NEW_TIME) != 0:
        return False
    with open("/proc/self/timens_offsets", "w", encoding="ascii") as file:
        file.write(f"monotonic {int(chance.uniform(1, 20) * YEAR)} 0\n")
    return True
