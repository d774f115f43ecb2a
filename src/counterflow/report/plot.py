"""The figure of a comparison, ready for a paper."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors.comparison import Comparison
from ..errors.percent import percent
from .style import BLUE, GREEN, GREY, ORANGE, PALE_RED, themed

if TYPE_CHECKING:
    import altair


class _Look(NamedTuple):
    """How a curve is drawn: its name in the legend, its colour and its dashes."""

    name: str
    colour: str
    dash: list[int]


_MEASURED = _Look("measured", PALE_RED, [1, 0])
_SOLVER = _Look("solver error", GREY, [1, 3])
_PREDICTED = {
    "local": _Look("local prediction (paper)", ORANGE, [2, 2]),
    "restarted_local": _Look("local from step {restart}", GREEN, [2, 2]),
    "propagated": _Look("propagated prediction", BLUE, [5, 3]),
    "restarted_propagated": _Look("propagated from step {restart}", GREEN, [5, 3]),
}

# The solver's error is drawn only where it is more than this part of the error.
_VISIBLE = 0.01

# More points than a page is wide are not seen, and make files large.
_MOST_RECORDS = 400


def plot(
    comparison: Comparison,
    *,
    scale: str = "log",
    relative: bool = False,
    width: int = 260,
    height: int = 200,
) -> "altair.FacetChart":
    """The figure of a comparison: measured and predicted error against time, a panel per order.

    It displays itself in a notebook; `.save("figure.pdf")` (or `.png`, `.svg`, `.html`) writes it.

    Args:
        comparison: What `compare` returned.
        scale: `"log"` or `"linear"`, of the error's axis.
        relative: Whether to divide every error by `‖θ_k‖`.
        width: The width of a panel in pixels.
        height: Its height.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4)
        >>> comparison = cf.compare(problem, jnp.array([1.0]), 0.01, steps=100, orders=(0, 1))
        >>> type(cf.plot(comparison)).__name__
        'FacetChart'
    """
    if not isinstance(comparison, Comparison):
        raise TypeError(
            f"`comparison` must be what `compare` returned, got {type(comparison).__name__}"
        )
    if scale not in ("log", "linear"):
        raise ValueError(f"`scale` must be 'log' or 'linear', got {scale!r}")
    if len(comparison.steps) < 2:
        raise ValueError(
            f"`comparison` must hold at least two records to be drawn, got "
            f"{len(comparison.steps)}; gradient descent {comparison.status}"
        )
    import altair  # takes a second to import

    curves = _curves(comparison, relative)
    rows = _rows(comparison, curves, positive=scale == "log")
    looks = [look for look, _ in curves]
    names = [look.name for look in looks]
    largest = np.nanmax(curves[0][1], axis=1, where=np.isfinite(curves[0][1]), initial=0)
    small = np.min(largest) < 0.01
    axis = altair.Axis(format=".1~e" if scale == "log" or small else "~g", tickCount=5)

    def by_curve(values: list[Any]) -> Any:
        return altair.Scale(domain=names, range=values)

    base = altair.Chart().encode(
        x=altair.X("time:Q", title="time t = kη"),
        y=altair.Y(
            "error:Q",
            title=f"{'relative' if relative else 'discretization'} error",
            scale=altair.Scale(type=scale, nice=scale == "linear"),
            axis=axis,
        ),
        color=altair.Color(
            "curve:N", title=None, sort=names, scale=by_curve([look.colour for look in looks])
        ),
        strokeDash=altair.StrokeDash(
            "curve:N", sort=names, scale=by_curve([look.dash for look in looks])
        ),
        tooltip=["curve:N", "order:N", "step:Q", "time:Q", "error:Q"],
    )
    measured = altair.datum.curve == _MEASURED.name
    # The measured error lies broad and pale under the predictions that are to match it.
    lines = altair.layer(
        base.transform_filter(measured).mark_line(strokeWidth=5),
        base.transform_filter(~measured).mark_line(strokeWidth=1.6),
        data=altair.Data(values=rows),
    ).properties(width=width, height=height)
    chart = lines.facet(
        column=altair.Column(
            "order:N",
            sort=[_panel(order) for order in comparison.orders],
            title=None,
            header=altair.Header(labelFontSize=12, labelFontWeight="bold"),
        ),
    ).resolve_scale(y="independent")
    return themed(chart.properties(title=_title(comparison)))


def _title(comparison: Comparison) -> str:
    title = f"η = {comparison.learning_rate:g}, λ = {comparison.weight_decay:g}"
    share = _solver_share(comparison)
    said = f"; solver error at most {percent(share)} of the error" if share <= _VISIBLE else ""
    return title + said


def _solver_share(comparison: Comparison) -> float:
    """The largest share that the solver's error has in the error at any record."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = comparison.solver_error / comparison.error
    return float(np.max(shares, initial=0, where=np.isfinite(shares)))


def _panel(order: int) -> str:
    return {0: "gradient flow (γ = 0)", 1: "EoM of the paper (γ = 1)"}.get(
        order, f"EoM of order γ = {order}"
    )


def _curves(comparison: Comparison, relative: bool) -> list[tuple[_Look, np.ndarray]]:
    """Every curve's look and its values over (order, record)."""
    scale = np.ones_like(comparison.error)
    if relative:
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = comparison.relative_error / comparison.error
    curves = [(_MEASURED, comparison.error * scale)]
    for kind, look in _PREDICTED.items():
        if kind in comparison.predictions:
            named = look._replace(name=look.name.format(restart=comparison.restart))
            curves.append((named, comparison.predictions[kind].prediction * scale))
    if _solver_share(comparison) > _VISIBLE:
        curves.append((_SOLVER, comparison.solver_error * scale))
    return curves


def _rows(
    comparison: Comparison,
    curves: list[tuple[_Look, np.ndarray]],
    positive: bool,
) -> list[dict[str, Any]]:
    """The points of all curves, thinned; on a logarithmic scale only positive ones."""
    count = len(comparison.steps)
    kept = np.unique(np.linspace(0, count - 1, min(count, _MOST_RECORDS)).astype(int))
    return [
        {
            "order": _panel(order),
            "curve": look.name,
            "step": int(comparison.steps[record]),
            "time": float(comparison.times[record]),
            "error": float(values[row, record]),
        }
        for look, values in curves
        for row, order in enumerate(comparison.orders)
        for record in kept
        if np.isfinite(values[row, record]) and (values[row, record] > 0 or not positive)
    ]
