"""The page in headless Chromium: it is drawn without errors, and answers to hands, keys and media.

`make test-browser` runs these; they need Debian's `chromium` and `chromium-driver`.
"""

import base64
import json

import pytest

import findings
from counterflow.report.page import write_page

pytestmark = pytest.mark.browser
selenium = pytest.importorskip("selenium", reason="needs selenium: run `make test-browser`")

from selenium.webdriver import ActionChains, Keys  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

from chromium import (  # noqa: E402
    assert_fits,
    contrast,
    drawn_page,
    luminance,
    media,
    resize,
    until,
)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(path, findings.report())
    return path.as_uri()


@pytest.fixture
def page(chromium, address):
    return drawn_page(chromium, address)


def lines(chromium, figure="figure-figure2"):
    """How many curves of a figure are drawn, those of the background aside."""
    return chromium.execute_script(
        "return [...document.querySelectorAll(`#${arguments[0]} .chart svg .mark-line path`)]"
        ".filter((path) => path.getAttribute('d') && path.getTotalLength() > 0).length",
        figure,
    )


def ends(chromium, figure, channel="x"):
    return chromium.execute_script(
        "const {view} = document.querySelector(`#${arguments[0]} .chart`);"
        "return view.scale(arguments[1]).domain()",
        figure,
        channel,
    )


def curve_button(chromium, figure, curve):
    return chromium.find_element(By.CSS_SELECTOR, f'#{figure} button[data-curve="{curve}"]')


def chart(chromium, figure):
    place = chromium.find_element(By.CSS_SELECTOR, f"#{figure} .chart")
    chromium.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", place
    )
    return place


# --- it is drawn ----------------------------------------------------------------------------


def test_it_opens_without_a_word_on_the_console(page):
    assert page.get_log("browser") == []


def test_nothing_is_asked_of_the_network(page):
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}
    assert len([url for url in asked if url.startswith("file")]) == 1


def test_a_script_that_was_smuggled_in_would_not_run(page):
    page.execute_script(
        "const script = document.createElement('script'); script.textContent = 'window.bad = 1';"
        "document.body.append(script)"
    )
    assert page.execute_script("return window.bad") is None
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


def test_every_panel_is_drawn(page):
    shown = [finding for finding in findings.all_findings() if finding.panels]
    for finding in shown:
        boxes = page.execute_script(
            "return [...document.querySelectorAll(`#figure-${arguments[0]} .chart`)].map((place) =>"
            "[place.querySelector('svg').getBoundingClientRect().width,"
            " place.clientWidth, place.querySelectorAll('.role-axis-label text').length,"
            " place.querySelectorAll('.mark-line path[d]').length])",
            finding.name,
        )
        assert len(boxes) == len(finding.panels)
        for (width, room, labels, paths), panel in zip(boxes, finding.panels, strict=True):
            assert 0.9 * room <= width <= room + 1
            assert labels >= 4
            assert paths >= 1 or panel.title == "nothing to draw"
    assert lines(page) == 15
    marks = "return document.querySelectorAll('#figure-sketch .mark-symbol path').length"
    assert page.execute_script(marks) == 19
    bands = "return document.querySelectorAll('#figure-orders .mark-area path').length"
    assert page.execute_script(bands) == 5


def test_a_plane_is_drawn_to_scale_at_every_width(page):
    for width in (1280, 390, 700):
        resize(page, width)
        until(
            page,
            "const place = document.querySelector('#figure-sketch .chart');"
            "return Math.abs(place.querySelector('svg').clientWidth - place.clientWidth) < 2",
        )
        lengths = page.execute_script(
            "const view = document.querySelector('#figure-sketch .chart').view;"
            "return ['x', 'y'].map((axis) => Math.abs(view.scale(axis)(1) - view.scale(axis)(0)))"
        )
        assert lengths[0] == pytest.approx(lengths[1], rel=1e-3)


# --- it answers -----------------------------------------------------------------------------


def test_a_button_hides_and_shows_its_curve_in_every_panel(page):
    button = curve_button(page, "figure-figure2", "propagated prediction")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    until(
        page, "return document.querySelectorAll('#figure-figure2 .mark-line path[d]').length < 15"
    )
    assert lines(page) == 12
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    until(
        page, "return document.querySelectorAll('#figure-figure2 .mark-line path[d]').length > 12"
    )
    assert lines(page) == 15


def test_keys_alone_toggle_and_zoom(page):
    first = curve_button(page, "figure-figure2", "measured")
    second = curve_button(page, "figure-figure2", "local prediction (paper)")
    page.execute_script("arguments[0].focus()", first)
    ActionChains(page).send_keys(Keys.TAB).perform()
    assert page.switch_to.active_element == second
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.execute_script(outline) == "solid"
    ActionChains(page).send_keys(Keys.SPACE).perform()
    assert second.get_attribute("aria-pressed") == "false"
    until(
        page, "return document.querySelectorAll('#figure-figure2 .mark-line path[d]').length < 15"
    )
    assert lines(page) == 12

    before = ends(page, "figure-figure2")
    page.execute_script("arguments[0].focus()", chart(page, "figure-figure2"))
    ActionChains(page).send_keys("+", Keys.ARROW_RIGHT).perform()
    until(page, "return document.querySelector('#figure-figure2 .chart.zoomed') !== null")
    after = ends(page, "figure-figure2")
    assert after[1] - after[0] == pytest.approx(0.8 * (before[1] - before[0]))
    assert after[0] > before[0]
    ActionChains(page).send_keys("0").perform()
    until(page, "return document.querySelector('#figure-figure2 .chart.zoomed') === null")
    assert ends(page, "figure-figure2") == pytest.approx(before)


