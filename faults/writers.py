"""Several processes on one run: one writes, the others leave with a message."""

import random
import time

from common import RUN, UNCLEAR, Row, committed, is_writing
from server import SECONDS

TOGETHER = 3
SAID = "counterflow: .* is being written by process [0-9]+"


def two_writers(workshop, trials):
    row = Row("several writers", f"`counterflow run`, {TOGETHER} at once")
    reference, wanted = workshop.reference(RUN)
    for trial in range(trials):
        folder = workshop.folder()
        before = workshop.look(workshop.half(folder))
        row.trials += 1
        row.committed += committed(before)
        processes = [workshop.start(RUN, folder) for _ in range(TOGETHER)]
        for process in processes:
            row.ended(process, 0 if process.wait() == 0 else 1, SAID)
        found = workshop.look(folder / reference.name)
        row.survived(before, found)
        row.compare(found, wanted)
        # Who writes notes a sitting.
        writers = len(found["sittings"]) - len(before["sittings"])
        row.happened[UNCLEAR] += writers != sum(one.code == 0 for one in processes)
        print(f"{row.fault}: {trial + 1} of {trials}, {writers} wrote", flush=True)
    return row


def killed_writer(workshop, trials):
    row, chance = Row("SIGKILL", "the writer, while a second one starts"), random.Random(4)
    while row.trials < trials:
        folder = workshop.folder()
        place = workshop.half(folder)
        before, since = workshop.look(place), time.monotonic()
        first = workshop.start(RUN, folder)
        first.sleep(SECONDS, lambda: is_writing(place, first))  # noqa: B023
        start = time.monotonic() - since
        second = workshop.start(RUN, folder)
        second.sleep(chance.uniform(0, 2 * start))
        row.trials += 1
        row.happened["killed"] += first.kill()
        row.committed += committed(before)
        row.ended(second, 0 if second.wait() == 0 else 1, SAID)
        found = workshop.look(place)
        row.survived(before, found)
        workshop.finish(row, folder, found)
        print(f"{row.where}: {row.trials} of {trials}", flush=True)
    return row
