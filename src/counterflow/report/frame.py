"""A page of HTML that needs nothing else: its frame, its style, and its panels for a script.

Only the page's own scripts run in it, and it asks nothing of the network.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from ..experiments.finding import Panel
from .chart import interactive
from .lines import lines_of, window_of
from .style import palette

_HERE = Path(__file__).parent

# Colours of Vega-Lite's axes and titles that follow those of the page.
_AXIS = {
    "labelColor": "var(--ink)",
    "titleColor": "var(--ink)",
    "gridColor": "var(--grid)",
    "domainColor": "var(--axis)",
    "tickColor": "var(--axis)",
}
_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif'


def framed(title: str, header: str, content: str, figures: Mapping[str, tuple[Panel, ...]]) -> str:
    """A page.

    Args:
        title: Its title, as text.
        header: What stands above all, as HTML.
        content: What it tells, as HTML.
        figures: The panels of every figure in it, by name.
    """
    bundle = _bundle()
    script = _harmless((_HERE / "page.js").read_text(encoding="utf-8"))
    drawn = {f"figure-{name}": list(map(_panel_data, panels)) for name, panels in figures.items()}
    template = Template((_HERE / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        policy=_policy(bundle, script),
        title=escape(title),
        style=_palette_css() + (_HERE / "page.css").read_text(encoding="utf-8"),
        header=header,
        content=content,
        figures=_json(drawn),
        bundle=bundle,
        script=script,
    )


def write_whole(path: Path, text: str) -> None:
    """Writes a file that appears under its name only when it is whole; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".part")
    # A name may hold what is no text, as a file's may; it is written out.
    aside.write_text(text, encoding="utf-8", errors="backslashreplace")
    aside.replace(path)


def _panel_data(panel: Panel) -> dict[str, Any]:
    """What the script needs to draw a panel."""
    window = window_of(panel)
    spec = interactive(panel)
    config = spec["config"]
    config["font"] = _FONT
    config["background"] = "transparent"
    config["aria"] = False  # the place of the chart says what it shows
    config["axis"] |= _AXIS | {"labelFontSize": 12, "titleFontSize": 13, "titlePadding": 8}
    return {
        "title": panel.title,
        "plane": panel.plane,
        "x": {"title": panel.x_title, "scale": panel.x_scale, "ends": window.x},
        "y": {"title": panel.y_title, "scale": panel.y_scale, "ends": window.y},
        "lines": [line | {"colour": variable(line["colour"])} for line in lines_of(panel)],
        "spec": _with_variables(spec),
    }


def _with_variables(value: Any) -> Any:
    """A specification with the colours of the page's style in place of those of white paper."""
    if isinstance(value, dict):
        return {key: _with_variables(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_variables(inner) for inner in value]
    return variable(value) if value in palette() else value


def variable(colour: str) -> str:
    """A colour of white paper as the page has it, bright or dark."""
    return f"var(--c{colour[1:]})"


def _palette_css() -> str:
    def rule(colours: list[tuple[str, str]]) -> str:
        return ":root{" + "".join(f"--c{name[1:]}:{colour};" for name, colour in colours) + "}\n"

    dark = rule(list(palette().items()))
    light = rule([(colour, colour) for colour in palette()])
    return f"{light}@media screen and (prefers-color-scheme: dark) {{{dark}}}\n"


def _json(value: Any) -> str:
    """JSON that cannot end the element it stands in; what is not a number is refused."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert  # starts a JavaScript engine

    return _harmless(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _harmless(script: str) -> str:
    """A script in which no string ends or opens the element it stands in."""
    return re.sub(r"<(?=/script|script|!--)", r"\\x3c", script, flags=re.IGNORECASE)


def _policy(*scripts: str) -> str:
    """Only the page's own scripts run, and nothing is fetched."""
    digests = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
