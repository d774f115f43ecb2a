"""The report of a sweep: a small chart of every run on one scale, a table, and what failed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from urllib.parse import quote

from ..experiments.carry_out import findings
from ..experiments.curves import TIME, flow_name, last, order_role, scientific
from ..experiments.finding import Claim, Curve, Finding, Panel
from ..experiments.registry import experiments_of
from ..report.cost import duration, total_cost
from ..report.frame import framed, write_whole
from ..report.lines import drawable, window_of
from ..report.page import figure_html
from ..report.report import PAGE
from ..runs.run import Run, TrainingSeries
from .plan import shown, symbol
from .sweep import Sweep

#: More charts than this are not seen at a glance; the table has all runs.
MOST_PANELS = 60

_QUANTITY = "relative_error"


def write_sweep_report(sweep: Sweep) -> Path:
    """Writes the page of a sweep into its folder; returns it."""
    from altair.utils.schemapi import debug_mode  # takes a second to import

    path = sweep.folder / PAGE
    with debug_mode(False):
        write_whole(path, sweep_page(sweep))
    return path


def sweep_page(sweep: Sweep) -> str:
    """The report of a sweep as HTML."""
    told = {name: _Told(run) for name, run in sweep.runs.items()}
    title = f"Sweep {sweep.name}"
    figure = _figure(sweep)
    sections = [_glance(figure), _table(sweep, told), _failures(sweep), _in_python(sweep)]
    panels = {figure.name: figure.panels} if figure.panels else {}
    return framed(title, _header(sweep, title, told), "\n".join(sections), panels)


@dataclass(frozen=True, eq=False)
class _Told:
    """What is told of a run."""

    run: Run

    @cached_property
    def claims(self) -> list[Claim]:
        found = findings(self.run, experiments_of(self.run))
        return [claim for finding in found for claim in finding.claims]

    @cached_property
    def cost(self) -> tuple[int, float]:
        return total_cost(self.run)

    @property
    def known(self) -> TrainingSeries | None:
        """The training whose error is shown: the first."""
        return next(iter(self.run.trainings.values()), None)

    @property
    def finished(self) -> bool:
        trainings = self.run.trainings.values()
        return bool(trainings) and all(known.finished for known in trainings)

    @property
    def status(self) -> str:
        trainings = self.run.trainings.values()
        if not self.finished:
            kept = sum(len(known.steps) for known in trainings)
            return f"not finished: {kept} of {sum(known.total for known in trainings)} records"
        ended = {known.status for known in trainings if known.status != "completed"}
        return "; ".join(sorted(ended)) or "finished"


# --- what is seen at a glance -------------------------------------------------------------------


def _figure(sweep: Sweep) -> Finding:
    """The error of every order in every run, all on one scale."""
    panels = [
        _panel(name, known)
        for name, run in list(sweep.runs.items())[:MOST_PANELS]
        for known in list(run.trainings.values())[:1]
    ]
    drawn = [
        panel for panel in panels if any(drawable(curve, panel).any() for curve in panel.curves)
    ]
    if drawn:
        ends = [window_of(panel).y for panel in drawn]
        shared = (min(low for low, _ in ends), max(high for _, high in ends))
        panels = [replace(panel, y_ends=shared) for panel in panels]
    more = len(sweep.runs) - MOST_PANELS
    return Finding(
        "errors",
        "Errors at a glance",
        "How far every flow is from gradient descent in each run, relative to the length of the "
        "weights; all charts have the same vertical axis."
        + (f" {more:,} more runs are in the table." if more > 0 else ""),
        (),
        tuple(panels),
    )


def _panel(name: str, known: TrainingSeries) -> Panel:
    curves = [
        Curve(flow_name(order), order_role(order), known.times, known.flow(order, _QUANTITY))
        for order in known.training.orders
    ]
    return Panel(name, TIME, "relative error", tuple(curves), y_scale="log")


def _glance(figure: Finding) -> str:
    drawn = (
        figure_html(figure, figure.name, small=True)
        if figure.panels
        else "<p>There are no records yet.</p>"
    )
    return _section(figure.name, figure.title, drawn)


# --- what is said -------------------------------------------------------------------------------


def _header(sweep: Sweep, title: str, told: Mapping[str, _Told]) -> str:
    claims = [claim for one in told.values() for claim in one.claims]
    done = sum(one.finished for one in told.values())
    evaluations = sum(one.cost[0] for one in told.values())
    seconds = sum((one.cost[1] for one in told.values()), 0.0)
    *others, final = map(symbol, sweep.fields)
    fields = f"{', '.join(others)} and {final}" if others else final
    count = len(sweep.swept)
    warnings = [
        f'<p class="warning" role="note"><strong>Note:</strong> {text}</p>'
        for text, told_so in (
            (
                f'failed: {len(sweep.failed)} of {count} runs, <a href="#failed">and why</a>',
                bool(sweep.failed),
            ),
            (
                f"not finished: {count - done - len(sweep.failed)} of {count} runs; to go on: "
                f"<code>{escape(sweep.command)}</code>",
                done + len(sweep.failed) < count,
            ),
        )
        if told_so
    ]
    return "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            f'<p class="subtitle">{count:,} runs over {escape(fields)}: {evaluations:,} gradient '
            f"evaluations in {duration(seconds)} of work</p>",
            f'<p class="outcome">{done:,} of {count:,} runs are finished; '
            f"{sum(claim.holds for claim in claims):,} of {len(claims):,} claims hold.</p>",
            *warnings,
        ]
    )


def _table(sweep: Sweep, told: Mapping[str, _Told]) -> str:
    """A row for every run: its settings, how it ended, its errors, and the way to its report."""
    orders = sorted(
        {order for one in told.values() if one.known for order in one.known.training.orders}
    )
    header = "".join(
        f'<th scope="col"{kind}>{escape(text)}</th>'
        for text, kind in (
            *((symbol(field), _NUMBER) for field in sweep.fields),
            ("status", ""),
            ("report", ""),
            ("claims that hold", _NUMBER),
            *((flow_name(order), _NUMBER) for order in orders),
            ("gradients", _NUMBER),
            ("time", _NUMBER),
        )
    )
    rows = [_row(sweep, name, told.get(name), orders) for name in sweep.swept]
    caption = (
        "Every run, in the order of the file. Of each flow, the relative error at the last record."
    )
    body = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table '
        f'class="data"><caption>{caption}</caption><thead><tr>{header}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
    return _section("runs", "Runs", body)


_NUMBER = ' class="number"'


def _row(sweep: Sweep, name: str, told: _Told | None, orders: Sequence[int]) -> str:
    settings = [
        # Of a run that is not there, only what is swept is known.
        _cell("" if told is None and field not in sweep.swept[name] else shown(value))
        for field, value in ((field, sweep.value(name, field)) for field in sweep.fields)
    ]
    if told is None:
        status = '<span class="fails">failed</span>' if name in sweep.failed else "waiting"
        others = [f"<td>{status}</td><td></td>", *[_cell("")] * (len(orders) + 3)]
        return f"<tr>{''.join(settings + others)}</tr>"
    known, claims = told.known, told.claims
    errors = [
        scientific(last(known.flow(order, _QUANTITY)))
        if known is not None and order in known.training.orders and len(known.steps)
        else ""
        for order in orders
    ]
    evaluations, seconds = told.cost
    held = f"{sum(claim.holds for claim in claims)} of {len(claims)}" if claims else ""
    cells = [
        f"<td>{escape(told.status)}</td><td>{_link(told.run, name)}</td>",
        *map(_cell, (held, *errors, f"{evaluations:,}", duration(seconds))),
    ]
    return f"<tr>{''.join(settings + cells)}</tr>"


def _cell(text: str) -> str:
    return f"<td{_NUMBER}>{escape(text)}</td>"


def _link(run: Run, name: str) -> str:
    if not (run.folder / PAGE).is_file():
        return ""
    address = f"../{quote(run.folder.name)}/{PAGE}"
    return f'<a href="{address}" aria-label="Report of {escape(name)}">report</a>'


def _failures(sweep: Sweep) -> str:
    if not sweep.failed:
        return ""
    reasons = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(reason)}</dd>" for name, reason in sweep.failed.items()
    )
    return _section("failed", "What failed, and why", f'<dl class="reasons">{reasons}</dl>')


def _in_python(sweep: Sweep) -> str:
    read = f'cf.open_sweep("{sweep.folder}").to_xarray()'
    body = (
        "<p>All series as one dataset over (run, training, process, record), with what is swept "
        f'as coordinates:</p><pre tabindex="0">{escape(read)}</pre>'
        f'<p>The same command goes on with what is not finished:</p><pre tabindex="0">'
        f"{escape(sweep.command)}</pre>"
    )
    return _section("python", "In Python", body)


def _section(name: str, title: str, body: str) -> str:
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">'
        f"{escape(title)}</h2>{body}</section>"
    )
