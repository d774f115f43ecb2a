"""The report of a sweep in headless Chromium: small charts on one scale, at a desk, on a phone."""

from dataclasses import replace

import numpy as np
import pytest

from counterflow.experiments.trainings import middle
from counterflow.runs.configuration import Configuration
from counterflow.runs.run import Run, TrainingSeries
from counterflow.sweeps.page import write_sweep_report
from counterflow.sweeps.sweep import Sweep

pytestmark = pytest.mark.browser
pytest.importorskip("selenium", reason="needs selenium: run `make test-browser`")

from chromium import assert_harmless, drawn_page, resize, until  # noqa: E402

RATES = (0.1, 0.01, 0.001)


def made_up(folder, rate):
    """A run that nobody made, whose errors grow with the learning rate."""
    training = middle(Configuration(learning_rates=(rate,), steps=(200,)))
    training = replace(training, orders=(0, 1))
    times = training.record_steps * rate
    series = {
        (f"flow {order}", "relative_error"): rate ** (order + 1) * times / (1 + times)
        for order in training.orders
    }
    known = TrainingSeries(
        training, training.record_steps, len(times), series, "completed", {}, 3.0
    )
    return Run(folder, Configuration(), {training.name: known}, {}, {}, ())


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    names = {f"η = {rate}": rate for rate in RATES}
    sweep = Sweep(
        folder,
        "made-up",
        "counterflow sweep made-up.toml",
        {name: {"learning_rates": [rate]} for name, rate in names.items()}
        | {"η = -1": {"learning_rates": [-1.0]}},
        {name: made_up(folder / f"run-{rate}", rate) for name, rate in names.items()},
        {"η = -1": "`learning_rates` must be positive, got -1"},
    )
    return write_sweep_report(sweep).as_uri()


@pytest.fixture
def page(chromium, address):
    return drawn_page(chromium, address)


def test_it_opens_without_a_word_on_the_console(page):
    assert page.get_log("browser") == []


def test_every_run_has_a_chart_on_the_same_scale(page):
    ends = page.execute_script(
        "return [...document.querySelectorAll('#figure-errors .chart')].map((place) => "
        "place.view.scale('y').domain())"
    )
    assert len(ends) == len(RATES)
    assert np.ptp(np.array(ends), axis=0).tolist() == [0.0, 0.0]


def test_charts_stand_side_by_side_on_a_desk_and_below_each_other_on_a_phone(page):
    tops = (
        "return new Set([...document.querySelectorAll('#figure-errors .panel')]"
        ".map((panel) => panel.getBoundingClientRect().top)).size"
    )
    assert page.execute_script(tops) == 1
    resize(page, 390)
    until(page, f"return (() => {{ {tops} }})() === {len(RATES)}")
    # Nothing but tables scrolls to the side.
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390


def test_what_failed_is_told(page):
    said = page.execute_script("return document.querySelector('#failed').textContent")
    assert "`learning_rates` must be positive, got -1" in said


def test_no_name_is_carried_out(chromium, tmp_path):
    image, script = "<img src=x onerror=window.bad=1>", "</script><script>window.bad=2</script>"
    frame = "'\"><iframe srcdoc='<script>parent.bad=3</script>'></iframe>${window.bad=4}"
    folder = tmp_path / "<b onclick=window.bad=5>"
    folder.mkdir()
    sweep = Sweep(
        folder,
        image,
        f"counterflow sweep {script}",
        {script: {frame: [image]}, frame: {frame: [script]}},
        {script: made_up(folder / "run", 0.1)},
        {frame: f"ValueError: {image}{script}{frame}"},
    )
    page = drawn_page(chromium, write_sweep_report(sweep).as_uri())
    assert_harmless(page)
    text = page.execute_script("return document.querySelector('main').textContent")
    for name in (image, script, frame):
        assert name in text
