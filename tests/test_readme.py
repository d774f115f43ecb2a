"""The README's table is the committed result of `make figures`, and its claims hold."""

import json
import re
from pathlib import Path

from counterflow.experiments.accuracy_by_order import AccuracyByOrder, Result, Row

ROOT = Path(__file__).parent.parent
STORED = json.loads((ROOT / "docs" / "results" / "accuracy_by_order.json").read_text())


def stored_result():
    rows = [
        Row(**row)
        for method in ("taylor", "orbit")
        for name, row in STORED["results"].items()
        if name.startswith(method)
    ]
    return Result(AccuracyByOrder(), tuple(rows), STORED["results"]["solver error"])


def test_the_committed_result_has_the_default_settings_and_holds():
    settings = AccuracyByOrder()
    for name, value in STORED["configuration"].items():
        assert getattr(settings, name) == (tuple(value) if isinstance(value, list) else value)
    assert stored_result().verdict, stored_result().claims


def test_the_table_of_the_readme_is_the_committed_result():
    rows = re.findall(r"^\| (\d)[^|]*\|([^|]*)\|([^|]*)\|$", (ROOT / "README.md").read_text(), re.M)
    assert len(rows) == 8
    for order, taylor, orbit in rows:
        for method, cell in (("taylor", taylor.strip()), ("orbit", orbit.strip())):
            stored = STORED["results"].get(f"{method} {order}")
            assert cell == ("" if stored is None else f"{stored['relative_error']:.2e}")
