"""What do weight decay and finite steps make of the charges of the symmetric layers?"""

import numpy as np

from ...runs.run import Run, TrainingSeries
from ..curves import TIME, flow_name, largest, order_role, scientific
from ..experiment import Experiment
from ..finding import Claim, Curve, Finding, Panel
from .setting import charge_name, training_of, trainings_of
from .symmetries import found

# A gap below this part of the charge is rounding.
_ROUNDING = 1e-11


def _panel(known: TrainingSeries, symmetry: str) -> Panel:
    quantity = charge_name(symmetry)
    curves = [Curve("gradient descent", "descent", known.times, known("descent", quantity))]
    curves += [
        Curve(flow_name(order), order_role(order), known.times, known.flow(order, quantity))
        for order in known.training.orders
    ]
    return Panel(symmetry, TIME, "charge", tuple(curves))


def _claim(known: TrainingSeries, symmetry: str) -> Claim:
    quantity = charge_name(symmetry)
    measured = known("descent", quantity)
    gaps = {
        order: largest(np.abs(known.flow(order, quantity) - measured))
        for order in sorted(known.training.orders)
    }
    first, *further = gaps.values()
    said = ", ".join(f"{flow_name(order)} {scientific(gap)}" for order, gap in gaps.items())
    rounding = _ROUNDING * largest(np.abs(measured))
    return Claim(
        f"counter terms bring the charge of {symmetry} nearer to descent's",
        f"from {measured[0]:.6g} to {measured[-1]:.6g}; largest gap of {said}",
        first < rounding or all(gap < first for gap in further),
    )


def _finding(run: Run) -> Finding:
    known = run.trainings[training_of(run.configuration).name]
    symmetries = [one["symmetry"] for one in run.results["found symmetries"]["found"]]
    return Finding(
        "charges",
        "Charges of the symmetric layers",
        "The charge θ·G of every symmetry, summed over its units: the sum of weights of a "
        "translation, the squared norm of a scale, the difference of squared norms of a rescale. "
        "Gradient flow without weight decay would conserve each; weight decay makes it decay, and "
        "the steps of descent add to squared norms, not to a sum of weights.",
        tuple(_claim(known, symmetry) for symmetry in symmetries if len(known.steps)),
        tuple(_panel(known, symmetry) for symmetry in symmetries),
    )


EXPERIMENT = Experiment("charges", _finding, trainings_of, {"found symmetries": found})
