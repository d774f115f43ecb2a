"""Files cut off and bits turned over: every damage is told, or changes nothing that is read.

A state, the database, its log and the note of its commits are damaged at random places, hundreds of
times. Each time the run is read as `report` and `export` read it, and opened as the command that
goes on opens it, up to the state that it would go on from.
"""

import os
import random
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

from common import CLEAR, RUN, UNCLEAR, Row, command, committed, contents, digest

SAME, BEFORE = "read the same", "the state before was taken, with a note"
SILENT = "used without a word"
PAGE = 4096


def damaged_states(workshop, trials):
    row = _damaged(workshop, trials, "states/*.safetensors", "a state")
    reference, _ = workshop.reference(RUN)
    # And to the end: with the last state damaged, and with both.
    for count in (1, 2):
        folder = workshop.folder()
        place = workshop.half(folder)
        states = sorted(filter(_used, (place / "states").iterdir()), key=_record)
        before = workshop.look(place)
        for path in states[-count:]:
            path.write_bytes(path.read_bytes()[:-1])
        if count == 1:
            workshop.finish(row, folder, before)
        else:
            row.ended(workshop.start(RUN, folder), 1, "counterflow: cannot go on .*is damaged")
            row.survived(before, workshop.look(folder / reference.name))
    return row


def damaged_database(workshop, trials):
    return _damaged(workshop, trials, "run.sqlite", "`run.sqlite`")


def damaged_log(workshop, trials):
    return _damaged(workshop, trials, "run.sqlite-wal", "`run.sqlite-wal`, of records", add_records)


def damaged_log_of_results(workshop, trials):
    return _damaged(workshop, trials, "run.sqlite-wal", "`run.sqlite-wal`, of results", add_results)


def damaged_note(workshop, trials):
    return _damaged(workshop, trials, "commits", "`commits`")


def _damaged(workshop, trials, pattern, where, prepare=None):
    row = Row("cut off, or a bit turned over", where, trials)
    place = workshop.half(workshop.folder())
    if prepare is not None and workshop.server.start(prepare, str(place)).wait() != -signal.SIGKILL:
        raise RuntimeError(f"{prepare.__name__} was not killed")
    row.committed = committed(workshop.look(place))
    found = workshop.server.call(damage, str(place), pattern, trials)
    row.undetected = found["happened"].pop(SILENT, 0)
    row.happened.update(found["happened"])
    row.lost, row.series, row.wrong = (found[name] for name in ("lost", "series", "wrong"))
    return row


# --- in a process of its own ----------------------------------------------------------------


def add_records(place):
    """Goes on with a run, and is killed when some more of its records are known to be kept.

    Of one that was being kept, nobody can tell later whether its log has lost it.
    """
    from counterflow.runs.store import Store

    keep, kept = Store.keep, []

    def keep_or_end(self, *record):
        keep(self, *record)
        kept.append(record)
        if len(kept) == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    Store.keep = keep_or_end
    command([*RUN, "--folder", str(Path(place).parent)])


def add_results(place):
    """Keeps results in a run, the only ones in its log, and is killed."""
    from counterflow.runs.opening import reading, writing

    place = Path(place)
    _without_log(place)
    with closing(reading(place)) as store:
        configuration = store.header("configuration")
    with writing(place, configuration, "a command", print) as store:
        for number in range(12):
            store.add_result(f"result {number}", [number / 7] * 20 * (number % 4), 0.5)
        os.kill(os.getpid(), signal.SIGKILL)


