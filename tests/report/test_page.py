"""The page without a browser: what it says, that text cannot break it, and the files of figures."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import findings
from counterflow.experiments.finding import Curve, Finding, Panel, Table
from counterflow.report.page import page, write_figures, write_page


class Parsed(HTMLParser):
    """The elements of a page, the text outside of scripts and styles, and the scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.scripts, self._open = [], "", [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open != "style":
            self.text += data

    def attributes(self, name):
        return [attrs[name] for _, attrs in self.elements if name in attrs]


@pytest.fixture(scope="module")
def text():
    return page(findings.report())


@pytest.fixture(scope="module")
def parsed(text):
    return Parsed(text)


def test_every_finding_is_told(parsed):
    for finding in findings.all_findings():
        assert finding.title in parsed.text
        assert finding.caption in parsed.text
        for claim in finding.claims:
            # once in the summary, once in its section
            assert parsed.text.count(claim.text) >= 2
            assert parsed.text.count(claim.figures) >= 2
        for row in finding.table.rows if finding.table else ():
            assert all(cell in parsed.text for cell in row)
    ids = parsed.attributes("id")
    assert len(ids) == len(set(ids))
    links = [link[1:] for link in parsed.attributes("href") if link.startswith("#")]
    assert set(links) <= set(ids)
    assert {finding.name for finding in findings.all_findings()} <= set(links)


def test_the_summary_comes_first_and_counts(parsed):
    assert "5 of 6 experiments hold, 7 of 8 claims." in parsed.text
    places = [
        parsed.text.index(part)
        for part in ("Claims and verdicts", "figure2", "Settings", "Cost", "How to cite")
    ]
    assert places == sorted(places)
    assert parsed.text.count("✗ fails") == 2
    assert "The run is not finished" in parsed.text
    assert "five million Euler steps" in parsed.text
    assert "@article" in parsed.text


def test_text_cannot_break_the_page(text, parsed):
    assert len(parsed.scripts) == 3
    assert text.count("</script") == text.count("</script>") == 3
    assert "<b>" not in text
    assert "b" not in [tag for tag, _ in parsed.elements]
    assert findings.NASTY in parsed.text
    outside = text.replace("<!doctype html>", "", 1)
    assert "<!--" not in outside
    (spoiled,) = (one for one in figures_of(parsed) if one == "figure-spoiled")
    assert spoiled


def figures_of(parsed):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(parsed.scripts[0], parse_constant=refuse)


def test_every_panel_has_a_place_and_its_lines(parsed):
    figures = figures_of(parsed)
    drawn = [finding for finding in findings.all_findings() if finding.panels]
    assert list(figures) == [f"figure-{finding.name}" for finding in drawn]
    panels = [panel for finding in drawn for panel in finding.panels]
    assert [len(found) for found in figures.values()] == [len(one.panels) for one in drawn]
    places = [attrs for _, attrs in parsed.elements if attrs.get("class") == "chart"]
    assert len(places) == len(panels)
    for place, panel in zip(places, panels, strict=True):
        assert panel.title in place["aria-label"]
        assert place["tabindex"] == "0"
    buttons = [attrs for tag, attrs in parsed.elements if tag == "button"]
    assert all(button["type"] == "button" for button in buttons)
    curves = {button["data-curve"] for button in buttons if "data-curve" in button}
    assert "propagated prediction" in curves
    assert not curves & {"level", "nothing", "empty"}  # nothing of them can be hidden


def test_nothing_is_loaded(text, parsed):
    for name in ("src", "srcset", "action", "data", "poster"):
        assert parsed.attributes(name) == []
    assert all(link.startswith(("#", "data:")) for link in parsed.attributes("href"))
    styles = re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)
    assert len(styles) == 1
    assert "url(" not in styles[0]
    assert "@import" not in styles[0]
    policy = next(attrs["content"] for _, attrs in parsed.elements if "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy


def test_the_page_is_small(text):
    panels = findings.errors_over_time().panels
    dozen = tuple(
        Finding(f"f{number}", "title", "caption", findings.bare().claims, panels[:1])
        for number in range(12)
    )
    size = len(page(findings.report(dozen)).encode())
    assert 900_000 < size < 1_600_000
    assert len(text.encode()) < 1_600_000


def test_it_is_accessible_in_form(text, parsed):
    assert '<html lang="en">' in text
    assert 'name="viewport" content="width=device-width' in text
    tags = [tag for tag, _ in parsed.elements]
    assert tags.count("main") == tags.count("h1") == tags.count("header") == 1
    assert tags.count("caption") == tags.count("table")
    assert all(attrs.get("scope") for tag, attrs in parsed.elements if tag == "th")
    targets = set(parsed.attributes("id"))
    for name in ("aria-labelledby", "aria-describedby"):
        assert set(parsed.attributes(name)) <= targets


def test_it_is_written_whole_and_again(tmp_path):
    path = tmp_path / "new" / "report.html"
    write_page(path, findings.report(()))
    write_page(path, findings.report((findings.bare(),)))
    assert "1 of 1 experiments hold" in path.read_text(encoding="utf-8")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_a_report_of_nothing():
    parsed = Parsed(page(findings.report(())))
    assert "0 of 0 experiments hold" in parsed.text
    assert figures_of(parsed) == {}


def test_names_that_are_no_addresses(tmp_path):
    x = np.arange(3.0)
    panel = Panel("t", "x", "y", (Curve("a", "order 1", x, x),))
    names = ("a b/c", "a b/c", "../..", "η = 0.1")
    several = tuple(Finding(name, "t", "c", (), (panel,)) for name in names)
    files = write_figures(tmp_path, several[:3])
    assert all(file.parent == tmp_path for file in files)
    assert len({file.name for file in files}) == 6
    ids = Parsed(page(findings.report(several))).attributes("id")
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[\w~-]+", one) for one in ids)


def test_tables_without_rows_and_with_numbers():
    table = Table(("name", "value"), (("a", "−1.5e-3"), ("b", "–")))
    finding = Finding("n", "t", "c", (), (), table)
    text = page(findings.report((finding,)))
    assert '<td class="number">−1.5e-3</td>' in text
    assert '<th scope="row">a</th>' in text
    empty = Finding("n", "t", "c", (), (), Table(("name", "value"), ()))
    assert "nothing is claimed" in page(findings.report((empty,)))


def test_every_figure_is_written_without_a_browser(tmp_path):
    shown = (findings.plane(), findings.spoiled(), findings.bare())
    files = write_figures(tmp_path / "figures", shown)
    assert [file.name for file in files] == [
        "sketch.png", "sketch.pdf", "spoiled.png", "spoiled.pdf"
    ]  # fmt: skip
    assert sorted(files) == sorted((tmp_path / "figures").iterdir())
    for file in files:
        start = {".png": b"\x89PNG", ".pdf": b"%PDF"}[file.suffix]
        assert file.read_bytes().startswith(start)
        assert file.stat().st_size > 5_000