def test_every_control_can_be_reached_and_has_a_name(page):
    unnamed = page.execute_script(
        "return [...document.querySelectorAll('button, a[href], [tabindex=\"0\"]')].filter((one) =>"
        "one.tabIndex < 0 || !(one.textContent.trim() || one.getAttribute('aria-label'))).length"
    )
    assert unnamed == 0


def test_values_appear_under_the_pointer(page):
    place = chart(page, "figure-orders")
    target = page.execute_script(
        "const place = arguments[0]; const view = place.view; const pad = view.padding();"
        "const box = place.querySelector('svg').getBoundingClientRect();"
        "return [box.left + view.origin()[0] + pad.left + view.scale('x')(0.01),"
        " box.top + view.origin()[1] + pad.top + view.scale('y')(3e-4)]",
        place,
    )
    pointer(page, "mouseMoved", target[0] + 3, target[1] - 3)
    until(page, "return !document.querySelector('#figure-orders .tip').hidden")
    told = page.find_element(By.CSS_SELECTOR, "#figure-orders .tip").text.splitlines()
    assert told == [
        "γ = 1",
        "learning rate η: 0.01",
        "error at t = 10: 0.0003",
        "from 0.00012 to 0.00075",
    ]
    curve_button(page, "figure-orders", "γ = 1").click()
    pointer(page, "mouseMoved", *target)
    assert "γ = 1" not in page.find_element(By.CSS_SELECTOR, "#figure-orders .tip").text


def pointer(page, kind, x, y, **options):
    page.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **options})


def test_zoom_drag_and_reset(page):
    before = ends(page, "figure-orders")
    box = page.execute_script(
        "const {left, top, width, height} = arguments[0].getBoundingClientRect();"
        "return [left + width / 2, top + height / 2]",
        chart(page, "figure-orders"),
    )
    page.find_element(By.CSS_SELECTOR, '#figure-orders [data-zoom="in"]').click()
    zoomed = ends(page, "figure-orders")
    assert before[0] < zoomed[0] < zoomed[1] < before[1]
    held = {"button": "left", "buttons": 1, "clickCount": 1}
    pointer(page, "mousePressed", *box, **held)
    pointer(page, "mouseMoved", box[0] + 40, box[1], **held)
    pointer(page, "mouseMoved", box[0] + 80, box[1], **held)
    pointer(page, "mouseReleased", box[0] + 80, box[1], button="left", clickCount=1)
    dragged = ends(page, "figure-orders")
    assert dragged[0] < zoomed[0]
    assert dragged[1] / dragged[0] == pytest.approx(zoomed[1] / zoomed[0], rel=1e-6)
    page.find_element(By.CSS_SELECTOR, '#figure-orders [data-zoom="reset"]').click()
    assert ends(page, "figure-orders") == pytest.approx(before)
    # A wheel scrolls the page, and zooms only with Ctrl.
    pointer(page, "mouseWheel", *box, deltaX=0, deltaY=-100)
    assert ends(page, "figure-orders") == pytest.approx(before)
    chart(page, "figure-orders")
    pointer(page, "mouseWheel", *box, deltaX=0, deltaY=-100, modifiers=2)
    until(page, "return document.querySelector('#figure-orders .chart.zoomed') !== null")
    assert ends(page, "figure-orders")[0] > before[0]
    assert page.get_log("browser") == []


# --- it suits ------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_it_does_not_scroll_sideways(page, width):
    assert_fits(page, width)


COLOURS = """
const style = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
return {
  page: style("body", "backgroundColor"), text: style("body", "color"),
  muted: style(".measured", "color"), holds: style(".holds", "color"),
  fails: style(".fails", "color"), link: style("section a", "color"),
  labels: style("#figure-figure2 .role-axis-label text", "fill"),
  curves: [...document.querySelectorAll("#figure-figure2 .mark-line path")]
    .map((path) => getComputedStyle(path).stroke),
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_in_both_schemes(page, scheme):
    media(page, scheme=scheme)
    colours = page.execute_script(COLOURS)
    ground = colours.pop("page")
    assert (luminance(ground) < 0.05) == (scheme == "dark")
    curves = colours.pop("curves")
    assert len(set(curves)) == 5
    assert min(contrast(colour, ground) for colour in curves) >= 3
    pale = [name for name, colour in colours.items() if contrast(colour, ground) < 4.5]
    assert pale == []


def test_it_prints_in_black_on_white_with_every_figure(page):
    media(page, scheme="dark", medium="print")
    colours = page.execute_script(COLOURS)
    assert luminance(colours["page"]) > 0.95
    assert luminance(colours["labels"]) < 0.05
    printed = page.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    assert page.get_log("browser") == []


def test_the_figures_values_and_the_citation_can_be_taken_away(page):
    page.execute_script(
        "window.saved = []; URL.createObjectURL = (blob) => { saved.push(blob); return '#'; };"
        "HTMLAnchorElement.prototype.click = function () { saved.push(this.download); }"
    )
    page.find_element(By.CSS_SELECTOR, '[data-save="sketch"]').click()
    name, text = page.execute_async_script(
        "const done = arguments[0]; saved[0].text().then((text) => done([saved[1], text]))"
    )
    assert name == "sketch.csv"
    assert text.startswith('"panel","curve","x","y","low","high"\r\n"two parameters","level",')
    copy = page.find_element(By.CSS_SELECTOR, '[data-copy="bibtex"]')
    copy.click()
    until(page, "return arguments[0].textContent !== 'Copy'", copy)
