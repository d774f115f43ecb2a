"""The report of a run: what was found, with which settings, at what cost."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ..experiments.carry_out import is_complete
from ..experiments.finding import Finding
from ..experiments.registry import experiments_of
from ..runs.analysis import Analysis
from ..runs.environment import differences
from ..runs.run import Run
from .cost import cost_note, cost_said, cost_table, duration as duration
from .page import Report, write_figures, write_page

PAGE, FIGURES = "report.html", "figures"

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
    failing = ", ".join(finding.name for finding in findings if not finding.holds)
    told = _OWN if isinstance(run.configuration, Analysis) else _PAPER
    settings = asdict(run.configuration)
    return Report(
        title=told.title.format(**settings),
        subtitle=f"{told.subtitle.format(**settings)}: {cost_said(run)}",
        findings=tuple(findings),
        settings=_settings(run),
        cost=cost_table(run),
        cost_note=cost_note(run),
        citation=_CITATION.replace("VERSION", version("counterflow")),
        summary=(told.summary + (f"; here in {failing}." if failing else "."),),
        warnings=(*warnings_of(run), *missing_of(run)),
    )


class _Told(NamedTuple):
    """What is told of every run of a kind."""

    title: str
    subtitle: str
    summary: str


_PAPER = _Told(
    "Toward an equation of motion of gradient descent, reproduced",
    "{data}, size {size}",
    "The experiments of T. Miyagawa, Toward Equation of Motion for Deep Neural Networks (NeurIPS "
    "2022), computed again: gradient descent beside gradient flow and the equations of motion that "
    "correct it, with a verdict on every claim. A claim that fails is shown with its numbers",
)
_OWN = _Told(
    "Gradient descent on {model}, and the flows that predict it",
    "η = {learning_rate:g}, λ = {weight_decay:g}, {steps:,} steps",
    "Gradient descent beside gradient flow and the equations of motion that correct it, with a "
    "verdict on everything that theory says of them at this learning rate. What fails is shown "
    "with its numbers",
)


def _settings(run: Run) -> tuple[tuple[str, str], ...]:
    rows = [(name, json.dumps(value)) for name, value in asdict(run.configuration).items()]
    last = run.sittings[-1]
    rows.append(("command", "; ".join(dict.fromkeys(one["command"] for one in run.sittings))))
    rows.append(("source", "; ".join(dict.fromkeys(map(_source, run.sittings)))))
    rows += [(name, value) for name, value in last["fingerprint"].items() if value]
    rows.append(("worked on", ", ".join(sitting["started"] for sitting in run.sittings)))
    return tuple(rows)


def _source(sitting: Mapping[str, Any]) -> str:
    """Which code a sitting was at work with, as far as it is known."""
    source = sitting["source"]
    if not source:
        return "not a git repository"
    return f"{source} (with changes not committed)" if source.endswith("-dirty") else source


def missing_of(run: Run) -> list[str]:
    """What to tell of experiments that a run has not computed."""
    missing = [one.name for one in experiments_of(run) if not is_complete(run, one)]
    return [f"not computed yet: {', '.join(missing)}"] if missing else []


def warnings_of(run: Run) -> list[str]:
    """What the reader of a run must know: what is not finished, ended early, or was made by parts.

    As where a run was continued on another machine, with other versions or with other code.
    """
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
    for before, after in pairwise(run.sittings):
        if changed := differences(before["fingerprint"], after["fingerprint"]):
            found.append(
                f"the run was continued elsewhere on {after['started']}: {'; '.join(changed)}"
            )
    # Where the code was first another one than before.
    sources = [
        f"{_source(after)} from {after['started']} on"
        for before, after in pairwise(run.sittings)
        if before["source"] != after["source"]
    ]
    if sources:
        found.append(
            f"the run was worked on with different code: {_source(run.sittings[0])} at first, then "
            f"{', '.join(sources)}; what was computed before was not computed again"
        )
    return found
