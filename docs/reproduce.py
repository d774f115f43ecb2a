"""Brings the summary, the table and the figures of a run into the page on reproduction.

    python docs/reproduce.py RUN

The page is docs/reproduce.md; the summary of every run in it is kept in docs/results, as JSON. A
picture of the report itself needs Chromium; without it, the one that is there stays.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from counterflow.experiments.carry_out import findings
from counterflow.experiments.registry import experiments_of
from counterflow.report.cost import cost_said, duration, total_cost
from counterflow.report.report import write_report
from counterflow.runs.run import Run, open_run
from page import DOCS, FIGURES, RESULTS, rows_of, write_table

PAGE = DOCS / "reproduce.md"
# Figure 1 is the same for all data.
SHOWN = {"digits": ("figure1", "figure12"), "mnist": ("figure12", "sharpness")}


def summary(run: Run) -> dict[str, Any]:
    """What the page tells of a run, as JSON values."""
    found = findings(run, experiments_of(run))
    evaluations, seconds = total_cost(run)
    (table,) = [finding.table for finding in found if finding.name == "table1"]
    return {
        "configuration": json.loads(run.configuration.to_json()),
        "finished": all(known.finished for known in run.trainings.values()),
        "gradient_evaluations": evaluations,
        "seconds": round(seconds),
        "cost": cost_said(run),
        "trainings": {
            name: {
                "seconds": known.seconds,
                "gradient_evaluations": {
                    part: cost["gradient_evaluations"] for part, cost in known.statistics.items()
                },
            }
            for name, known in run.trainings.items()
        },
        "results_seconds": dict(run.result_seconds),
        "sittings": len(run.sittings),
        "fingerprint": dict(run.sittings[-1]["fingerprint"]),
        "claims": [
            {
                "experiment": finding.name,
                "claim": claim.text,
                "figures": claim.figures,
                "holds": claim.holds,
            }
            for finding in found
            for claim in finding.claims
        ],
        "table1": {"header": table.header, "rows": table.rows},
    }


def name_of(stored: dict[str, Any]) -> str:
    """The name of a run's summary: its data and its size."""
    return f"{stored['configuration']['data']}_{stored['configuration']['size']}"


def cost_line(stored: dict[str, Any]) -> str:
    holding = sum(claim["holds"] for claim in stored["claims"])
    # Summaries kept before this was noted know of the trainings alone.
    cost = stored.get("cost") or (
        f"{stored['gradient_evaluations']:,} gradient evaluations in "
        f"{duration(float(stored['seconds']))}"
    )
    return f"{holding} of {len(stored['claims'])} claims hold; {cost}."


def claims_table(stored: dict[str, Any]) -> str:
    rows = [
        (
            claim["experiment"],
            _escaped(claim["claim"]),
            _escaped(claim["figures"]),
            "holds" if claim["holds"] else "**fails**",
        )
        for claim in stored["claims"]
    ]
    table = rows_of("experiment | claim | measured | verdict", rows)
    return f"{cost_line(stored)}\n\n{table.replace('--:', ':--')}"


def decay_table(stored: dict[str, Any]) -> str:
    table = stored["table1"]
    return rows_of(" | ".join(table["header"]), [tuple(row) for row in table["rows"]])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def picture(page: Path, path: Path) -> None:
    """A picture of the upper part of a page, by Chromium if there is one."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("no Chromium: the picture of the report stays as it is")
        return
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += [f"--user-data-dir={profile}", "--window-size=1100,1500"]
        options += ["--virtual-time-budget=8000", f"--screenshot={path}"]
        subprocess.run(
            [browser, *options, page.resolve().as_uri()], check=True, capture_output=True
        )


def main(folder: Path) -> None:
    run = open_run(folder)
    stored = json.loads(json.dumps(summary(run)))
    name = name_of(stored)
    (RESULTS / f"reproduce_{name}.json").write_text(json.dumps(stored, indent=1), encoding="utf-8")
    write_table(PAGE, f"{name}_claims", claims_table(stored))
    write_table(PAGE, f"{name}_table1", decay_table(stored))
    page = write_report(run, findings(run, experiments_of(run)))
    for figure in SHOWN[run.configuration.data]:
        shutil.copy(folder / "figures" / f"{figure}.png", FIGURES / f"{name}_{figure}.png")
    picture(page, FIGURES / f"{name}_report.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
