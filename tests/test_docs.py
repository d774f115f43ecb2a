"""The pages quote the committed results, and show code that runs and figures that are there."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import counterflow as cf
from counterflow.experiments.registry import EXPERIMENTS
from page import with_table

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "how_far_can_i_trust_gradient_flow.md"


def load(path):
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script():
    return load(PAGE.with_suffix(".py"))


def stored_results(name):
    return json.loads((DOCS / "results" / f"{name}.json").read_text(encoding="utf-8"))["results"]


def test_every_table_is_that_of_the_committed_results(script):
    page = PAGE.read_text(encoding="utf-8")
    for name, (module, settings, table) in script.TABLES.items():
        rendered = table(module.result_of(settings, stored_results(name)))
        assert with_table(page, name, rendered) == page, name


def test_the_code_shown_runs_when_it_is_copied():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    setting, prediction, comparison, drawing, bound = blocks
    names: dict = {}
    exec(setting, names)
    small = re.sub("steps=500", "steps=10", prediction)
    small += re.sub("steps=500", "steps=10", comparison).replace("(0, 1, 2), restart=100", "(0,)")
    exec(small + drawing, names)
    assert names["prediction"].status == names["comparison"].status == cf.Status.COMPLETED
    compile(bound, "bound", "exec")


def test_every_figure_is_there_and_is_a_picture():
    figures = re.findall(r"\]\((figures/\S+)\)", PAGE.read_text(encoding="utf-8"))
    assert len(figures) == 4
    assert all((DOCS / name).read_bytes().startswith(b"\x89PNG") for name in figures)


def test_the_walk_runs(script):
    prediction, comparison = script.walk(steps=20, orders=(0,))
    assert prediction.status == comparison.status == cf.Status.COMPLETED
    assert repr(prediction).startswith("ErrorPrediction(order 0, η = 0.01; at step 20")
    assert "| prediction 0 |" in script.cost_table(comparison)


# --- the pages on symmetries ------------------------------------------------------------------


@pytest.fixture(scope="module")
def symmetries():
    return load(DOCS / "symmetries.py")


def test_every_table_on_symmetries_is_that_of_the_committed_results(symmetries):
    for name, (module, settings, tables) in symmetries.TABLES.items():
        result = module.result_of(settings, stored_results(name))
        assert result.verdict, (name, result.claims)
        for page, marker, table in tables:
            text = page.read_text(encoding="utf-8")
            assert with_table(text, marker, table(result)) == text, marker


def test_every_family_has_its_figure(symmetries):
    pages = (symmetries.SCALE, symmetries.TRANSLATION, symmetries.RESCALE)
    for page in pages:
        (name,) = re.findall(r"\]\((figures/\S+)\)", page.read_text(encoding="utf-8"))
        assert (DOCS / name).read_bytes().startswith(b"\x89PNG")


def test_the_figures_on_symmetries_can_be_drawn(symmetries):
    results = {
        name: module.result_of(settings, stored_results(name))
        for name, (module, settings, _) in symmetries.TABLES.items()
    }
    charts = symmetries.figures(results)
    assert set(charts) == {"scale", "translation", "rescale"}
    assert all(chart.to_dict() for chart in charts.values())


# --- the page on reproduction -----------------------------------------------------------------


def test_every_table_on_reproduction_is_that_of_the_committed_runs():
    reproduce = load(DOCS / "reproduce.py")
    page = (DOCS / "reproduce.md").read_text(encoding="utf-8")
    paths = sorted((DOCS / "results").glob("reproduce_*.json"))
    assert paths
    for path in paths:
        stored = json.loads(path.read_text(encoding="utf-8"))
        name = reproduce.name_of(stored)
        assert path.stem == f"reproduce_{name}"
        assert stored["finished"]
        assert with_table(page, f"{name}_claims", reproduce.claims_table(stored)) == page
        assert with_table(page, f"{name}_table1", reproduce.decay_table(stored)) == page
        claimed = {claim["experiment"] for claim in stored["claims"]}
        assert claimed == {"symmetries", *EXPERIMENTS}


def test_what_the_page_says_of_failing_claims_is_what_failed():
    stored = json.loads((DOCS / "results" / "reproduce_digits_quick.json").read_text())
    failing = {claim["experiment"] for claim in stored["claims"] if not claim["holds"]}
    said = {"figure2", "figure3", "figure11", "figure12", "equilibrium", "seeds"}
    assert failing == said


def test_the_page_on_monitors_quotes_the_benchmark():
    page = (DOCS / "monitor.md").read_text(encoding="utf-8")
    results = DOCS.parent / "benchmarks" / "results" / "monitor.json"
    (found,) = json.loads(results.read_text(encoding="utf-8"))["results"]
    shares = sorted(p["gradients"] / found["every"] for p in found["everything_at_every_record"])
    for quoted in (
        f"over those of the loop | {100 * found['overhead_in_gradients']:.1f} % |",
        f"over those of the loop | {100 * found['overhead_in_seconds']:.1f} % |",
        f"a call in between | {found['microseconds_in_between']:.1f} µs |",
        f"| at all {found['sharpnesses']} records |",
        f"| at {found['predictions']} of {found['records']} |",
        f"| {100 * shares[1]:.0f} to {100 * shares[2]:.0f} % |",
    ):
        assert quoted in page
    assert found["overhead_in_gradients"] < 0.1
