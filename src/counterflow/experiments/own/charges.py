"""What do weight decay and finite steps make of the charges of the symmetric layers?"""

import numpy as np

from ...runs.run import Run, TrainingSeries
from ..curves import TIME, flow_name, largest, order_role, scientific
from ..experiment import Experiment
from ..finding import Claim, Curve, Finding, Panel
from ..paper.charges import gap
from .setting import charge_name, training_of, trainings_of
from .symmetries import found

# A gap below this part of the charge, or of the params where charges vanish, is rounding.
_ROUNDING = 1e-11


def _panels(known: TrainingSeries, symmetry: str) -> tuple[Panel, ...]:
    """The charge under descent and its flows, and how far these are off if it is not rounding."""
    quantity, orders, times = charge_name(symmetry), known.training.orders, known.times
    charges = [Curve("gradient descent", "descent", times, known("descent", quantity))]
    charges += [
        Curve(flow_name(order), order_role(order), times, known.flow(order, quantity))
        for order in orders
    ]
    together = Panel(symmetry, TIME, "charge", tuple(charges))
    gaps = tuple(
        Curve(flow_name(order), order_role(order), times, gap(known, order, quantity))
        for order in orders
    )
    rounding = _rounding(known, quantity)
    if all(largest(curve.y) <= rounding for curve in gaps):
        return (together,)
    return together, Panel(symmetry, TIME, "gap of the charge", gaps, y_scale="log")


def _rounding(known: TrainingSeries, quantity: str) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        norms = known.flow(0, "error") / known.flow(0, "relative_error")
    # Charges are sums of weights or of their squares.
    size = float(min((min(norm, norm**2) for norm in norms[np.isfinite(norms)]), default=0.0))
    return _ROUNDING * max(size, largest(np.abs(known("descent", quantity))))


def _claim(known: TrainingSeries, symmetry: str) -> Claim:
    quantity = charge_name(symmetry)
    measured = known("descent", quantity)
    gaps = {order: largest(gap(known, order, quantity)) for order in sorted(known.training.orders)}
    first, *further = gaps.values()
    said = ", ".join(f"{flow_name(order)} {scientific(size)}" for order, size in gaps.items())
    return Claim(
        f"counter terms bring the charge of {symmetry} nearer to descent's",
        f"from {measured[0]:.6g} to {measured[-1]:.6g}; largest gap of {said}",
        first <= _rounding(known, quantity) or all(size < first for size in further),
    )


def _finding(run: Run) -> Finding:
    known = run.trainings[training_of(run.configuration).name]
    there = run.results["found symmetries"]
    nearly = [one["symmetry"] for one in there.get("nearly", [])]  # earlier runs have none
    symmetries = [one["symmetry"] for one in there["found"]] + nearly
    said = f" Only nearly, as the symmetry itself: {', '.join(nearly)}." if nearly else ""
    return Finding(
        "charges",
        "Charges of the symmetric layers",
        "The charge θ·G of every symmetry, summed over its units: the sum of weights of a "
        "translation, the squared norm of a scale, the difference of squared norms of a rescale. "
        "Gradient flow without weight decay would conserve each; weight decay makes it decay, and "
        "the steps of descent add to squared norms, not to a sum of weights. The gap, drawn "
        "where it is more than rounding, is how far the charge of every flow is from descent's."
        + said,
        tuple(_claim(known, symmetry) for symmetry in symmetries if len(known.steps)),
        tuple(panel for symmetry in symmetries for panel in _panels(known, symmetry)),
    )


EXPERIMENT = Experiment("charges", _finding, trainings_of, {"found symmetries": found})
