"""Figure 3: does the discretization error explode at a large learning rate?"""

import numpy as np

from ...runs.configuration import Configuration
from ...runs.run import Run, TrainingSeries
from ...runs.training import Training
from ..curves import error_panel, largest, on_further_orders, scientific
from ..experiment import Experiment
from ..finding import Claim, Finding
from ..solver_error import solver_claim
from ..trainings import at_weight_decay, beyond_stability, series
from . import figure4

#: An error has exploded if it is more than this part of the weights.
EXPLODED = 0.1


def _trainings(configuration: Configuration) -> tuple[Training, ...]:
    at = at_weight_decay(configuration, configuration.weight_decays[-1])
    return (*at, beyond_stability(configuration))


def explosion(known: TrainingSeries, text: str, beyond: bool = False) -> Claim:
    """The claim that the error explodes, with the sharpness that decides it.

    Args:
        known: The training.
        text: The claim, in which `{rate}` is the learning rate.
        beyond: Whether it also claims that the learning rate is beyond 2/sharpness.
    """
    rate = known.training.learning_rate
    sharpness = known.flow(0, "sharpness")
    ratio = rate * largest(sharpness[np.isfinite(sharpness)]) / 2
    errors = (largest(known.flow(order, "relative_error")) for order in (0, 1))
    said = " and ".join(scientific(error) for error in errors)
    return Claim(
        text.format(rate=f"{rate:g}"),
        f"relative error of gradient flow and EoM at most {said}; η is at most "
        f"{scientific(ratio)} times 2/sharpness along gradient flow",
        largest(known.flow(0, "relative_error")) > EXPLODED and (ratio > 1 or not beyond),
    )


def _finding(run: Run) -> Finding:
    configuration = run.configuration
    decay = configuration.weight_decays[-1]
    at = [series(run, one) for one in at_weight_decay(configuration, decay)]
    large = series(run, beyond_stability(configuration))
    return Finding(
        "figure3",
        "Figure 3: the error at a large learning rate",
        f"The error of gradient flow and of the equation of motion, λ = {decay:g}. The paper saw "
        "it explode at η = 0.1, for widths that it does not state. Whether it does is a question "
        "of η times sharpness; beside the paper's learning rates is one beyond 2/sharpness."
        + on_further_orders(configuration.orders),
        (
            explosion(at[0], "the paper: the error explodes at η = {rate} (beyond a tenth of ‖θ‖)"),
            explosion(large, "the error explodes at η = {rate}, beyond 2/sharpness", beyond=True),
            *figure4.claims(at[:1], "error"),
            solver_claim([*at, large]),
        ),
        (
            error_panel(at, title="the paper's learning rates"),
            error_panel([large], title="beyond 2/sharpness"),
        ),
    )


EXPERIMENT = Experiment("figure3", _finding, _trainings)
