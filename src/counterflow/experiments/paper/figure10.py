"""Figure 10: how far the sum of weights is from its predictions."""

import numpy as np

from ...runs.run import Run, TrainingSeries
from ...symmetries.decay_rate import decay_rate
from ..experiment import Experiment
from ..finding import Finding
from ..trainings import all_pairs
from .charges import gap_claim, gap_panels


def exact_gap(known: TrainingSeries, order: int) -> np.ndarray:
    """The gap of an order, exactly, from its decay rate and descent's."""
    settings, start = known.training, known("descent", "sum_of_weights")[0]
    flow, descent = (
        decay_rate(settings.learning_rate, settings.weight_decay, which) for which in (order, None)
    )
    return np.abs(start * np.exp(-known.steps * descent) * np.expm1(known.steps * (descent - flow)))


def _finding(run: Run) -> Finding:
    return Finding(
        "figure10",
        "Figure 10: gap of the sum of weights",
        "|sum along the flow − sum under descent|, and the same from the exact decay rates, which "
        "for orders beyond the first are those of the exact truncation. Where the exact gap is "
        "below 1e-12, what is measured is the solver and rounding.",
        (gap_claim(run, "sum_of_weights", "the sum of weights", 1e-12),),
        gap_panels(run, "sum_of_weights", "gap of the sum", exact_gap),
    )


EXPERIMENT = Experiment("figure10", _finding, all_pairs)
