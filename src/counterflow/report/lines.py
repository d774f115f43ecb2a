"""The lines of a panel: columns of numbers, thinned, rounded, and free of what cannot be drawn."""

from math import ceil, log10
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..experiments.finding import Curve, Panel
from .style import look

# More points than a page is wide are not seen, and make files large.
MOST_POINTS = 400

# Of a value's distance along its axis.
_DIGITS = 6

Ends = tuple[float, float]


class Window(NamedTuple):
    """The part of a panel's plane that is shown: the ends of both axes."""

    x: Ends
    y: Ends

    def to_scale(self, width: int, height: int) -> "Window":
        """A window around this one in which a unit is as long on both axes."""
        unit = max((self.x[1] - self.x[0]) / width, (self.y[1] - self.y[0]) / height)
        return Window(_around(self.x, unit * width), _around(self.y, unit * height))


def _around(ends: Ends, length: float) -> Ends:
    middle = (ends[0] + ends[1]) / 2
    return middle - length / 2, middle + length / 2


def window_of(panel: Panel) -> Window:
    """The window in which every point of a panel's curves, and every band, is seen."""
    seen = [(curve, drawable(curve, panel)) for curve in panel.curves]
    x = [curve.x[where] for curve, where in seen]
    y = [
        values[where]
        for curve, where in seen
        for values in (curve.y, *(curve.band if curve.band is not None else ()))
    ]
    marked = panel.plane or any(curve.points for curve in panel.curves)
    return Window(
        _ends(x, panel.x_scale, margin=0.03 if marked else 0.0),
        panel.y_ends or _ends(y, panel.y_scale, margin=0.04),
    )


def _ends(
    parts: list[Float[np.ndarray, " _"]], scale: Literal["linear", "log"], margin: float
) -> Ends:
    """The ends of an axis that holds all values, with a margin."""
    values = np.concatenate([np.empty(0), *parts])
    values = values[_on_axis(values, scale)]
    if len(values) == 0:
        return (1.0, 10.0) if scale == "log" else (0.0, 1.0)
    low, high = float(np.min(values)), float(np.max(values))
    if scale == "log":
        a, b = log10(low), log10(high)
        room = margin * (b - a) or (0.0 if a < b else 0.5)
        # Not beyond what a float holds.
        return 10 ** max(a - room, -307), 10 ** min(b + room, 308)
    if low == high:
        room = abs(low) / 2 or 1.0
        return low - room, high + room
    room = margin * (high - low)
    # An axis that almost reaches zero starts there.
    return (0.0 if 0 <= low <= 0.1 * high else low - room), high + room


def _on_axis(
    values: Float[np.ndarray, " n"], scale: Literal["linear", "log"]
) -> Bool[np.ndarray, " n"]:
    finite = np.isfinite(values)
    return finite & (values > 0) if scale == "log" else finite


def drawable(curve: Curve, panel: Panel) -> Bool[np.ndarray, " n"]:
    """Which points of a curve are finite, and positive where an axis is logarithmic."""
    return _on_axis(curve.x, panel.x_scale) & _on_axis(curve.y, panel.y_scale)


def lines_of(panel: Panel) -> list[dict[str, Any]]:
    """The columns of every curve that has a point to draw.

    Each is a dictionary of the curve's name as `curve`, its number as `line`, whether it is
    `background` and has its `points` marked, its `colour`, and columns `x`, `y` and, of a band,
    `low` and `high`. A row of `None` stands where a curve is interrupted.
    """
    window = window_of(panel)
    lines = (_line(number, curve, panel, window) for number, curve in enumerate(panel.curves))
    return [line for line in lines if line["x"]]


def _line(number: int, curve: Curve, panel: Panel, window: Window) -> dict[str, Any]:
    seen = drawable(curve, panel)
    where = np.flatnonzero(seen)
    x = _along(curve.x[where], window.x, panel.x_scale)
    y = _along(curve.y[where], window.y, panel.y_scale)
    kept = where[thinned(x, y, MOST_POINTS)]
    columns = {"x": curve.x, "y": curve.y}
    if curve.band is not None:
        columns |= {"low": curve.band[0], "high": curve.band[1]}
    # Whether something is missing between a point and the next that is kept.
    gaps = np.diff(np.cumsum(~seen)[kept], append=0) > 0
    line: dict[str, Any] = {
        "curve": curve.name,
        "line": number,
        "background": curve.role == "background",
        "points": curve.points,
        "colour": look(curve.role, curve.variant).colour,
    }
    for name, values in columns.items():
        scale, ends = (panel.x_scale, window.x) if name == "x" else (panel.y_scale, window.y)
        if scale == "log" and name == "low":  # what reaches below zero reaches the bottom
            values = np.maximum(values, ends[0])
        digits = _digits(ends, scale)
        column: list[float | None] = []
        drawn = _on_axis(values, scale)
        for index, interrupted in zip(kept, gaps, strict=True):
            column.append(float(f"{values[index]:.{digits}g}") if drawn[index] else None)
            if interrupted:
                column.append(None)
        line[name] = column
    return line


def _along(
    values: Float[np.ndarray, " n"], ends: Ends, scale: Literal["linear", "log"]
) -> Float[np.ndarray, " n"]:
    """Where values lie along an axis, from 0 at its start to 1 at its end."""
    if scale == "log":
        values, ends = np.log10(values), (log10(ends[0]), log10(ends[1]))
    return (values - ends[0]) / (ends[1] - ends[0])


def _digits(ends: Ends, scale: Literal["linear", "log"]) -> int:
    """How many digits of a value are seen on an axis."""
    if scale == "log":
        return _DIGITS
    size = max(abs(ends[0]), abs(ends[1])) / (ends[1] - ends[0])
    return _DIGITS + max(0, ceil(log10(size)))


def thinned(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], most: int
) -> Int[np.ndarray, " kept"]:
    """Which points of a curve to keep: at most so many, both ends and its peaks among them.

    The curve is cut into pieces equally long on paper; of each the lowest and the highest point
    stay. So a spike is not lost, nor the first decade of a logarithmic axis.
    """
    count = len(x)
    if count <= most:
        return np.arange(count)
    length = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    if length[-1] == 0:
        length = np.arange(count, dtype=float)
    pieces = (most - 2) // 2
    piece = np.minimum((length / length[-1] * pieces).astype(int), pieces - 1)
    order = np.lexsort((y, piece))
    starts = np.flatnonzero(np.diff(piece[order], prepend=-1))
    ends = np.append(starts[1:], count) - 1
    return np.unique([0, count - 1, *order[starts], *order[ends]])
