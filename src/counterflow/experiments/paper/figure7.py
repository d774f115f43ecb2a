"""Figure 7: the squared norm of the scale-invariant layer under descent."""

import numpy as np

from ...runs.run import Run
from ..curves import scientific
from ..experiment import Experiment
from ..finding import Claim, Finding
from ..trainings import all_pairs
from .charges import dynamics_panel, trainings_of


def _finding(run: Run) -> Finding:
    changes = [
        float(known("descent", "squared_norm")[-1] / known("descent", "squared_norm")[0])
        for known in trainings_of(run)
    ]
    exceptions = 0
    for known in trainings_of(run):
        squared = known("descent", "squared_norm")
        # Weight decay alone; the gradient of a scale-invariant layer only adds to the norm.
        rate = known.training.learning_rate * known.training.weight_decay
        least = squared[:-1] * np.exp(2 * np.diff(known.steps) * np.log1p(-rate))
        exceptions += int(np.sum(~(squared[1:] >= least * (1 - 1e-12))))
    return Finding(
        "figure7",
        "Figure 7: squared norm of the scale-invariant layer",
        "The squared norm r² of the hidden layer, whose scale the normalization removes. Weight "
        "decay shrinks it, every finite step of descent lengthens it: "
        "r²_{k+1} = (1 − ηλ)² r²_k + η²‖∇f‖².",
        (
            Claim(
                "descent never shrinks r² faster than weight decay alone, by (1 − ηλ)² a step",
                f"{exceptions} exceptions; r² ends at {scientific(min(changes))} to "
                f"{scientific(max(changes))} of its start",
                exceptions == 0,
            ),
        ),
        (dynamics_panel(run, "squared_norm", "r² of the hidden layer"),),
    )


EXPERIMENT = Experiment("figure7", _finding, all_pairs)
