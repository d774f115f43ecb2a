"""A panel of a finding as a chart, and a finding as a figure for a paper."""

from typing import TYPE_CHECKING, Any

from ..experiments.finding import Finding, Panel
from .lines import Ends, Window, drawable, lines_of, window_of
from .style import Look, look, themed

if TYPE_CHECKING:
    import altair

# Panels side by side in a figure on paper.
_COLUMNS = 3

# Fonts that have raised digits; where one lacks them, a whole label would fall back to serifs.
_FONT = "DejaVu Sans, Verdana, sans-serif"


def chart(panel: Panel, width: int = 320, height: int = 220) -> "altair.LayerChart":
    """The chart of a panel, with a legend below and values on hover.

    It displays itself in a notebook; `.save("figure.pdf")` (or `.png`, `.svg`) writes it.

    Args:
        panel: What is to be drawn.
        width: The width of the plane in pixels.
        height: Its height.
    """
    looks = looks_of((panel,))
    return _finished(_drawn(panel, width, height, looks, _legend(looks, width)))


def figure(finding: Finding, width: int = 300, height: int = 220) -> Any:
    """The panels of a finding beside and below each other, with one legend where one will do.

    Args:
        finding: What was found; it must have panels.
        width: The width of each panel's plane in pixels.
        height: Its height.
    """
    import altair  # takes a second to import

    if not finding.panels:
        raise ValueError(f"`finding` must have panels to be drawn, got none in {finding.name!r}")
    looks = looks_of(finding.panels)
    shared = all(len(found) == 1 for found in looks.values())
    columns = 2 if len(finding.panels) == 4 else min(len(finding.panels), _COLUMNS)
    charts = []
    for panel in finding.panels:
        listed = looks if shared else looks_of((panel,))
        legend = _legend(listed, width * (columns if shared else 1))
        charts.append(_drawn(panel, width, height, listed, legend))
    if len(charts) == 1:
        return _finished(charts[0])
    drawn = altair.concat(*charts, columns=columns, spacing=28)
    if not shared:
        drawn = drawn.resolve_scale(
            color="independent",
            fill="independent",
            strokeDash="independent",
            strokeWidth="independent",
        )
    return _finished(drawn)


