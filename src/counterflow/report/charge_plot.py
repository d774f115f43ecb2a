"""The figure of a charge: how far each prediction is from gradient descent."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..symmetries.compare_charges import ChargeComparison
from .style import GREY, ORDERS, themed

if TYPE_CHECKING:
    import altair

RECORDED = "recorded gradients (Kunin et al.)"


def plot_charges(
    comparison: ChargeComparison, *, width: int = 380, height: int = 220
) -> "altair.Chart":
    """The figure of a charge comparison: the gap of every order against time.

    Of several units, the largest gap. It displays itself in a notebook; `.save("figure.pdf")` (or
    `.png`, `.svg`, `.html`) writes it.

    Args:
        comparison: What `compare_charges` returned.
        width: The width in pixels.
        height: The height.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)
        >>> run = cf.compare_charges(problem, cf.Scale(""), jnp.array([0.6, 0.8]), 0.1, 10, (0,))
        >>> type(cf.plot_charges(run)).__name__
        'Chart'
    """
    if not isinstance(comparison, ChargeComparison):
        raise TypeError(
            f"`comparison` must be what `compare_charges` returned, got {type(comparison).__name__}"
        )
    units = tuple(range(2, comparison.predicted.ndim))
    gaps = np.max(comparison.gap, axis=units)
    recorded = np.max(comparison.recorded_gap, axis=tuple(axis - 1 for axis in units))
    title = (
        f"{comparison.symmetry!r}, η = {comparison.learning_rate:g}, "
        f"λ = {comparison.weight_decay:g}"
    )
    chart = gap_chart(comparison.times, comparison.orders, gaps, recorded)
    return themed(chart.properties(width=width, height=height, title=title))


def gap_chart(
    times: np.ndarray, orders: tuple[int, ...], gaps: np.ndarray, recorded: np.ndarray
) -> "altair.Chart":
    """The gaps over time on a logarithmic scale, without a theme."""
    import altair  # takes a second to import

    names = [_name(order) for order in orders]
    curves = dict(zip(names, gaps, strict=True)) | {RECORDED: recorded}
    rows = [
        {"time": float(time), "gap": float(gap), "curve": name}
        for name, values in curves.items()
        for time, gap in zip(times, values, strict=True)
        if np.isfinite(gap) and gap > 0
    ]
    colours = [ORDERS[order % len(ORDERS)] for order in orders]
    dashes: list[Any] = [[1, 0]] * len(names)
    base = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("time:Q", title="time t = kη"),
        y=altair.Y(
            "gap:Q",
            title="|predicted − measured charge|",
            scale=altair.Scale(type="log", nice=False),
            axis=altair.Axis(format=".0e", tickCount=6),
        ),
        color=altair.Color(
            "curve:N",
            title=None,
            sort=list(curves),
            scale=altair.Scale(domain=list(curves), range=[*colours, GREY]),
        ),
        strokeDash=altair.StrokeDash(
            "curve:N",
            sort=list(curves),
            scale=altair.Scale(domain=list(curves), range=[*dashes, [4, 3]]),
        ),
        tooltip=["curve:N", "time:Q", "gap:Q"],
    )
    return base.mark_line(strokeWidth=1.8)


def _name(order: int) -> str:
    return {0: "gradient flow (γ = 0)", 1: "EoM of the paper (γ = 1)"}.get(order, f"γ = {order}")
