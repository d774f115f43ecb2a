"""How figures look: one set of colours and sizes for all of them."""

from functools import cache
from typing import Any, NamedTuple

# Distinguishable in print and for most kinds of colour blindness (Okabe & Ito, 2008).
ORANGE, GREEN, BLUE, GREY = "#E69F00", "#009E73", "#0072B2", "#999999"
PALE_RED = "#F2BFA4"  # a broad line under others
# One per order of a flow, from gradient flow on.
ORDERS = (ORANGE, BLUE, GREEN, "#CC79A7", "#56B4E9", "#D55E00")


def themed(chart: Any) -> Any:
    """The chart in the house style."""
    return (
        chart.configure_view(stroke=None)
        .configure_axis(
            labelFontSize=11, titleFontSize=12, titleFontWeight="normal", gridOpacity=0.4
        )
        .configure_legend(
            orient="bottom",
            columns=3,
            labelFontSize=11,
            labelLimit=260,
            symbolSize=200,
            symbolStrokeWidth=2,
        )
        .configure_title(fontSize=12, anchor="start", fontWeight="normal")
    )


class Look(NamedTuple):
    """How a curve is drawn: its colours on white and on a dark page, dashes, width and marks."""

    colour: str
    dark: str
    dash: tuple[int, ...] = (1, 0)
    width: float = 1.8
    points: bool = False


# What each role looks like in every figure. Colours stand out from their page at least 3 to 1,
# except behind the curves; roles that meet in one figure also differ in dash or width. What was
# measured lies broad under the predictions that are to match it. Learning rates, where they are not
# told apart by dashes, are tones of one colour that no flow has.
ROLES = {
    "descent": Look("#8A8F97", "#8F959E", width=5),
    "order 0": Look("#D55E00", "#FF9248"),
    "order 1": Look("#0072B2", "#5DB7F0"),
    "order 2": Look("#00875F", "#2FCB9A"),
    "order 3": Look("#A8437F", "#EE9BCB"),
    "order 4": Look("#857000", "#DEC94F"),
    "learning rate 0": Look("#5A2D8C", "#C79CFB", width=3),
    "learning rate 1": Look("#8F4FC0", "#A878EC", width=3),
    "learning rate 2": Look("#B57AD9", "#8656CC", width=3),
    "local": Look("#BE6E00", "#FFB84D", (2, 2), 2.2),
    "restarted": Look("#0B7F5B", "#38CFA0", (8, 3, 2, 3), 2),
    "propagated": Look("#0A69A8", "#66BDF2", (6, 3), 2),
    "exact": Look("#1B1F24", "#F4F6F8", (5, 3), 1.6),
    "solver": Look("#737B84", "#9AA3AD", (1, 3), 1.6),
    "background": Look("#D3D7DC", "#3A424C", width=0.8),
}

# Further curves of one role are as dark, and dashed in their own way; where dashes run out, wider.
_DASHES = ((8, 3), (2, 3), (10, 3, 2, 3))
_WIDER = 1.0

# The two pages that curves are drawn on.
WHITE, DARK = "#FFFFFF", "#14181D"


def look(role: str, variant: int = 0) -> Look:
    """How a curve of a role is drawn; further variants have the same colour and other dashes.

    Example:
        >>> look("order 1").colour, look("order 1", 1).colour
        ('#0072B2', '#0072B2')
        >>> look("order 1").dash, look("order 1", 1).dash
        ((1, 0), (8, 3))
    """
    first = ROLES[role]
    rounds, which = divmod(variant, len(_DASHES) + 1)
    return first._replace(dash=(first.dash, *_DASHES)[which], width=first.width + rounds * _WIDER)


@cache
def palette() -> dict[str, str]:
    """The colour on a dark page of every colour on white that a curve may have."""
    return {one.colour: one.dark for one in ROLES.values()}
