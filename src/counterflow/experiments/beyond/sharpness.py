"""Does descent take flatter paths than gradient flow (Appendix C) or sharper ones (Appendix D)?"""

import numpy as np

from ...runs.configuration import Configuration
from ...runs.run import Run, TrainingSeries
from ...runs.training import Training
from ...solvers.trajectory import Status
from ..curves import TIME, flow_name, order_role
from ..experiment import Experiment
from ..finding import Claim, Curve, Finding, Panel
from ..trainings import at_weight_decay, series


def _trainings(configuration: Configuration) -> tuple[Training, ...]:
    return at_weight_decay(configuration, configuration.weight_decays[0])


def panel(known: TrainingSeries) -> Panel:
    """The sharpness along descent and along the flows, where it was measured."""
    where = np.isfinite(known("descent", "sharpness"))
    times = known.times[where]
    curves = [
        Curve(flow_name(order), order_role(order), times, known.flow(order, "sharpness")[where])
        for order in (0, 1)
    ]
    measured = known("descent", "sharpness")[where]
    curves.append(Curve("gradient descent", "descent", times, measured, points=True))
    title = f"η = {known.training.learning_rate:g}, λ = {known.training.weight_decay:g}"
    return Panel(title, TIME, "largest eigenvalue of H + λI", tuple(curves))


def _finding(run: Run) -> Finding:
    known = [series(run, one) for one in _trainings(run.configuration)]
    flatter, closer, said = [], [], []
    for one in known:
        descent, flow, motion = (
            one(process, "sharpness")[1:] for process in ("descent", "flow 0", "flow 1")
        )
        where = np.isfinite(descent) & np.isfinite(flow) & np.isfinite(motion)
        descent, flow, motion = descent[where], flow[where], motion[where]
        ratios = descent / flow
        # A flow that did not get to the end says nothing, and no claim on it holds.
        complete = one.status == Status.COMPLETED
        flatter.append(complete and bool(np.all(ratios < 1)))
        closer.append(complete and bool(np.all(np.abs(motion - descent) < np.abs(flow - descent))))
        measured = len(ratios)
        said.append(f"{ratios.min():.5f} … {ratios.max():.5f}" if measured else one.status)
    rates = ", ".join(f"{one.training.learning_rate:g}" for one in known)
    return Finding(
        "sharpness",
        "Sharpness along descent and its flows",
        "The paper's appendices disagree on whether descent prefers flatter or sharper paths than "
        "gradient flow. Measured: the largest eigenvalue of H + λI along each.",
        (
            Claim(
                f"descent is flatter than gradient flow wherever it was measured, η = {rates}",
                f"sharpness of descent over gradient flow's: {'; '.join(said)}",
                all(flatter),
            ),
            Claim(
                "the equation of motion has descent's sharpness more nearly than gradient flow",
                f"at {sum(closer)} of {len(closer)} learning rates, at all times measured",
                all(closer),
            ),
        ),
        tuple(map(panel, known)),
    )


EXPERIMENT = Experiment("sharpness", _finding, _trainings)
