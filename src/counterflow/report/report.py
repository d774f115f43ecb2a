"""The report of a run: what was found, with which settings, at what cost."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from ..experiments.carry_out import is_complete
from ..experiments.finding import Finding, Table
from ..experiments.registry import experiments_of
from ..runs.analysis import Analysis
from ..runs.environment import differences
from ..runs.run import Run, TrainingSeries
from .page import Report, write_figures, write_page

PAGE, FIGURES = "report.html", "figures"

#: The steps that the paper took for one flow, and what all of them took together.
PAPER_STEPS, PAPER_TIME = 5_000_000, "about a month on a DGX-1"

_CITATION = """\
@inproceedings{miyagawa2022toward,
  title     = {Toward Equation of Motion for Deep Neural Networks: Continuous-time Gradient
               Descent and Discretization Error Analysis},
  author    = {Taiki Miyagawa},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {35},
  year      = {2022}
}

@software{counterflow,
  title   = {counterflow: gradient descent predicted by differential equations},
  author  = {{The counterflow developers}},
  version = {VERSION}
}
"""


def write_report(run: Run, findings: Sequence[Finding]) -> Path:
    """Writes the page and the figures of a run into its folder; returns the page."""
    from altair.utils.schemapi import debug_mode  # takes a second to import

    path = run.folder / PAGE
    # That the charts are what Altair allows is tested; to look again takes half the time.
    with debug_mode(False):
        try:
            write_figures(run.folder / FIGURES, tuple(findings))
            write_page(path, report(run, findings))
        except OSError as error:
            raise OSError(
                f"cannot write the report into {run.folder}: {error.strerror or error}; the run "
                f"itself is intact, and `counterflow report {run.folder}` writes it later"
            ) from error
    return path


def report(run: Run, findings: Sequence[Finding]) -> Report:
    """What the page of a run tells."""
    evaluations, seconds = total_cost(run)
    failing = ", ".join(finding.name for finding in findings if not finding.holds)
    told = _OWN if isinstance(run.configuration, Analysis) else _PAPER
    settings = asdict(run.configuration)
    return Report(
        title=told.title.format(**settings),
        subtitle=(
            f"{told.subtitle.format(**settings)}: {evaluations:,} gradient evaluations in "
            f"{duration(seconds)}"
        ),
        findings=tuple(findings),
        settings=_settings(run),
        cost=_cost(run),
        cost_note=told.cost_note,
        citation=_CITATION.replace("VERSION", version("counterflow")),
        summary=(told.summary + (f"; here in {failing}." if failing else "."),),
        warnings=(*warnings_of(run), *missing_of(run)),
    )


class _Told(NamedTuple):
    """What is told of every run of a kind."""

    title: str
    subtitle: str
    summary: str
    cost_note: str


_COUNTED = (
    "Gradient evaluations are those of descent, flows and predictions, a product with the Hessian "
    "counted as two; the times also include measuring sharpness and the results that are no "
    "trainings."
)
_PAPER = _Told(
    "Toward an equation of motion of gradient descent, reproduced",
    "{data}, size {size}",
    "The experiments of T. Miyagawa, Toward Equation of Motion for Deep Neural Networks (NeurIPS "
    "2022), computed again: gradient descent beside gradient flow and the equations of motion that "
    "correct it, with a verdict on every claim. A claim that fails is shown with its numbers",
    f"The paper simulated each flow by {PAPER_STEPS:,} Euler steps; all of its experiments took "
    f"{PAPER_TIME}. {_COUNTED}",
)
_OWN = _Told(
    "Gradient descent on {model}, and the flows that predict it",
    "η = {learning_rate:g}, λ = {weight_decay:g}, {steps:,} steps",
    "Gradient descent beside gradient flow and the equations of motion that correct it, with a "
    "verdict on everything that theory says of them at this learning rate. What fails is shown "
    "with its numbers",
    _COUNTED,
)


def total_cost(run: Run) -> tuple[int, float]:
    """All gradient evaluations of the trainings of a run, and the seconds everything took."""
    evaluations = sum(_evaluations(known, "") for known in run.trainings.values())
    seconds = sum(known.seconds for known in run.trainings.values())
    return evaluations, seconds + sum(run.result_seconds.values())


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(8.2), duration(200.0), duration(9000.0)
    ('8 s', '3 min 20 s', '2 h 30 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _evaluations(known: TrainingSeries, part: str) -> int:
    """The gradient evaluations of the parts of a training whose names start so."""
    return sum(
        cost["gradient_evaluations"] or 0
        for name, cost in known.statistics.items()
        if name.startswith(part)
    )


def _settings(run: Run) -> tuple[tuple[str, str], ...]:
    rows = [(name, json.dumps(value)) for name, value in asdict(run.configuration).items()]
    last = run.sittings[-1]
    rows += [("command", last["command"]), ("source", last["source"] or "not a git repository")]
    rows += [(name, value) for name, value in last["fingerprint"].items() if value]
    rows.append(("worked on", ", ".join(sitting["started"] for sitting in run.sittings)))
    return tuple(rows)


def _cost(run: Run) -> Table:
    parts = ("descent", "flow", "coarse flow", "prediction", "restarted prediction", "")
    header = ("training", "steps", *(part or "all" for part in parts), "time")
    rows = [
        (
            name,
            f"{int(known.steps[-1]):,}" if len(known.steps) else "0",
            *(f"{_evaluations(known, part):,}" for part in parts),
            duration(known.seconds),
        )
        for name, known in run.trainings.items()
    ]
    rows += [
        (name, *[""] * (len(header) - 2), duration(seconds))
        for name, seconds in run.result_seconds.items()
    ]
    evaluations, seconds = total_cost(run)
    rows.append(("all", *[""] * (len(header) - 3), f"{evaluations:,}", duration(seconds)))
    return Table(header, tuple(rows))


def missing_of(run: Run) -> list[str]:
    """What to tell of experiments that a run has not computed."""
    missing = [one.name for one in experiments_of(run) if not is_complete(run, one)]
    return [f"not computed yet: {', '.join(missing)}"] if missing else []


def warnings_of(run: Run) -> list[str]:
    """What the reader of a run must know: what is not finished, ended early or was moved."""
    found = [
        f"{name} is not finished: {len(known.steps)} of {known.total} records are done"
        for name, known in run.trainings.items()
        if not known.finished
    ]
    found += [
        f"{name}: {known.status}"
        for name, known in run.trainings.items()
        if known.finished and known.status != "completed"
    ]
    for before, after in zip(run.sittings, run.sittings[1:], strict=False):
        if changed := differences(before["fingerprint"], after["fingerprint"]):
            found.append(
                f"the run was continued elsewhere on {after['started']}: {'; '.join(changed)}"
            )
    return found
