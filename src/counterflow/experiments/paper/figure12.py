"""Figure 12 (a–c): Figure 2 at every learning rate."""

from ...runs.configuration import Configuration
from ...runs.run import Run
from ...runs.training import Training
from ..curves import prediction_panel
from ..experiment import Experiment
from ..finding import Finding
from ..trainings import at_weight_decay, series
from . import figure2


def _trainings(configuration: Configuration) -> tuple[Training, ...]:
    return at_weight_decay(configuration, configuration.weight_decays[0])


def _finding(run: Run) -> Finding:
    known = [series(run, one) for one in _trainings(run.configuration)]
    return Finding(
        "figure12",
        "Figure 12: predicted and measured error at every learning rate",
        "How far gradient flow is from descent at each learning rate, measured, and predicted as "
        "in Figure 2. The propagated prediction follows what is measured. The paper's sum of local "
        "errors, also where it starts anew from the error measured at a later step, does not see "
        "errors shrink or grow on the way, and leaves it as time goes on. Lengths are drawn; the "
        "claims compare vectors, which may differ where lengths agree.",
        tuple(claim for one in known for claim in figure2.claims(one)),
        tuple(map(prediction_panel, known)),
    )


EXPERIMENT = Experiment("figure12", _finding, _trainings)
