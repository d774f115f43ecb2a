"""How far is the flow of each order from descent?"""

from itertools import pairwise

from ...runs.run import Run
from ..curves import error_panel, flow_name, last, scientific
from ..experiment import Experiment
from ..finding import Claim, Finding
from ..solver_error import solver_claim
from .setting import training_of, trainings_of


def _finding(run: Run) -> Finding:
    known = run.trainings[training_of(run.configuration).name]
    orders = sorted(known.training.orders)
    at_the_end = {order: last(known.flow(order, "relative_error")) for order in orders}
    claims = [
        Claim(
            f"{flow_name(order)} is nearer to descent than {flow_name(before)}, at the last record",
            f"relative errors {scientific(at_the_end[order])} and {scientific(at_the_end[before])}",
            at_the_end[order] < at_the_end[before],
        )
        for before, order in pairwise(orders)
    ]
    claims.append(solver_claim([known]))
    return Finding(
        "errors",
        "Error of the flows",
        "The distance of each flow from gradient descent, ‖θ(kη) − θ_k‖, measured. Gradient flow "
        "(γ = 0) is what theory speaks of; every counter term more brings the equation of motion "
        "nearer to descent, as long as the series of counter terms converges.",
        tuple(claims),
        (error_panel([known]),),
    )


EXPERIMENT = Experiment("errors", _finding, trainings_of)
