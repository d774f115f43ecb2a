"""The same run by one, two and four processes: how far apart its series are, and how long it takes.

    python benchmarks/processes.py

Each is `counterflow reproduce figure2 table1 --processes N` on scikit-learn's digits, in a folder
of its own; here the processes share the cores of one machine. Results:
`benchmarks/results/processes.json`.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import write

from counterflow.runs.agreement import apart
from counterflow.runs.run import open_run

PROCESSES = (1, 2, 4)
SAMPLES = 1796  # a multiple of four
SETTINGS = f"--samples {SAMPLES} --steps 20 60 60 --restart 10 --records 10 --orders 0 1".split()


def run_by(processes, folder):
    """The run by a number of processes, and its seconds."""
    command = [sys.executable, "-m", "counterflow", "reproduce", "figure2", "table1", *SETTINGS]
    since = time.perf_counter()
    subprocess.run(
        [*command, "--folder", str(folder), "--processes", str(processes), "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    seconds = time.perf_counter() - since
    (place,) = folder.iterdir()
    return open_run(place), seconds


def main():
    found, first = [], None
    for processes in PROCESSES:
        with tempfile.TemporaryDirectory() as folder:
            run, seconds = run_by(processes, Path(folder))
        first = first or run
        differences = apart(first, run)
        found.append({"processes": processes, "seconds": seconds, "apart": differences})
        worst = max(differences.values())
        print(f"{processes} processes: {seconds:.0f} s, at most {worst:.0e} apart", flush=True)
    write("processes", {"settings": SETTINGS, "samples": SAMPLES, "runs": found})


if __name__ == "__main__":
    main()
