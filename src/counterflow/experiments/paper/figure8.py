"""Figure 8: how far the squared norm is from its predictions."""

from ...runs.run import Run
from ..curves import on_further_orders
from ..experiment import Experiment
from ..finding import Finding
from ..trainings import all_pairs
from .charges import gap_claim, gap_panels


def _finding(run: Run) -> Finding:
    return Finding(
        "figure8",
        "Figure 8: gap of the squared norm",
        "|r² of the flow − r² of descent|: gradient flow knows nothing of the lengthening by "
        "finite steps, the equation of motion does." + on_further_orders(run.configuration.orders),
        (gap_claim(run, "squared_norm", "r²", 1e-12),),
        gap_panels(run, "squared_norm", "gap of r²"),
    )


EXPERIMENT = Experiment("figure8", _finding, all_pairs)
