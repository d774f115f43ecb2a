"""The report: one page of HTML that needs nothing else, and every figure as a file of its own."""

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..experiments.finding import Claim, Finding, Panel, Table
from .chart import figure, looks_of
from .frame import framed, variable, write_whole
from .style import Look


@dataclass(frozen=True, eq=False)
class Report:
    """What a page tells, in the order in which it tells it.

    Attributes:
        title: The heading.
        subtitle: A line below it.
        findings: What was found; the summary of their claims and verdicts comes first.
        settings: What was run, as names and values.
        cost: What it cost, a row for every part.
        cost_note: What to compare the cost with.
        citation: How to cite, as BibTeX.
        summary: Paragraphs above the summary of claims.
        warnings: What the reader must know before all else, as that a run is not finished.
    """

    title: str
    subtitle: str
    findings: tuple[Finding, ...]
    settings: tuple[tuple[str, str], ...]
    cost: Table
    cost_note: str
    citation: str
    summary: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def write_page(path: Path, report: Report) -> None:
    """Writes the report as one file of HTML; it appears under its name only when it is whole.

    Args:
        path: Where to; its folder is made.
        report: What the page tells.
    """
    write_whole(path, page(report))


def write_figures(folder: Path, findings: tuple[Finding, ...]) -> list[Path]:
    """Writes every finding with panels as `NAME.png` and `NAME.pdf`; returns the files.

    Args:
        folder: Where to; it is made.
        findings: What was found.
    """
    import vl_convert  # starts a JavaScript engine

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for finding, name in zip(findings, _identifiers(findings), strict=True):
        if not finding.panels:
            continue
        # Drawn once, written twice.
        drawing = vl_convert.vegalite_to_svg(figure(finding).to_dict(validate=False))
        png, pdf = vl_convert.svg_to_png(drawing, scale=2), vl_convert.svg_to_pdf(drawing)
        for suffix, content in (("png", png), ("pdf", pdf)):
            aside = folder / f"{name}.{suffix}.part"
            aside.write_bytes(content)
            written.append(aside.replace(folder / f"{name}.{suffix}"))
    return written


def page(report: Report) -> str:
    """The report as HTML."""
    names = _identifiers(report.findings)
    sections = [_section(*pair) for pair in zip(report.findings, names, strict=True)]
    return framed(
        report.title,
        _header(report),
        "\n".join([_summary(report, names), *sections, _appendix(report)]),
        {
            name: finding.panels
            for finding, name in zip(report.findings, names, strict=True)
            if finding.panels
        },
    )


# --- what is said ---------------------------------------------------------------------------


def _header(report: Report) -> str:
    holding = sum(finding.holds for finding in report.findings)
    claims = [claim for finding in report.findings for claim in finding.claims]
    outcome = (
        f"{holding} of {len(report.findings)} experiments hold, "
        f"{sum(claim.holds for claim in claims)} of {len(claims)} claims."
    )
    warnings = [
        f'<p class="warning" role="note"><strong>Note:</strong> {escape(text)}</p>'
        for text in report.warnings
    ]
    return "\n".join(
        [
            f"<h1>{escape(report.title)}</h1>",
            f'<p class="subtitle">{escape(report.subtitle)}</p>',
            f'<p class="outcome">{outcome}</p>',
            *warnings,
        ]
    )


def _summary(report: Report, names: list[str]) -> str:
    """The claims of every experiment with their verdicts, each linked to its section."""
    bodies = []
    for finding, name in zip(report.findings, names, strict=True):
        link = (
            f'<th scope="rowgroup" rowspan="{max(1, len(finding.claims))}">'
            f'<a href="#{name}">{escape(finding.title)}</a></th>'
        )
        rows = [
            f'<td>{escape(claim.text)}</td><td class="figures">{escape(claim.figures)}</td>'
            f"<td>{_verdict(claim)}</td>"
            for claim in finding.claims
        ] or ['<td colspan="3">nothing is claimed</td>']
        bodies.append(f"<tbody><tr>{link}{'</tr><tr>'.join(rows)}</tr></tbody>")
    header = "".join(
        f'<th scope="col">{text}</th>' for text in ("experiment", "claim", "measured", "verdict")
    )
    return (
        '<section id="summary" aria-labelledby="summary-title">'
        '<h2 id="summary-title">Claims and verdicts</h2>'
        + "".join(f"<p>{escape(text)}</p>" for text in report.summary)
        + '<table class="summary"><caption>What every experiment claims, and whether it holds.'
        f"</caption><thead><tr>{header}</tr></thead>{''.join(bodies)}</table>"
        '<p class="hint">Figures: press a name to hide its curve; point at a curve for its values; '
        "drag to move, Ctrl + scroll or the buttons to zoom, double-click to start over. With "
        "keys: arrows move, + and − zoom, 0 starts over.</p></section>"
    )


def _verdict(claim: Claim) -> str:
    if claim.holds:
        return '<span class="holds"><span aria-hidden="true">✓ </span>holds</span>'
    return '<span class="fails"><span aria-hidden="true">✗ </span>fails</span>'


def _section(finding: Finding, name: str) -> str:
    claims = "".join(
        f'<li>{_verdict(claim)} {escape(claim.text)} <span class="measured">{escape(claim.figures)}'
        "</span></li>"
        for claim in finding.claims
    )
    caption = escape(finding.caption)
    table = _table(finding.table, f"{finding.title}.") if finding.table is not None else ""
    return "\n".join(
        [
            f'<section id="{name}" aria-labelledby="{name}-title">',
            f'<p class="name"><code>{escape(finding.name)}</code>'
            '<span class="up"> · <a href="#summary">all claims</a></span></p>',
            f'<h2 id="{name}-title">{escape(finding.title)}</h2>',
            figure_html(finding, name) if finding.panels else f"<p>{caption}</p>",
            f'<ul class="claims">{claims}</ul>' if claims else "",
            table,
            "</section>",
        ]
    )


