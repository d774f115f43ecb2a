"""A real sweep over the paper's grid with two workers killed on the way, for the page on sweeps.

    python docs/sweep.py [FOLDER]

Sweeps examples/paper_grid.toml twice, each on a Ray of its own: once while two workers are killed
at random moments, once undisturbed; compares all series to the last bit; and brings the table into
docs/sweep.md. What was measured is kept in docs/results/sweep.json. A folder that is given keeps
the runs, and what is finished in it is not done again.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import counterflow as cf
from counterflow.runs.environment import fingerprint
from page import DOCS, RESULTS, rows_of, write_table

PAGE = DOCS / "sweep.md"
EXAMPLE = DOCS.parent / "examples" / "paper_grid.toml"
KILLS = 2


def at_work(folder: Path) -> dict[str, tuple[int, int]]:
    """By run, the process at work on it and how many records it has kept so far."""
    found = {}
    for lock in folder.glob("digits-*/lock"):
        try:
            trainings = cf.open_run(lock.parent).trainings.values()
            holder = int(lock.read_text().removeprefix("process "))
            os.kill(holder, 0)
        except (ValueError, ProcessLookupError, cf.StoreError):
            continue
        if any(not known.finished for known in trainings):
            found[lock.parent.name] = holder, sum(len(known.steps) for known in trainings)
    return found


def sweep(folder: Path, kills: int) -> list[dict[str, Any]]:
    """Carries the sweep out; returns whose workers were killed, after how many records."""
    command = [str(Path(sys.executable).with_name("counterflow")), "sweep", str(EXAMPLE)]
    process = subprocess.Popen([*command, "--folder", str(folder)])
    chance, noted = random.Random(), folder / "killed.json"
    killed = json.loads(noted.read_text(encoding="utf-8")) if noted.exists() else []
    while process.poll() is None:
        time.sleep(chance.uniform(0.1, 1))
        for one in killed:
            one["least"] = min(one["least"], _records(folder / one["folder"]))
        workers = {name: at for name, at in at_work(folder).items() if at[1] > 0}
        # Now and then, and not the same run twice.
        others = [name for name in workers if name not in {one["folder"] for one in killed}]
        if len(killed) < kills and others and chance.random() < 0.3:
            name = chance.choice(others)
            holder, records = workers[name]
            os.kill(holder, signal.SIGKILL)
            least = _records(folder / name)
            killed.append({"folder": name, "records": records, "least": least})
            noted.write_text(json.dumps(killed), encoding="utf-8")
            print(f"killed the worker of {name} after {records} records", flush=True)
    if process.returncode != 0:
        sys.exit(f"the sweep ended with {process.returncode}")
    return killed


def _records(place: Path) -> int:
    """How many records of a run there are on disk now."""
    return sum(len(known.steps) for known in cf.open_run(place).trainings.values())


def the_sweep(folder: Path) -> cf.Sweep:
    (place,) = folder.glob("sweep-*")
    return cf.open_sweep(place)


def compared(run: cf.Run, other: cf.Run, killed: list[dict[str, Any]]) -> dict[str, Any]:
    """What became of a run, beside the same one undisturbed."""
    of_it = [one for one in killed if one["folder"] == run.folder.name]
    ((name, known),) = run.trainings.items()
    whole = other.trainings[name]
    same = known.series.keys() == whole.series.keys() and all(
        np.array_equal(values, whole.series[key], equal_nan=True)
        for key, values in known.series.items()
    )
    return {
        "records": len(known.steps),
        "killed_after": [one["records"] for one in of_it],
        "sittings": len(run.sittings),
        "lost": sum(max(one["records"] - one["least"], 0) for one in of_it),
        "gradients": _gradients(known),
        "gradients_undisturbed": _gradients(whole),
        "equal": same,
    }


def _gradients(known: cf.TrainingSeries) -> int:
    return sum(part["gradient_evaluations"] or 0 for part in known.statistics.values())


def result_of(folder: Path) -> dict[str, Any]:
    killed = sweep(folder / "killed", KILLS)
    sweep(folder / "undisturbed", 0)
    runs, others = the_sweep(folder / "killed").runs, the_sweep(folder / "undisturbed").runs
    return {
        "kills": len(killed),
        "fingerprint": fingerprint(),
        "runs": {name: compared(run, others[name], killed) for name, run in runs.items()},
    }


def table_of(result: dict[str, Any]) -> str:
    rows = [
        (
            name,
            str(one["records"]),
            ", ".join(f"after {count}" for count in one["killed_after"]) or "–",
            str(one["lost"]),
            f"{one['gradients']:,}",
            f"{one['gradients_undisturbed']:,}",
            "yes" if one["equal"] else "**no**",
        )
        for name, one in result["runs"].items()
    ]
    header = (
        "run | records | worker killed | records lost | gradients | undisturbed | equal to the "
        "last bit"
    )
    return rows_of(header, rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as aside:
        result = result_of(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(aside))
    (RESULTS / "sweep.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    write_table(PAGE, "killed", table_of(result))
    print(table_of(result))


if __name__ == "__main__":
    main()
