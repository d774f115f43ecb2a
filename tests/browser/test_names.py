"""Names that would be scripts: a model, its params and its folder, shown as what they are."""

import csv

import pytest

from counterflow.cli import main
from counterflow.runs.run import open_run

pytestmark = pytest.mark.browser
pytest.importorskip("selenium", reason="needs selenium: run `make test-browser`")

from selenium.webdriver.common.by import By  # noqa: E402

from chromium import assert_harmless, drawn_page  # noqa: E402

FILE = "<img src=x onerror=window.bad=1>&amp;'\"`${alert(1)}.py"
ATTRIBUTE = "<svg onload=window.bad=2>"
FIRST = "</script><script>window.bad=3</script>, a comma,\n\x1b[31ma line"
SECOND = "'\"><iframe srcdoc='<script>parent.bad=4</script>'></iframe>{{7*7}}${bad}"
FOLDER = "<b onclick=window.bad=5>runs"
MODEL = f"""
import jax.numpy as jnp

import counterflow as cf

FIRST, SECOND = {FIRST!r}, {SECOND!r}


def loss(params, data):
    inputs, targets = data
    return jnp.mean((inputs @ params[FIRST] @ params[SECOND] - targets) ** 2)


def problem():
    inputs = jnp.sin(jnp.arange(12.0)).reshape(4, 3)
    params = {{
        FIRST: jnp.cos(jnp.arange(6.0)).reshape(3, 2),
        SECOND: jnp.sin(jnp.arange(2.0) + 1).reshape(2, 1),
        "<u>unused</u>\\x1b[2J": jnp.ones(2),
    }}
    return cf.Problem(loss, (inputs, jnp.ones((4, 1))), weight_decay=0.01), params


globals()[{ATTRIBUTE!r}] = problem
"""
OPTIONS = "--learning-rate 0.1 --steps 6 --records 2 --orders 0 1".split()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a run, and what the commands printed."""
    place = tmp_path_factory.mktemp("names")
    (place / FILE).write_text(MODEL, encoding="utf-8")
    folder = place / FOLDER
    assert main(["run", f"{place / FILE}:{ATTRIBUTE}", *OPTIONS, "--folder", str(folder)]) == 0
    (run,) = folder.iterdir()
    return run


@pytest.fixture
def page(chromium, made):
    return drawn_page(chromium, (made / "report.html").as_uri())


def test_no_name_is_carried_out(page):
    assert_harmless(page)


def test_names_are_shown_as_they_are(page):
    text = page.execute_script("return document.querySelector('main').textContent")
    assert f"{FILE}:{ATTRIBUTE}" in page.find_element(By.TAG_NAME, "h1").text
    assert "<script>window.bad=3</script>" in text
    assert "<iframe srcdoc=" in text
    assert "<u>unused</u>" in text
    assert FOLDER in text  # in the command that was typed


def test_every_button_works_whatever_its_name(page):
    for button in page.find_elements(By.CSS_SELECTOR, "button[data-curve]"):
        for pressed in ("false", "true"):
            page.execute_script("arguments[0].click()", button)
            assert button.get_attribute("aria-pressed") == pressed
    assert page.execute_script("return window.bad") is None
    assert page.get_log("browser") == []


def test_nothing_that_a_terminal_obeys_is_printed(made, capsys):
    assert main(["report", str(made)]) == 0
    printed = "".join(capsys.readouterr())
    assert "unused" in printed
    assert "\x1b" not in printed
    assert "\\x1b[2J" in printed


def test_names_come_back_from_exported_files(made, tmp_path):
    import xarray

    assert main(["export", str(made), "--folder", str(tmp_path)]) == 0
    names = {name for known in open_run(made).trainings.values() for _, name in known.series}
    assert any("</script>" in name for name in names)
    with (tmp_path / "series.csv").open(encoding="utf-8", newline="") as file:
        assert {row["quantity"] for row in csv.DictReader(file)} == names
    with xarray.open_dataset(tmp_path / "series.nc", engine="scipy") as dataset:
        told = {variable.attrs["long_name"] for variable in dataset.data_vars.values()}
        assert {name for name in names if "charge" in name} <= told
