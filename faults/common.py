"""What the faults share: a place to work in, runs to spoil, what is read of them and counted."""

import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from server import SECONDS, Server

HERE = Path(__file__).parent
COMMAND = str(Path(sys.executable).with_name("counterflow"))
MODEL = f"{HERE / 'tiny_model.py'}:problem"
# A problem of five numbers, and the smallest of the paper's experiments with a training.
RUN = f"run {MODEL} --learning-rate 0.05 --steps 60 --records 60 --orders 0".split()
REPRODUCE = (
    "reproduce figure3 --samples 40 --hidden-widths 4 3 --steps 100 --records 50 --restart 3 "
    "--orders 0 1 --large-steps 4 --long-steps 30 --long-samples 40 --seeds 8 --learning-rates 0.1"
).split()
# How a command may end.
WENT_ON, CLEAR, UNCLEAR = "went on", "ended with a clear message", "ended without a clear message"


# --- what is counted ------------------------------------------------------------------------


@dataclass
class Row:
    """What a fault did, over all trials.

    Attributes:
        fault: The fault.
        where: What it befell.
        trials: How often.
        happened: How often what happened, in words.
        committed: Records and results that were on disk before the faults, added up.
        lost: Those that were gone or others afterwards.
        series: Series that were compared with an undisturbed run, after going on to the end.
        wrong: Those of which a bit was another.
        undetected: Damage that was used without a word.
    """

    fault: str
    where: str
    trials: int = 0
    happened: Counter = field(default_factory=Counter)
    committed: int = 0
    lost: int = 0
    series: int = 0
    wrong: int = 0
    undetected: int = 0

    @property
    def good(self):
        """Whether nothing happened that must not."""
        return not (self.lost or self.wrong or self.undetected or self.happened[UNCLEAR])

    def ended(self, process, code=0, words=""):
        """Counts how a process ended that had to end with this code, and words as in a pattern."""
        if process.wait() == code == 0:
            self.happened[WENT_ON] += 1
        elif process.code == code and re.search(words, process.said) and _calm(process):
            self.happened[CLEAR] += 1
        else:
            self.happened[UNCLEAR] += 1
            print(f"ended with {process.code}, not {code} and {words!r}:\n{process.said}")

    def compare(self, found, reference):
        """Counts the series of a finished run that are not those of an undisturbed one."""
        names = found["series"].keys() | reference["series"].keys()
        wrong = [n for n in names if found["series"].get(n) != reference["series"].get(n)]
        self.series += len(names)
        self.wrong += len(wrong)
        if wrong:
            print(f"not as in an undisturbed run: {', '.join(sorted(wrong))} {found['error']}")

    def survived(self, before, after):
        """Counts what was committed before and is not there, as it was, after."""
        for kind in ("records", "results", "sittings"):
            gone = [n for n, value in before[kind].items() if after[kind].get(n) != value]
            self.lost += len(gone)
            if gone:
                print(f"lost {kind}: {', '.join(gone)} {after['error']}")

    def to_json(self):
        return asdict(self) | {"happened": dict(self.happened)}


def _calm(process):
    return "Traceback" not in process.said


# --- what is read of a run ------------------------------------------------------------------


def command(arguments):
    """Runs a command of the command line."""
    from counterflow.cli import main

    return main(arguments)


def look(place):
    """Everything that can be read of a run, from a copy: looking changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        for path in Path(place).glob("run.sqlite*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, folder)
        return contents(folder)


def contents(place):
    """Everything that can be read of a run: digests by name, and what was wrong."""
    from counterflow.runs.database import StoreError
    from counterflow.runs.run import open_run

    found = {"error": "", "records": {}, "series": {}, "results": {}, "sittings": {}, "seconds": []}
    try:
        run = open_run(place)
    except StoreError as error:
        return found | {"error": str(error)}
    for name, known in run.trainings.items():
        rows = {key: [float(v).hex() for v in values] for key, values in known.series.items()}
        for record in range(len(known.steps)):
            at = sorted((*key, values[record]) for key, values in rows.items())
            found["records"][f"{name}, record {record}"] = digest(at)
        for (process, quantity), values in rows.items():
            found["series"][f"{name}, {process}: {quantity}"] = digest(values)
        told = (known.training.settings, known.steps.tolist(), known.status, known.statistics)
        found["series"][name] = digest(told)
        found["seconds"].append(known.seconds)
    found["results"] = {name: digest(value) for name, value in run.results.items()}
    found["seconds"] += run.result_seconds.values()
    found["sittings"] = {str(i): digest(dict(one)) for i, one in enumerate(run.sittings)}
    return found


def digest(value):
    return sha256(repr(value).encode()).hexdigest()[:16]


def committed(found):
    """How many records and results were found."""
    return len(found["records"]) + len(found["results"])


def newest(place):
    """The last record whose state has been written, or −1."""
    names = [path.stem for path in (place / "states").glob("*.safetensors")]
    return max((int(name.rpartition("-")[2]) for name in names), default=-1)


def is_writing(place, process):
    """Whether a process holds the lock of a run."""
    try:
        return (place / "lock").read_text(encoding="utf-8") == f"process {process.pid}"
    except FileNotFoundError:
        return False


# --- where it happens -----------------------------------------------------------------------


class Workshop:
    """A folder for runs, the server, and the runs that all faults compare with or begin from."""

    def __init__(self, top):
        self.top, self._made, self._references, self._half = top, 0, {}, None
        outputs = self.folder()
        self.server = Server(
            # A folder of compiled programs that is given saves compiling them.
            {"JAX_COMPILATION_CACHE_DIR": str(top / "compiled")}
            | os.environ
            | {
                "JAX_PLATFORMS": "cpu",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            },
            outputs,
        )

    def folder(self):
        """A new folder."""
        self._made += 1
        path = self.top / str(self._made)
        path.mkdir()
        return path

    def start(self, arguments, folder):
        """A command that keeps its run in a folder, at work."""
        return self.server.start(command, [*arguments, "--folder", str(folder)])

    def look(self, place):
        """Everything that can be read of a run, by a process of its own."""
        return self.server.call(look, str(place))

    def reference(self, arguments):
        """The place of an undisturbed run of a command, and everything that is read of it."""
        key = tuple(arguments)
        if key not in self._references:
            folder = self.folder()
            process = self.start(arguments, folder)
            if process.wait() != 0:
                raise RuntimeError(f"the undisturbed run failed:\n{process.said}")
            (place,) = folder.iterdir()
            self._references[key] = place, self.look(place)
        return self._references[key]

    def half(self, folder):
        """A copy in a folder of a run that was killed half way; returns its place."""
        if self._half is None:
            reference, _ = self.reference(RUN)
            self._half = self.folder() / reference.name
            process = self.start(RUN, self._half.parent)
            process.sleep(SECONDS, lambda: newest(self._half) >= 30)
            if not process.kill():
                raise RuntimeError(f"the run had ended before it was killed:\n{process.said}")
        shutil.copytree(self._half, folder / self._half.name)
        return folder / self._half.name

    def finish(self, row, folder, before, arguments=RUN):
        """Goes on with a run to its end; counts what was lost, and what is not as it should be."""
        reference, wanted = self.reference(arguments)
        row.ended(self.start(arguments, folder))
        found = self.look(folder / reference.name)
        row.survived(before, found)
        row.compare(found, wanted)


@contextmanager
def workshop():
    """A workshop in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="counterflow-faults-") as top:
        place = Workshop(Path(top))
        try:
            yield place
        finally:
            place.server.close()
