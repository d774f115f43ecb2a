"""Curves and panels that several experiments draw."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from ..runs.run import TrainingSeries
from .finding import Curve, Panel, Role

TIME, STEP = "time t = kη", "step k"


def flow_name(order: int) -> str:
    """What the flow of an order is called."""
    return {0: "gradient flow", 1: "EoM (γ = 1)"}.get(order, f"γ = {order}")


def order_role(order: int) -> Role:
    """The role of a curve of an order's flow."""
    return cast(Role, f"order {min(order, 4)}")


def scientific(value: float) -> str:
    """A number as the claims write it.

    >>> scientific(0.000123), scientific(0.25), scientific(1512.0)
    ('1.2e-04', '0.25', '1,512')
    """
    if 100 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.2g}" if 0.01 <= abs(value) < 100 else f"{value:.1e}"


def error_panel(
    trainings: Sequence[TrainingSeries],
    quantity: str = "error",
    title: str = "",
    rates: Sequence[float] = (),
) -> Panel:
    """The error of every order's flow at several learning rates.

    Args:
        trainings: The trainings.
        quantity: `error` or `relative_error`.
        title: The title of the panel.
        rates: The learning rates of all panels of the figure, so that each looks the same in all.
    """
    y_title = "relative error ‖e_k‖/‖θ_k‖" if quantity == "relative_error" else "error ‖e_k‖"
    curves = [
        Curve(
            f"{flow_name(order)}, η = {one.training.learning_rate:g}",
            order_role(order),
            one.steps.astype(float),
            one.flow(order, quantity),
            variant=rates.index(one.training.learning_rate) if rates else variant,
        )
        for variant, one in enumerate(trainings)
        for order in one.training.orders
    ]
    return Panel(title, STEP, y_title, tuple(curves), y_scale="log")


def prediction_panel(known: TrainingSeries) -> Panel:
    """The error of gradient flow, measured and predicted in every way."""
    restart, times = known.training.restart, known.times
    looks: tuple[tuple[str, Role, str], ...] = (
        ("measured", "descent", "error"),
        ("local sum (paper, Equation 12)", "local", "local_prediction"),
        (f"local sum from step {restart} (paper)", "restarted", "restarted_local_prediction"),
        ("propagated", "propagated", "propagated_prediction"),
    )
    curves = (Curve(name, role, times, known.flow(0, what)) for name, role, what in looks)
    title = f"η = {known.training.learning_rate:g}, λ = {known.training.weight_decay:g}"
    return Panel(title, TIME, "error ‖e_k‖ of gradient flow", tuple(curves))


def by_pair(
    trainings: Sequence[TrainingSeries],
    value: Callable[[TrainingSeries], np.ndarray],
    y_title: str,
    *,
    log: bool = False,
    against_step: bool = False,
) -> Panel:
    """One curve of descent for every learning rate and weight decay."""
    curves = [
        Curve(
            f"η = {one.training.learning_rate:g}, λ = {one.training.weight_decay:g}",
            order_role(variant % 5),
            one.steps.astype(float) if against_step else one.times,
            value(one),
            variant=variant // 5,
        )
        for variant, one in enumerate(trainings)
    ]
    x_title = STEP if against_step else TIME
    return Panel(
        "gradient descent", x_title, y_title, tuple(curves), y_scale="log" if log else "linear"
    )


def largest(values: np.ndarray) -> float:
    """The largest of values; not a number if one is not, so that no claim on it holds."""
    return float(np.max(values)) if len(values) else float("nan")


def last(values: np.ndarray) -> float:
    """The value at the last record; not a number if there is none."""
    return float(values[-1]) if len(values) else float("nan")
