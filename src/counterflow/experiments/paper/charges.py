"""What Figures 7 to 10 share: a charge under descent, and how far every flow is from it."""

from collections.abc import Callable

import numpy as np

from ...runs.run import Run, TrainingSeries
from ..curves import TIME, by_pair, flow_name, largest, order_role, scientific
from ..finding import Claim, Curve, Panel
from ..trainings import all_pairs, series


def trainings_of(run: Run) -> list[TrainingSeries]:
    """What is known of the trainings at every learning rate and weight decay."""
    return [series(run, one) for one in all_pairs(run.configuration)]


def dynamics_panel(run: Run, quantity: str, y_title: str, *, decays: bool = False) -> Panel:
    """The charge under descent in every training, and exactly if weight decay alone decides it."""
    return by_pair(
        trainings_of(run),
        lambda one: one("descent", quantity),
        y_title,
        exact=(lambda one: decayed(one, quantity)) if decays else None,
    )


def decayed(known: TrainingSeries, quantity: str) -> np.ndarray:
    """What weight decay alone makes of a quantity of descent: `(1 − ηλ)^k` times its start."""
    rate = known.training.learning_rate * known.training.weight_decay
    return known("descent", quantity)[0] * np.exp(known.steps * np.log1p(-rate))


def gap(known: TrainingSeries, order: int, quantity: str) -> np.ndarray:
    """How far the charge of a flow is from descent's, at every record."""
    return np.abs(known.flow(order, quantity) - known("descent", quantity))


def gap_panels(
    run: Run,
    quantity: str,
    y_title: str,
    exact: Callable[[TrainingSeries, int], np.ndarray] | None = None,
) -> tuple[Panel, ...]:
    """The gap of every order's flow, a panel for each learning rate and weight decay."""

    def panel(known: TrainingSeries) -> Panel:
        settings = known.training
        curves = [
            Curve(flow_name(order), order_role(order), known.times, gap(known, order, quantity))
            for order in settings.orders
        ]
        if exact is not None:
            curves += [
                Curve("exact", "exact", known.times, exact(known, order))
                for order in settings.orders
            ]
        title = f"η = {settings.learning_rate:g}, λ = {settings.weight_decay:g}"
        return Panel(title, TIME, y_title, tuple(curves), y_scale="log")

    return tuple(map(panel, trainings_of(run)))


def gap_claim(run: Run, quantity: str, what: str, rounding: float) -> Claim:
    """The claim that the counter term reduces the largest gap, if that is more than rounding."""
    pairs = [
        (largest(gap(known, 0, quantity)), largest(gap(known, 1, quantity)))
        for known in trainings_of(run)
    ]
    ratios = np.array([flow / motion if motion > 0 else np.inf for flow, motion in pairs])
    return Claim(
        f"the counter term reduces the largest gap of {what} at every learning rate and weight "
        "decay",
        f"by factors of {scientific(float(np.min(ratios)))} to {scientific(float(np.max(ratios)))}",
        all(motion < flow or flow < rounding for flow, motion in pairs),
    )
