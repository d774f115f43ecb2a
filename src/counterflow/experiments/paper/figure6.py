"""Figure 6: the mean of a translation-invariant layer decays to zero."""

from dataclasses import replace

import numpy as np

from ...runs.run import Run
from ..curves import by_pair, scientific
from ..experiment import Experiment
from ..finding import Claim, Curve, Finding
from ..trainings import all_pairs, series
from .charges import decayed


def _finding(run: Run) -> Finding:
    known = [series(run, one) for one in all_pairs(run.configuration)]
    sizes = [one("descent", "perpendicular") for one in known]
    exact = [decayed(one, "perpendicular") for one in known]
    off = float(np.max(np.abs(np.concatenate(sizes) / np.concatenate(exact) - 1)))
    rising = sum(int(np.sum(~(np.diff(size) < 0))) for size in sizes)
    panel = by_pair(
        known,
        lambda one: one("descent", "perpendicular"),
        "‖θ_⊥‖ of the readout",
        log=True,
        against_step=True,
    )
    curves = tuple(
        Curve("exact, (1 − ηλ)^k", "exact", one.steps.astype(float), values)
        for one, values in zip(known, exact, strict=True)
    )
    return Finding(
        "figure6",
        "Figure 6: decay of the translation-invariant layer's mean",
        "θ_⊥ is the part of the readout's weights that the loss does not see. Under descent it "
        "decays by the factor 1 − ηλ at every step, whatever the data: learning rates and weight "
        "decays with one product ηλ fall on one line.",
        (
            Claim("‖θ_⊥‖ falls at every record", f"{rising} rises", rising == 0),
            Claim(
                "‖θ_⊥‖ is (1 − ηλ)^k times that at the start, to 1e-11",
                f"off by at most {scientific(off)}",
                off < 1e-11,
            ),
        ),
        (replace(panel, curves=(*panel.curves, *curves)),),
    )


EXPERIMENT = Experiment("figure6", _finding, all_pairs)
