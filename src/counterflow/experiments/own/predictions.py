"""Can the error of each flow be told without running descent?"""

import numpy as np

from ...runs.run import Run, TrainingSeries
from ..curves import TIME, flow_name, last, scientific
from ..experiment import Experiment
from ..finding import Claim, Curve, Finding, Panel, Role
from .setting import training_of, trainings_of

# A prediction is good if it is nearer to the measured error than this part of it.
_GOOD = 0.1
_CURVES: tuple[tuple[str, Role, str], ...] = (
    ("measured", "descent", "error"),
    ("local sum (paper)", "local", "local_prediction"),
    ("propagated", "propagated", "propagated_prediction"),
)


def _panel(known: TrainingSeries, order: int) -> Panel:
    curves = [
        Curve(name, role, known.times, known.flow(order, what)) for name, role, what in _CURVES
    ]
    return Panel(flow_name(order), TIME, "error ‖e_k‖", tuple(curves))


def _finding(run: Run) -> Finding:
    known = run.trainings[training_of(run.configuration).name]
    claims, panels = [], []
    for order in sorted(known.training.predicted):
        local, propagated = (
            last(known.flow(order, f"{kind}_mismatch")) for kind in ("local", "propagated")
        )
        claims.append(
            Claim(
                f"the propagated prediction for {flow_name(order)} is within {_GOOD:.0%} of the "
                "measured error, at the last record",
                f"‖predicted − measured‖/‖measured‖ = {scientific(propagated)}; of the paper's "
                f"local sum {scientific(local)}",
                propagated < _GOOD,
            )
        )
        if np.any(np.isfinite(known.flow(order, "error"))):
            panels.append(_panel(known, order))
    return Finding(
        "predictions",
        "Error of the flows, predicted",
        "The same errors as predicted without running descent: by the paper's sum of local errors, "
        "and by the propagated equation ė = −(H + λI)e + η^(γ+1) ξ̃_γ, which keeps what the sum "
        "drops: that errors made earlier shrink or grow on the way.",
        tuple(claims),
        tuple(panels),
    )


EXPERIMENT = Experiment("predictions", _finding, trainings_of)
