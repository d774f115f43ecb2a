"""`kill -9` of `counterflow run` and `counterflow reproduce`, at any moment, again and again."""

import random
import time

from common import COMMAND, REPRODUCE, RUN, Row, committed, is_writing, newest
from server import SECONDS

FAULT = "SIGKILL"
# Every so many processes is started as a user starts it, and killed at any moment of its life.
GENUINE = 8


def killed_run(workshop, trials):
    return _killed(workshop, trials, RUN, "`counterflow run`")


def killed_reproduce(workshop, trials):
    return _killed(workshop, trials, REPRODUCE, "`counterflow reproduce`")


def _killed(workshop, trials, arguments, where):
    """Kills a run until it has ended in spite of that, then the next one."""
    row, chance = Row(FAULT, where), random.Random(1)
    reference, wanted = workshop.reference(arguments)
    life = sum(wanted["seconds"])
    nothing = {"records": {}, "results": {}, "sittings": {}}
    folder, before = workshop.folder(), nothing
    started = 0
    while row.trials < trials:
        place, since = folder / reference.name, time.monotonic()
        started += 1
        if started % GENUINE:
            process = workshop.start(arguments, folder)
            _wait(process, place, chance, life, len(wanted["records"]), wanted["seconds"][0])
        else:
            line = [COMMAND, *arguments, "--folder", str(folder)]
            process = workshop.server.start_anew(line)
            process.sleep(chance.uniform(0, life))
        killed = process.kill()
        found = workshop.look(place)
        row.survived(before, found)
        if killed:
            row.trials += 1
            row.happened["killed"] += 1
            row.committed += committed(found)
            before = found
            print(f"{where}: kill {row.trials} of {trials}, {committed(found)} kept", flush=True)
        else:
            row.ended(process)
            row.compare(found, wanted)
            if before is nothing:  # what is compiled already goes faster than the reference
                life = min(life, time.monotonic() - since)
            folder, before = workshop.folder(), nothing
    workshop.finish(row, folder, before, arguments)
    return row


def _wait(process, place, chance, life, records, seconds):
    """Waits for a moment: half of them while records are written, half at any time."""
    if chance.random() < 0.5:
        record = newest(place) + chance.randint(1, 8)
        process.sleep(SECONDS, lambda: newest(place) >= record)
        process.sleep(chance.uniform(0, 2 * seconds / records))
    else:
        process.sleep(SECONDS, lambda: is_writing(place, process))
        process.sleep(chance.uniform(0, life))
