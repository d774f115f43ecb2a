"""A command at work: what is seen of it, how it is stopped, and what it leaves behind."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..experiments.carry_out import Watcher, findings
from ..experiments.experiment import Experiment
from ..experiments.finding import Finding
from ..experiments.registry import experiments_of
from ..report.cost import cost_said
from ..report.report import missing_of, warnings_of, write_report
from ..runs.run import Run
from ..runs.training import Stopped
from .compiling import compiled_on_disk
from .printing import can_be_drawn_on, printable, say
from .stopping import stopping_at_a_record
from .views import LiveView, PlainView

#: The exit code of a command that was stopped.
STOPPED = 130


class CommandError(Exception):
    """Something that was typed is not what it should be; the message says what is."""


def work(
    carry_out: Callable[[Watcher, Callable[[], bool]], Run | None],
    place: Path,
    typed: str,
    quiet: bool,
    chosen: Sequence[Experiment] | None = None,
) -> int:
    """Carries experiments out, writes the report and prints the verdicts; returns the exit code.

    Args:
        carry_out: Does it, for someone who watches and someone who may ask it to stop.
        place: The folder of the run.
        typed: The command, as it goes on with what was stopped.
        quiet: Whether to print only the verdicts and where the report is.
        chosen: The experiments whose verdicts were asked for, if not all.
    """
    console = Console()
    view: Watcher = Watcher()
    if not quiet:
        view = LiveView(console) if can_be_drawn_on(console) else PlainView(console)
    with stopping_at_a_record(view.said) as stopping, compiled_on_disk() as compilation:
        try:
            with view if isinstance(view, LiveView) else nullcontext():
                run = carry_out(view, stopping)
            if run is None:
                return 0  # of several processes, the first one reports
            if not quiet:
                say(console, str(compilation))
            finish(console, run, chosen)
        except (Stopped, KeyboardInterrupt):
            say(console, f"stopped; every record so far is in {place}\nto go on: {typed}")
            return STOPPED
    return 0


def finish(console: Console, run: Run, chosen: Sequence[Experiment] | None = None) -> None:
    """Writes the report of all that the run has, and prints the verdicts that were asked for."""
    everything = findings(run, experiments_of(run))
    path = write_report(run, everything)
    found = everything if chosen is None else findings(run, chosen)
    console.print(_verdicts(found))
    for warning in (*warnings_of(run), *(missing_of(run) if chosen is None else [])):
        say(console, f"note: {warning}")
    claims = [claim for finding in found for claim in finding.claims]
    say(
        console,
        f"{sum(claim.holds for claim in claims)} of {len(claims)} claims hold; {cost_said(run)}\n"
        f"report: {path}\nfigures: {path.parent / 'figures'}",
    )


def _verdicts(found: Sequence[Finding]) -> Table:
    table = Table(show_lines=False)
    table.add_column("experiment", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim, and the figures it rests on", overflow="fold")
    for finding in found:
        for index, claim in enumerate(finding.claims):
            table.add_row(
                finding.name if index == 0 else "",
                "holds" if claim.holds else "[bold]FAILS[/bold]",
                Text(printable(f"{claim.text}: {claim.figures}")),
            )
    return table
