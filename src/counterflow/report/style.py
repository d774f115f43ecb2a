"""How figures look: one set of colours and sizes for all of them."""

from typing import Any

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
