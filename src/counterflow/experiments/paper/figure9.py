"""Figure 9: the sum of weights of the translation-invariant layer under descent."""

import numpy as np

from ...runs.run import Run
from ..curves import scientific
from ..experiment import Experiment
from ..finding import Claim, Finding
from ..trainings import all_pairs
from .charges import decayed, dynamics_panel, trainings_of


def _finding(run: Run) -> Finding:
    ratios = [
        known("descent", "sum_of_weights") / decayed(known, "sum_of_weights")
        for known in trainings_of(run)
    ]
    off = float(np.max(np.abs(np.concatenate(ratios) - 1)))
    return Finding(
        "figure9",
        "Figure 9: sum of weights of the translation-invariant layer",
        "The sum of all weights of the readout, the charge that translation invariance would "
        "conserve. Weight decay breaks the law: the sum decays by 1 − ηλ at every step (dashed). "
        "Over time the curves of one weight decay almost coincide, whatever the learning rate.",
        (
            Claim(
                "the sum is (1 − ηλ)^k times that at the start, to 1e-11",
                f"off by at most {scientific(off)}",
                off < 1e-11,
            ),
        ),
        (dynamics_panel(run, "sum_of_weights", "sum of the readout's weights", decays=True),),
    )


EXPERIMENT = Experiment("figure9", _finding, all_pairs)