def _legend(looks: dict[str, tuple[Look, ...]], width: int) -> "altair.Legend | None":
    """A legend with as many columns as its names leave room for."""
    import altair

    if not looks:
        return None
    longest = max(len(name) for name in looks)
    columns = min(len(looks), max(1, width // (7 * longest + 40)))
    return altair.Legend(title=None, columns=columns)


def _finished(drawn: Any) -> Any:
    return themed(drawn.configure(font=_FONT))


def looks_of(panels: tuple[Panel, ...]) -> dict[str, tuple[Look, ...]]:
    """How the curves of every name are drawn, each look once; the background has no name.

    Curves without a point to draw are left out. Those of one name share their entry in the legend,
    so within a panel they must look alike.
    """
    looks: dict[str, tuple[Look, ...]] = {}
    for panel in panels:
        here: dict[str, Look] = {}
        for curve in panel.curves:
            if curve.role == "background" or not drawable(curve, panel).any():
                continue
            drawn = look(curve.role, curve.variant)
            if curve.points:  # the marks are what is seen
                drawn = drawn._replace(width=min(drawn.width, 1.4), points=True)
            if here.setdefault(curve.name, drawn) != drawn:
                raise ValueError(
                    f"curves of one name must look alike, got two looks of {curve.name!r} in the "
                    f"panel {panel.title!r}: give each its own name"
                )
            if drawn not in looks.setdefault(curve.name, ()):
                looks[curve.name] += (drawn,)
    return looks


def interactive(panel: Panel) -> dict[str, Any]:
    """The specification of a panel for the page, with named data and without a legend.

    The page sets the signals `x_ends` and `y_ends`, the window that must be seen, and `hidden`, the
    names of curves that are not to be; the size as well, so a plane is brought to scale there.
    """
    import altair

    window = window_of(panel)
    ends = [_expressions(channel, panel.plane) for channel in ("x", "y")]
    params = [
        altair.param(name="x_ends", value=list(window.x)),
        altair.param(name="y_ends", value=list(window.y)),
        altair.param(name="hidden", value=[]),
    ]
    if panel.plane:
        unit = "max((x_ends[1] - x_ends[0]) / width, (y_ends[1] - y_ends[0]) / height)"
        params.append(altair.param(name="unit", expr=unit))
    layers = _layers(panel, looks_of((panel,)), window, ends, legend=None)
    drawn = (
        layers.add_params(*params)
        .transform_filter("indexof(hidden, datum.curve) < 0")
        .properties(
            data=altair.NamedData(name="lines"),
            autosize=altair.AutoSizeParams(type="fit", contains="padding", resize=True),
            padding=5,
        )
    )
    return themed(drawn).to_dict()


def _expressions(channel: str, plane: bool) -> list[dict[str, str]]:
    """The ends of an axis that follow the page's signals."""
    ends = f"{channel}_ends"
    if not plane:
        return [{"expr": f"{ends}[0]"}, {"expr": f"{ends}[1]"}]
    length = "width" if channel == "x" else "height"
    middle, half = f"({ends}[0] + {ends}[1]) / 2", f"unit * {length} / 2"
    return [{"expr": f"{middle} - {half}"}, {"expr": f"{middle} + {half}"}]


def _drawn(
    panel: Panel, width: int, height: int, looks: dict[str, tuple[Look, ...]], legend: Any
) -> "altair.LayerChart":
    """The chart without a theme, with the given looks and legend."""
    import altair

    window = window_of(panel)
    if panel.plane:
        window = window.to_scale(width, height)
    layers = _layers(panel, looks, window, [list(window.x), list(window.y)], legend)
    return layers.properties(
        data=altair.Data(values=_rows(panel)),
        title=panel.title,
        width=width,
        height=height,
    )


def _rows(panel: Panel) -> list[dict[str, Any]]:
    """The lines of a panel as rows, numbered in the order in which they are joined."""
    rows = []
    for line in lines_of(panel):
        columns = {name: values for name, values in line.items() if isinstance(values, list)}
        common = {name: value for name, value in line.items() if name not in columns}
        rows += [
            common | {"index": index} | dict(zip(columns, values, strict=True))
            for index, values in enumerate(zip(*columns.values(), strict=True))
        ]
    return rows


def _layers(
    panel: Panel,
    looks: dict[str, tuple[Look, ...]],
    window: Window,
    ends: list[Any],
    legend: Any,
) -> "altair.LayerChart":
    """Background, bands, lines and marks of a panel, above each other, without data."""
    import altair

    names = list(looks)

    def by_curve(values: list[Any]) -> Any:
        return altair.Scale(type="ordinal", domain=names, range=values)

    first = [found[0] for found in looks.values()]
    dashes: list[Any] = [list(one.dash) for one in first]
    # Bands and marks take their colour from the data: they are not listed once more.
    fill = altair.Fill("colour:N", scale=None)
    x, y = _axis(altair.X, "x", panel, window.x, ends[0]), _vertical(panel, window.y, ends[1])
    tooltip = [
        altair.Tooltip("curve:N", title="curve"),
        altair.Tooltip("x:Q", title=panel.x_title),
        altair.Tooltip("y:Q", title=panel.y_title),
    ]
    base = altair.Chart().encode(x=x, detail="line:N")
    behind = look("background")
    layers = [
        base.transform_filter("datum.background")
        .mark_line(color=behind.colour, strokeWidth=behind.width, clip=True)
        .encode(y=y("y"), order="index:Q"),
    ]
    if any(curve.band is not None for curve in panel.curves):
        layers.append(
            base.transform_filter("!datum.background && isValid(datum.low)")
            .mark_area(opacity=0.2, clip=True)
            .encode(y=y("low"), y2="high", fill=fill)
        )
    layers.append(
        base.transform_filter("!datum.background")
        .mark_line(strokeCap="butt", strokeJoin="round", clip=True)
        .encode(
            y=y("y"),
            order="index:Q",
            color=altair.Color(
                "curve:N",
                legend=legend,
                sort=names,
                scale=by_curve([one.colour for one in first]),
            ),
            strokeDash=altair.StrokeDash(
                "curve:N", legend=legend, sort=names, scale=by_curve(dashes)
            ),
            strokeWidth=altair.StrokeWidth(
                "curve:N", legend=legend, sort=names, scale=by_curve([one.width for one in first])
            ),
            tooltip=tooltip,
        )
    )
    if any(curve.points for curve in panel.curves):
        layers.append(
            base.transform_filter("!datum.background && datum.points")
            .mark_point(size=34, stroke=None, opacity=1, clip=True)
            .encode(y=y("y"), fill=fill, tooltip=tooltip)
        )
    return altair.LayerChart(layer=layers)


def _vertical(panel: Panel, ends: Ends, domain: Any) -> Any:
    import altair

    return lambda field: _axis(altair.Y, field, panel, ends, domain)


def _axis(channel: Any, field: str, panel: Panel, ends: Ends, domain: Any) -> Any:
    """The encoding of an axis: its title, its scale and how its numbers are written."""
    import altair

    horizontal = channel is altair.X
    scale = panel.x_scale if horizontal else panel.y_scale
    return channel(
        f"{field}:Q",
        title=panel.x_title if horizontal else panel.y_title,
        scale=altair.Scale(type=scale, domain=domain, nice=False),
        axis=_powers(domain) if scale == "log" else _decimals(ends),
    )


def _decimals(ends: Ends) -> "altair.Axis":
    """A linear axis; the very small in powers of ten, the very large in thousands or millions."""
    import altair

    size = max(abs(ends[0]), abs(ends[1]))
    if 1e-3 <= size < 1e5:
        return altair.Axis(tickCount=5, labelFlush=False)
    written = ".2~e" if size < 1e-3 else ".4~s"
    return altair.Axis(
        tickCount=5,
        labelFlush=False,
        labelExpr=f"datum.value == 0 ? '0' : format(datum.value, '{written}')",
    )


# In Vega's language, of a tick: its exponent, whether it is a power of ten, and how it is written.
_EXPONENT = "floor(log(datum.value) / LN10 + 1e-9)"
_IS_POWER = "log(datum.value) / LN10 - floor(log(datum.value) / LN10 + 1e-9) < 1e-6"
_RAISED = "(abs({n}) >= {least} ? slice('⁰¹²³⁴⁵⁶⁷⁸⁹', {digit}, {digit} + 1) : '')"
POWER = f"'10' + ({_EXPONENT} < 0 ? '⁻' : '') + " + " + ".join(
    _RAISED.format(n=_EXPONENT, least=least, digit=f"floor(abs({_EXPONENT}) / {size}) % 10")
    for least, size in ((100, 100), (10, 10), (0, 1))
)
_NUMBER = (
    f"abs({_EXPONENT}) < 4 ? format(datum.value, '.4~g') : "
    f"format(datum.value / pow(10, {_EXPONENT}), '.4~g') + '×' + {POWER}"
)


def _powers(domain: Any) -> "altair.Axis":
    """A logarithmic axis: powers of ten, and what lies between them where few powers are seen."""
    import altair

    start, end = (end["expr"] if isinstance(end, dict) else end for end in domain)
    few = f"({end}) / ({start}) < 30"
    grid: Any = {"condition": {"test": _IS_POWER, "value": 0.4}, "value": 0.15}
    tick: Any = {"condition": {"test": _IS_POWER, "value": 1}, "value": 0.35}
    return altair.Axis(
        tickCount=6,
        labelExpr=f"{few} ? ({_NUMBER}) : {_IS_POWER} ? {POWER} : ''",
        gridOpacity=grid,
        tickOpacity=tick,
    )
