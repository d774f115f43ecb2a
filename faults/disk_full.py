"""A disk that becomes full while a run goes on: it says so, and goes on when there is room."""

import resource
from contextlib import nullcontext

from common import RUN, Row, command, committed
from mounts import disk, may_mount, remount, used

# The room that is left, in kilobytes: for the lock, a state, some records, all but the report.
ROOM = (0, 4, 12, 40, 100, 250, 700)
SAID = "counterflow: .*(No space left|disk is full|File too large|disk I/O error)"


def full_disk(workshop, trials):
    mounting = may_mount(workshop.folder())
    row = Row("disk full", "`counterflow run`, " + ("tmpfs" if mounting else "file-size limit"))
    for trial in range(trials):
        folder, room = workshop.folder(), ROOM[trial % len(ROOM)]
        with disk(folder) if mounting else nullcontext():
            place = workshop.half(folder)
            before = workshop.look(place)
            row.trials += 1
            row.committed += committed(before)
            if mounting:
                remount(folder, f"size={used(folder) + room}k")
                row.ended(workshop.start(RUN, folder), 1, SAID)
                remount(folder, "size=64m")
            else:
                arguments = [*RUN, "--folder", str(folder)]
                longest = max(path.stat().st_size for path in place.iterdir())
                limit = room * 1024 if trial % 2 else longest + room * 1024
                row.ended(workshop.server.start(limited, arguments, limit), 1, SAID)
            found = workshop.look(place)
            row.survived(before, found)
            workshop.finish(row, folder, found)
        print(f"{row.where}: {trial + 1} of {trials}, {room} kB left", flush=True)
    return row


def limited(arguments, limit):
    """Runs a command that can make no file longer."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    return command(arguments)