def damage(place, pattern, trials):
    """How often what happened, in so many trials on copies of a run, and what was lost or wrong."""
    import jax

    from counterflow.runs import opening

    jax.config.update("jax_enable_x64", True)
    # Neither is damaged, and both take their time.
    versions = opening.fingerprint()
    opening.commit, opening.fingerprint = lambda: "", lambda: versions
    chance, happened, tally = random.Random(pattern), Counter(), Row("", "")
    with tempfile.TemporaryDirectory(dir=_in_memory()) as folder:
        whole, copy = Path(folder) / "whole", Path(folder) / "copy"
        shutil.copytree(place, whole, ignore=shutil.ignore_patterns("*-shm"))
        if pattern == "run.sqlite":
            _without_log(whole)
        shutil.copytree(whole, copy)
        intact = Intact(copy)
        for trial in range(trials):
            shutil.rmtree(copy)
            shutil.copytree(whole, copy)
            path = chance.choice([path for path in sorted(copy.glob(pattern)) if _used(path)])
            how = _spoil(path, chance, trial)
            verdict, told, read = intact.judge(copy)
            happened[verdict] += 1
            if read is not None and not read["error"]:  # what is told is not lost unseen
                tally.survived(intact.read, read)
                tally.compare(read, intact.read)
            if verdict in (SILENT, UNCLEAR):
                print(f"{path.name} {how}: {verdict}: {told}")
    counts = {"lost": tally.lost, "series": tally.series, "wrong": tally.wrong}
    return {"happened": happened} | counts


class Intact:
    """What is read of a run before it is damaged, and what it goes on from.

    Args:
        place: The run.

    Attributes:
        read: What is read of it.
    """

    def __init__(self, place):
        from safetensors.numpy import load_file

        from counterflow.runs.opening import reading

        self.read = contents(place)
        with closing(reading(place)) as store:
            self._configuration = store.header("configuration")
        arrays = load_file(next((place / "states").iterdir()))
        self._like = [arrays[str(i)] for i in range(len(arrays))]
        # What it goes on from now, and from the state before.
        self._states = {self._resume(place)[0]}
        max((place / "states").iterdir(), key=_record).unlink()
        self._states.add(self._resume(place)[0])

    def judge(self, place):
        """What came of a damage, what was said, and what was read."""
        from counterflow.runs.database import StoreError

        told = ""
        try:
            read = contents(place)
        except Exception as error:
            read, told = None, f"reading: {error!r}"
        try:
            state, noted = self._resume(place)
        except StoreError as error:
            state, noted = None, str(error)
        except Exception as error:
            return UNCLEAR, f"going on: {error!r}", read
        if read is None:
            return UNCLEAR, told, read
        if not read["error"] and read != self.read:
            return SILENT, f"reading: {_difference(self.read, read)}", read
        if state is not None and state not in self._states:
            return SILENT, f"going on from {state}, noted: {noted}", read
        if read["error"] or state is None:
            return CLEAR, noted, read
        return BEFORE if noted else SAME, noted, read

    def _resume(self, place):
        """The record, and what the state and its ending are, that a run would go on from."""
        from counterflow.runs.opening import writing

        said, used = [], []

        def fill(ended, load):
            arrays = load(self._like)
            used.append(digest((ended, [array.tolist() for array in arrays])))

        with writing(place, self._configuration, "a command", said.append) as store:
            for name, known in store.trainings().items():
                if known["status"] == "running":
                    done, wrong = store.resume(name, fill)
                    used.append(done)
                    said += [wrong] if wrong else []
        return tuple(used), "; ".join(said)


def _used(path):
    """Whether a file is none of the states that were about to be noted or deleted."""
    if path.suffix != ".safetensors":
        return True
    database = path.parents[1] / "run.sqlite"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return (path.name,) in connection.execute("SELECT file FROM states").fetchall()


def _record(path):
    return int(path.stem.rpartition("-")[2])


def _difference(before, after):
    kinds = ("records", "results", "sittings", "series", "seconds")
    return ", ".join(kind for kind in kinds if before[kind] != after[kind])


def _spoil(path, chance, trial):
    """Cuts a file off, every fourth time, or turns a bit over; returns how."""
    content = bytearray(path.read_bytes())
    if trial % 4 == 0:
        length = chance.randrange(len(content))
        if trial % 8 == 0:
            length -= length % min(PAGE, len(content))
        path.write_bytes(content[:length])
        return f"cut to {length} of {len(content)} bytes"
    at, bit = chance.randrange(len(content)), chance.randrange(8)
    content[at] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {at}"


def _without_log(place):
    """Moves what is in the log of a run into its database."""
    with closing(sqlite3.connect(place / "run.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _in_memory():
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
