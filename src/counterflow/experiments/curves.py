"""Curves and panels that several experiments draw."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from ..runs.run import TrainingSeries
from ..runs.training import Training
from .finding import Curve, Panel, Role

TIME, STEP = "time t = kη", "step k"

#: How many learning rates have a tone of their own.
RATE_TONES = 3


def flow_name(order: int) -> str:
    """What the flow of an order is called."""
    return {0: "gradient flow", 1: "EoM (γ = 1)"}.get(order, f"γ = {order}")


def order_role(order: int) -> Role:
    """The role of a curve of an order's flow."""
    return cast(Role, f"order {min(order, 4)}")


def method_of(training: Training, order: int) -> str:
    """The method that an order's flow of a training takes its counter terms by."""
    return training.method or ("taylor" if order < 2 else "orbit")


def by_method(training: Training, order: int) -> str:
    """An order and its method, as claims name them; gradient flow has no counter term.

    >>> training = Training(0.1, 0.01, 7, steps=10, records=2, orders=(0, 1, 2))
    >>> [by_method(training, order) for order in (0, 1, 2)]
    ['order 0', 'order 1 (by `taylor`)', 'order 2 (by `orbit`)']
    """
    return f"order {order}" + (f" (by `{method_of(training, order)}`)" if order else "")


def on_further_orders(orders: Sequence[int]) -> str:
    """What a caption says of the orders that the paper does not have, if there are any."""
    if max(orders) < 2:
        return ""
    return (
        " Order 1 takes its counter term exactly (method `taylor`); further orders, not in the "
        "paper, take theirs from gradients alone (method `orbit`)."
    )


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
    exact: Callable[[TrainingSeries], np.ndarray] | None = None,
    log: bool = False,
    against_step: bool = False,
) -> Panel:
    """One curve of descent for every learning rate, a tone, and weight decay, a dash.

    Args:
        trainings: The trainings.
        value: What is drawn of a training, at every record.
        y_title: The title of the vertical axis.
        exact: What it is exactly, if decay by `1 − ηλ` in every step says so; drawn above.
        log: Whether the vertical axis is logarithmic.
        against_step: Whether the horizontal axis is the step, not the time.
    """
    rates = list(dict.fromkeys(one.training.learning_rate for one in trainings))
    decays = list(dict.fromkeys(one.training.weight_decay for one in trainings))

    def x(one: TrainingSeries) -> np.ndarray:
        return one.steps.astype(float) if against_step else one.times

    def curve(one: TrainingSeries) -> Curve:
        rate, decay = one.training.learning_rate, one.training.weight_decay
        rounds, tone = divmod(rates.index(rate), RATE_TONES)
        return Curve(
            f"η = {rate:g}, λ = {decay:g}",
            cast(Role, f"learning rate {tone}"),
            x(one),
            value(one),
            variant=rounds * len(decays) + decays.index(decay),
        )

    curves = [curve(one) for one in trainings]
    if exact is not None:
        # Of those that fall on one line the longest: dashes upon dashes would close it.
        longest = {
            f"{one.training.learning_rate * one.training.weight_decay:.12g}": one
            for one in sorted(trainings, key=lambda one: len(one.steps) and one.steps[-1])
        }
        shown = longest.values() if against_step else trainings
        curves += [Curve("exact, (1 − ηλ)^k", "exact", x(one), exact(one)) for one in shown]
    return Panel(
        "gradient descent",
        STEP if against_step else TIME,
        y_title,
        tuple(curves),
        y_scale="log" if log else "linear",
    )


def largest(values: np.ndarray) -> float:
    """The largest of values; not a number if one is not, so that no claim on it holds."""
    return float(np.max(values)) if len(values) else float("nan")


def last(values: np.ndarray) -> float:
    """The value at the last record; not a number if there is none."""
    return float(values[-1]) if len(values) else float("nan")
