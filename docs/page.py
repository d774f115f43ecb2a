"""What the scripts of the pages share: tables between markers, pictures, progress."""

from pathlib import Path
from typing import Any

import altair

DOCS = Path(__file__).parent
FIGURES, RESULTS = DOCS / "figures", DOCS / "results"


def save(chart: altair.TopLevelMixin, name: str) -> None:
    FIGURES.mkdir(exist_ok=True)
    chart.save(FIGURES / f"{name}.png", scale_factor=2)
    print(f"saved figures/{name}.png", flush=True)


def rows_of(header: str, rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    columns = header.split(" | ")
    lines = [columns, ["--:"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def printed(text: object) -> str:
    return f"```\n{text}\n```"


def with_table(page: str, name: str, table: str) -> str:
    """The page with a table between its markers."""
    start, end = f"<!-- table: {name} -->", f"<!-- end: {name} -->"
    if page.count(start) != 1 or page.count(end) != 1:
        raise ValueError(f"the page must have the markers {start} and {end} once each")
    before, rest = page.split(start)
    return f"{before}{start}\n{table}\n{end}{rest.split(end)[1]}"


def write_table(page: Path, name: str, table: str) -> None:
    text = page.read_text(encoding="utf-8")
    page.write_text(with_table(text, name, table), encoding="utf-8")


def progress(name: str, done: int, total: int) -> None:
    print(f"[{min(done + 1, total)}/{total}] {name}", flush=True)


def result_of(name: str, module: Any, settings: Any) -> Any:
    """The result of an experiment, computed where it is not yet on file, with its verdict said."""
    print(f"--- {name}")
    result = module.run(settings, RESULTS, progress)
    for claim, holds in result.claims.items():
        print(f"{'holds' if holds else 'FAILS'}: {claim}", flush=True)
    return result
