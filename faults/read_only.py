"""A folder that cannot be written to: commands say so, what is in it can be read."""

import os
from contextlib import contextmanager, nullcontext

from common import RUN, Row, command, committed, contents
from mounts import disk, may_mount, remount

SAID = "counterflow: .*(Read-only file system|readonly database|Permission denied)"
NOBODY = 65534


def read_only_folder(workshop, trials):
    mounting = may_mount(workshop.folder())
    where = "mounted read-only" if mounting else "without the right to write"
    row = Row("read-only folder", f"`counterflow run` and `report`, {where}")
    for trial in range(trials):
        folder = workshop.folder()
        with disk(folder) if mounting else nullcontext():
            place = workshop.half(folder)
            before = workshop.look(place)
            row.trials += 1
            row.committed += committed(before)
            with _mounted(folder) if mounting else _forbidden(folder, workshop.top):
                for arguments in (
                    [*RUN, "--folder", str(folder)],
                    [*RUN, "--folder", str(folder / "new")],
                    ["report", str(place)],
                ):
                    row.ended(workshop.server.start(as_nobody, arguments, not mounting), 1, SAID)
                found = workshop.server.call(contents, str(place))
            row.survived(before, found)
            workshop.finish(row, folder, before)
        print(f"{row.fault}: {trial + 1} of {trials}", flush=True)
    return row


@contextmanager
def _mounted(folder):
    remount(folder, "ro")
    try:
        yield
    finally:
        remount(folder, "rw")


@contextmanager
def _forbidden(folder, top):
    top.chmod(0o711)
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        yield
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)


def as_nobody(arguments, needed):
    """Runs a command as a user whom permissions bind."""
    if needed and os.geteuid() == 0:
        os.seteuid(NOBODY)
    return command(arguments)
