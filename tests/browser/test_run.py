"""A run of the whole paper, tiny, from the command line to its report in headless Chromium."""

import re
from importlib.metadata import version

import numpy as np
import pytest

from command_line import TINY, reproduce

pytestmark = pytest.mark.browser
pytest.importorskip("selenium", reason="needs selenium: run `make test-browser`")

from selenium.webdriver.common.by import By  # noqa: E402

from chromium import assert_fits, contrast, drawn_page, luminance, media  # noqa: E402
from counterflow.experiments.carry_out import findings  # noqa: E402
from counterflow.experiments.registry import EXPERIMENTS, experiments_of  # noqa: E402
from counterflow.report.chart import looks_of  # noqa: E402
from counterflow.report.cost import cost_table  # noqa: E402
from counterflow.report.lines import drawable  # noqa: E402
from counterflow.report.style import look  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """All experiments, with one order more than the other tests take, for its colours."""
    return reproduce(tmp_path_factory.mktemp("runs"), *TINY, "--orders", "0", "1", "2")


@pytest.fixture(scope="module")
def found(run):
    return {finding.name: finding for finding in findings(run, experiments_of(run))}


@pytest.fixture
def page(chromium, run):
    return drawn_page(chromium, (run.folder / "report.html").as_uri())


def test_it_opens_without_a_word_on_the_console(page, found):
    assert page.get_log("browser") == []
    assert list(found) == ["symmetries", *EXPERIMENTS]
    sections = [one.get_attribute("id") for one in page.find_elements(By.TAG_NAME, "section")]
    assert sections == ["summary", *found, "settings", "cost", "cite"]


def test_every_figure_is_drawn(page, run, found):
    for name, finding in found.items():
        panels = page.execute_script(
            "return [...document.querySelectorAll(`#figure-${arguments[0]} .chart`)].map((place) =>"
            "[place.querySelector('svg').getBoundingClientRect().width, place.clientWidth,"
            " place.querySelectorAll('.role-axis-label text').length,"
            " [...place.querySelectorAll('.mark-line path')]"
            "   .filter((path) => path.getAttribute('d') && path.getTotalLength() > 0).length])",
            name,
        )
        assert len(panels) == len(finding.panels), name
        for (width, room, labels, curves), panel in zip(panels, finding.panels, strict=True):
            assert 0.9 * room <= width <= room + 1, (name, panel.title)
            assert labels >= 3, (name, panel.title)
            # On a logarithmic axis, a gap that vanishes but for rounding has no line to draw.
            lines = [(curve.name, drawable(curve, panel)) for curve in panel.curves]
            wanted = {name for name, where in lines if np.any(where[1:] & where[:-1])}
            assert curves >= len(wanted) >= 1, (name, panel.title)
        for suffix in ("png", "pdf"):
            picture = run.folder / "figures" / f"{name}.{suffix}"
            assert picture.exists() == bool(finding.panels)


# Presses every curve's button of a figure twice, and tells how many lines there were in between.
PRESSED = """
const [name, done] = arguments;
const figure = document.getElementById(`figure-${name}`);
const lines = () => [...figure.querySelectorAll(".mark-line path")]
  .filter((path) => path.getAttribute("d") && path.getTotalLength() > 0).length;
const press = async (button) => {
  button.click();
  for (const place of figure.querySelectorAll(".chart")) await place.view.runAsync();
  return [button.getAttribute("aria-pressed"), lines()];
};
(async () => {
  const seen = {};
  for (const button of figure.querySelectorAll("button[data-curve]")) {
    seen[button.dataset.curve] = [await press(button), await press(button)];
  }
  done([lines(), seen]);
})();
"""


def test_every_toggle_hides_and_shows_its_curves(page, found):
    for name, finding in found.items():
        if not finding.panels:
            assert page.find_elements(By.CSS_SELECTOR, f"#figure-{name}") == []
            continue
        shown, seen = page.execute_async_script(PRESSED, name)
        assert set(seen) == set(looks_of(finding.panels))
        for curve, (off, on) in seen.items():
            assert (off[0], on) == ("false", ["true", shown]), (name, curve)
            # A curve of a single point has no line to hide.
            where = [
                drawable(one, panel)
                for panel in finding.panels
                for one in panel.curves
                if one.name == curve
            ]
            has_line = any(np.any(one[1:] & one[:-1]) for one in where)
            assert (off[1] < shown) == has_line, (name, curve)
    assert page.get_log("browser") == []


@pytest.mark.parametrize("width", [320, 390])
def test_it_fits_a_phone(page, width):
    assert_fits(page, width)
    assert page.get_log("browser") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_curve_stands_out_in_both_schemes(page, found, scheme):
    media(page, scheme=scheme)
    ground, *drawn = page.execute_script(
        "return [getComputedStyle(document.body).backgroundColor, ...new Set("
        "[...document.querySelectorAll('.mark-line path')].map((p) => getComputedStyle(p).stroke))]"
    )
    assert (luminance(ground) < 0.05) == (scheme == "dark")
    curves = [curve for one in found.values() for panel in one.panels for curve in panel.curves]
    looks = [look(curve.role, curve.variant) for curve in curves]
    colours = {one.colour if scheme == "light" else one.dark for one in looks}
    behind = look("background").colour if scheme == "light" else look("background").dark
    assert set(drawn) == {_css(colour) for colour in colours}
    for colour in drawn:
        assert contrast(colour, ground) >= 3 or colour == _css(behind), colour


def _css(colour):
    return f"rgb({', '.join(map(str, bytes.fromhex(colour[1:])))})"


def test_what_it_cost_and_how_to_cite_it_are_there(page, run):
    def texts(selector):
        return [one.text for one in page.find_elements(By.CSS_SELECTOR, selector)]

    table = cost_table(run)
    assert texts("#cost thead th") == list(table.header)
    assert {"gradient flow", "EoM (γ = 1)", "γ = 2"} < set(table.header)
    rows = page.find_elements(By.CSS_SELECTOR, "#cost tbody tr")
    cells = [[one.text for one in row.find_elements(By.CSS_SELECTOR, "th, td")] for row in rows]
    assert cells == [list(row) for row in table.rows]
    (note,) = texts("#cost > p")
    assert "5,000,000 Euler steps, to t = 50" in note
    (citation,) = texts("#cite pre")
    assert "Taiki Miyagawa" in citation
    assert f"version = {{{version('counterflow')}}}" in citation


def test_every_verdict_and_setting_is_there(page, run, found):
    text = page.find_element(By.TAG_NAME, "main").text
    for finding in found.values():
        assert finding.title in text
        for claim in finding.claims:
            assert re.sub(r"\s+", " ", claim.text) in re.sub(r"\s+", " ", text), claim.text
    source = page.page_source
    assert "not finished" not in source
    assert run.sittings[-1]["command"] in source
