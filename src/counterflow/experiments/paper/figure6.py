"""Figure 6: the mean of a translation-invariant layer decays to zero."""

from dataclasses import replace

import numpy as np

from ...runs.run import Run, TrainingSeries
from ..curves import by_pair, scientific
from ..experiment import Experiment
from ..finding import Claim, Finding
from ..trainings import all_pairs, series
from .charges import decayed


def _size(known: TrainingSeries) -> np.ndarray:
    return known("descent", "perpendicular")


def _exact(known: TrainingSeries) -> np.ndarray:
    return decayed(known, "perpendicular")


def _gone(size: np.ndarray) -> np.ndarray:
    return 1 - size / size[0]


def _finding(run: Run) -> Finding:
    known = [series(run, one) for one in all_pairs(run.configuration)]
    sizes = [_size(one) for one in known]
    exact = [_exact(one) for one in known]
    off = float(np.max(np.abs(np.concatenate(sizes) / np.concatenate(exact) - 1)))
    rising = sum(int(np.sum(~(np.diff(size) < 0))) for size in sizes)
    panels = [
        replace(
            by_pair(
                known, _size, "‖θ_⊥‖ of the readout", exact=_exact, log=True, against_step=True
            ),
            title="under gradient descent",
        ),
        # What is gone has decades, where what is left has hardly a few percent.
        replace(
            by_pair(
                known,
                lambda one: _gone(_size(one)),
                "1 − ‖θ_⊥‖/‖θ_⊥(0)‖",
                exact=lambda one: _gone(_exact(one)),
                log=True,
                against_step=True,
            ),
            title="the part that has decayed",
            x_scale="log",
        ),
    ]
    return Finding(
        "figure6",
        "Figure 6: decay of the translation-invariant layer's mean",
        "θ_⊥ is the part of the readout's weights that the loss does not see. Under descent it "
        "decays by the factor 1 − ηλ at every step (dashed), whatever the data: learning rates and "
        "weight decays with one product ηλ fall on one line. Both axes logarithmic, the part that "
        "has decayed shows also the small products.",
        (
            Claim("‖θ_⊥‖ falls at every record", f"{rising} rises", rising == 0),
            Claim(
                "‖θ_⊥‖ is (1 − ηλ)^k times that at the start, to 1e-11",
                f"off by at most {scientific(off)}",
                off < 1e-11,
            ),
        ),
        tuple(panels),
    )


EXPERIMENT = Experiment("figure6", _finding, all_pairs)
