"""Figure 2: the discretization error of gradient flow, predicted and measured."""

from ...runs.configuration import Configuration
from ...runs.run import Run, TrainingSeries
from ...runs.training import Training
from ..curves import last, prediction_panel, scientific
from ..experiment import Experiment
from ..finding import Claim, Finding
from ..trainings import middle, series


def _trainings(configuration: Configuration) -> tuple[Training, ...]:
    return (middle(configuration),)


def claims(known: TrainingSeries) -> tuple[Claim, ...]:
    """What is claimed of the predictions in one training."""
    local, propagated, restarted = (
        last(known.flow(0, f"{kind}_mismatch"))
        for kind in ("local", "propagated", "restarted_local")
    )
    rate = known.training.learning_rate
    where = f"at η = {rate:g}, t = {known.times[-1]:g}"
    return (
        Claim(
            f"the propagated prediction is within 2η of the measured error, as it is to leading "
            f"order, {where}",
            f"‖predicted − measured‖/‖measured‖ = {scientific(propagated)}",
            propagated < 2 * rate,
        ),
        Claim(
            f"the paper's local sum (Equation 12) is off by less than the error itself, {where}",
            f"‖predicted − measured‖/‖measured‖ = {scientific(local)}, from step "
            f"{known.training.restart} on {scientific(restarted)}",
            local < 1,
        ),
    )


def _finding(run: Run) -> Finding:
    known = series(run, middle(run.configuration))
    return Finding(
        "figure2",
        "Figure 2: predicted and measured discretization error",
        "How far gradient flow is from descent, measured, and as predicted without running "
        "descent: by the paper's sum of local errors, by the same sum started from the error "
        "measured at a later step, and by the propagated equation ė = −(H + λI)e + ηξ̃_0, which "
        "keeps what the sum drops: that errors made earlier shrink or grow on the way. Lengths are "
        "drawn; the claims compare vectors, which may differ where lengths agree.",
        claims(known),
        (prediction_panel(known),),
    )


EXPERIMENT = Experiment("figure2", _finding, _trainings)