def figure_html(finding: Finding, name: str, small: bool = False) -> str:
    """A figure: a button for every curve, tools, a place for every panel, and the caption.

    Args:
        finding: What was found, with panels.
        name: What it is called in the page.
        small: Whether its panels are many and small, to be compared at a glance.
    """
    buttons = [
        f'<button type="button" aria-pressed="true" data-curve="{escape(curve)}">'
        f"{''.join(map(_swatch, looks))}{escape(curve)}</button>"
        for curve, looks in looks_of(finding.panels).items()
    ]
    tools = [
        '<button type="button" data-zoom="out" aria-label="Zoom out">−</button>',
        '<button type="button" data-zoom="in" aria-label="Zoom in">+</button>',
        '<button type="button" data-zoom="reset">Reset zoom</button>',
        f'<button type="button" data-save="{name}" aria-label="Save the drawn values as CSV">CSV'
        "</button>",
    ]
    kind = "small" if small else "single" if len(finding.panels) == 1 else None
    styled = "" if kind is None else f' class="{kind}"'
    return "\n".join(
        [
            f'<figure id="figure-{name}"{styled} aria-labelledby="{name}-title" '
            f'aria-describedby="{name}-caption">',
            f'<div class="bar" role="group" aria-label="Curves and tools">{"".join(buttons)}'
            f'<span class="tools">{"".join(tools)}</span></div>',
            '<div class="panels">',
            *map(_place, finding.panels),
            "</div>",
            "<noscript><p>The figures are drawn by JavaScript, which is off here.</p></noscript>",
            f'<figcaption id="{name}-caption">{escape(finding.caption)}</figcaption>',
            "</figure>",
        ]
    )


def _place(panel: Panel) -> str:
    """Where a panel will be drawn, and what it shows for those who do not see it."""
    curves = ", ".join(looks_of((panel,)))
    drawn = f"Curves: {curves}." if curves else "There is nothing to draw."
    label = f"{panel.title}: {panel.y_title} against {panel.x_title}. {drawn}"
    note = "" if curves else '<p class="hint">No value here can be drawn.</p>'
    return (
        f'<div class="panel"><h3>{escape(panel.title)}</h3>{note}'
        f'<div class="chart" role="img" tabindex="0" aria-label="{escape(label)}"></div></div>'
    )


def _swatch(drawn: Look) -> str:
    dash = "" if drawn.dash == (1, 0) else f' stroke-dasharray="{" ".join(map(str, drawn.dash))}"'
    colour = variable(drawn.colour)
    mark = f'<circle cx="13" cy="5" r="3.3" fill="{colour}"/>' if drawn.points else ""
    return (
        '<svg width="26" height="10" aria-hidden="true"><line x1="0" x2="26" y1="5" y2="5" '
        f'stroke="{colour}" stroke-width="{drawn.width}"{dash}/>{mark}</svg>'
    )


def _appendix(report: Report) -> str:
    settings = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in report.settings
    )
    return "\n".join(
        [
            '<section id="settings" aria-labelledby="settings-title">',
            '<h2 id="settings-title">Settings</h2>',
            '<table class="pairs"><caption>What was run.</caption><thead hidden><tr>'
            '<th scope="col">setting</th><th scope="col">value</th></tr></thead>'
            f"<tbody>{settings}</tbody></table>",
            "</section>",
            '<section id="cost" aria-labelledby="cost-title"><h2 id="cost-title">Cost</h2>',
            f"<p>{escape(report.cost_note)}</p>",
            _table(report.cost, "What each part cost."),
            "</section>",
            '<section id="cite" aria-labelledby="cite-title"><h2 id="cite-title">How to cite</h2>',
            f'<pre id="bibtex" tabindex="0">{escape(report.citation)}</pre>',
            '<p class="copy"><button type="button" data-copy="bibtex">Copy</button></p>',
            "</section>",
        ]
    )


def _table(table: Table, caption: str) -> str:
    """A table in a box of its own that scrolls; columns of numbers are flush right."""
    columns = list(zip(*table.rows, strict=True)) if table.rows else [()] * len(table.header)
    kinds = [
        ' class="number"' if column and all(map(_is_number, column)) else "" for column in columns
    ]
    header = "".join(
        f'<th scope="col"{kind}>{escape(text)}</th>'
        for text, kind in zip(table.header, kinds, strict=True)
    )
    body = ""
    for row in table.rows:
        (first, kind), *others = zip(row, kinds, strict=True)
        cells = "".join(f"<td{kind}>{escape(text)}</td>" for text, kind in others)
        body += f'<tr><th scope="row"{kind}>{escape(first)}</th>{cells}</tr>'
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f'<table class="data"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _is_number(text: str) -> bool:
    """Whether a cell is a number, perhaps with a unit, or says that there is none."""
    return re.match(r"[-−+±≈<>]?\s*[\d.]", text) is not None or text in ("", "–", "—", "-")


def _identifiers(findings: tuple[Finding, ...]) -> list[str]:
    """A name for every finding that can be part of an address or a file name, each once."""
    names: list[str] = []
    for finding in findings:
        name = re.sub(r"[^\w-]+", "-", finding.name).strip("-") or "finding"
        taken = sum(
            re.fullmatch(rf"{re.escape(name)}(~\d+)?", other) is not None for other in names
        )
        names.append(f"{name}~{taken + 1}" if taken else name)
    return names
