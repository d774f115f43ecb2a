"""Faults of every kind, and what they cost: the target is nothing.

    python faults/main.py [--only run report] [--trials 5]

Every fault comes over commands that are at work; afterwards the same command goes on to the end,
and what it leaves is compared with an undisturbed run, to the last bit. Without options, about
twenty minutes on two cores. Results: `docs/results/faults.json`, rewritten after each fault, unless
the number of trials was chosen.
"""

import argparse
import json
import os
import sqlite3
import sys
import time
from datetime import UTC, datetime

import clock
import damage
import disk_full
import downloads
import kills
import read_only
import reports
import writers
from common import HERE, workshop
from mounts import in_own_namespace

import sweeps

RESULTS = HERE.parent / "docs" / "results" / "faults.json"
# By name, what to call and how many trials.
FAULTS = {
    "run": (kills.killed_run, 40),
    "reproduce": (kills.killed_reproduce, 20),
    "sweep": (sweeps.killed_sweep, 20),
    "report": (reports.killed_report, 20),
    "download": (downloads.killed_download, 40),
    "writer": (writers.killed_writer, 5),
    "writers": (writers.two_writers, 5),
    "full": (disk_full.full_disk, 7),
    "read-only": (read_only.read_only_folder, 2),
    "clock": (clock.jumping_clock, 4),
    "states": (damage.damaged_states, 200),
    "database": (damage.damaged_database, 400),
    "log": (damage.damaged_log, 200),
    "results": (damage.damaged_log_of_results, 200),
    "commits": (damage.damaged_note, 100),
}


def machine():
    """The machine and the versions."""
    from counterflow.runs.environment import fingerprint

    known = fingerprint()
    where = {"processor": known["processor"], "cores": int(known["cores"])}
    versions = {name: known[name] for name in ("python", "counterflow", "jax", "jaxlib")}
    kernel = os.uname()
    release = ".".join(kernel.release.split(".")[:2])
    system = {"system": f"{kernel.sysname} {release}", "sqlite": sqlite3.sqlite_version}
    return where | versions | system


def write(name, row):
    """Writes the row of a fault, in the order in which they are listed, beside those known.

    Each has its processor with it, for not all may be from the same machine.
    """
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    here, rows = machine(), stored.get("rows", {})
    for known in rows.values():
        known.setdefault("processor", stored["machine"]["processor"])
    rows[name] = row | {"processor": here["processor"]}
    ordered = {known: rows[known] for known in FAULTS if known in rows}
    text = json.dumps({"machine": here, "rows": ordered}, indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=FAULTS, metavar="FAULT", default=list(FAULTS))
    parser.add_argument("--trials", type=int, help="so many of each, and nothing is written")
    options = parser.parse_args()
    in_own_namespace()
    good = True
    with workshop() as place:
        for name in options.only:
            function, trials = FAULTS[name]
            since = time.monotonic()
            row = function(place, options.trials or trials)
            seconds = round(time.monotonic() - since)
            good = good and row.good
            date = datetime.now(UTC).date().isoformat()
            found = row.to_json() | {"good": row.good, "date": date, "seconds": seconds}
            print(f"{name}: {json.dumps(found, ensure_ascii=False)}", flush=True)
            if options.trials is None:
                write(name, found)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
