"""A run of the whole paper, tiny, from the command line to its report in headless Chromium."""

import re

import numpy as np
import pytest

from command_line import TINY, reproduce

pytestmark = pytest.mark.browser
pytest.importorskip("selenium", reason="needs selenium: run `make test-browser`")

from selenium.webdriver.common.by import By  # noqa: E402

from chromium import drawn_page, until  # noqa: E402
from counterflow.experiments.carry_out import findings  # noqa: E402
from counterflow.experiments.registry import EXPERIMENTS, experiments_of  # noqa: E402
from counterflow.report.lines import drawable  # noqa: E402


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


def test_every_toggle_hides_and_shows_its_curves(page, found):
    count = (
        "return [...document.querySelectorAll('#figure-' + arguments[0] + ' .mark-line path')]"
        ".filter((path) => path.getAttribute('d') && path.getTotalLength() > 0).length"
    )
    for name, finding in found.items():
        buttons = page.find_elements(By.CSS_SELECTOR, f"#figure-{name} button[data-curve]")
        assert bool(buttons) == bool(finding.panels), name
        shown = page.execute_script(count, name)
        for button in buttons[:2]:
            for pressed in ("false", "true"):
                page.execute_script("arguments[0].click()", button)
                assert button.get_attribute("aria-pressed") == pressed
                fewer = "<" if pressed == "false" else "==="
                until(page, count.replace("return ", "return (") + f") {fewer} {shown}", name)
    assert page.get_log("browser") == []


def test_every_verdict_and_setting_is_there(page, run, found):
    text = page.find_element(By.TAG_NAME, "main").text
    for finding in found.values():
        assert finding.title in text
        for claim in finding.claims:
            assert re.sub(r"\s+", " ", claim.text) in re.sub(r"\s+", " ", text), claim.text
    source = page.page_source
    assert "not finished" not in source
    assert run.sittings[-1]["command"] in source
