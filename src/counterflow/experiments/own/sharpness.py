"""Is descent below the edge of stability?"""

import numpy as np

from ...runs.run import Run
from ..beyond import sharpness
from ..curves import largest, scientific
from ..experiment import Experiment
from ..finding import Claim, Finding
from .setting import training_of, trainings_of


def _finding(run: Run) -> Finding:
    known = run.trainings[training_of(run.configuration).name]
    measured = known("descent", "sharpness")
    measured = measured[np.isfinite(measured)]
    if not len(measured):  # a vector field has none
        return Finding("sharpness", "Sharpness", "", ())
    product = run.configuration.learning_rate * largest(measured)
    return Finding(
        "sharpness",
        "Sharpness along descent and its flows",
        "The largest eigenvalue of H + λI. Where it is beyond 2/η, descent does not follow any "
        "smooth path: it jumps from wall to wall, and no equation of motion holds.",
        (
            Claim(
                "η times sharpness is below 2 wherever it was measured",
                f"from {scientific(float(measured[0]))} to {scientific(float(measured[-1]))}; η "
                f"times the largest is {scientific(product)}",
                product < 2,
            ),
        ),
        (sharpness.panel(known),),
    )


EXPERIMENT = Experiment("sharpness", _finding, trainings_of)
