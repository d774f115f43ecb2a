"""The symmetries that the paper's network has, checked at the start of every run."""

from ...runs.run import Run
from ...symmetries.scale import Scale
from ...symmetries.translation import Translation
from ..experiment import Experiment
from ..finding import Claim, Finding
from ..long_work import LongWork
from .setting import SCALE_INVARIANT, TRANSLATION_INVARIANT, PaperSetting

# How far a symmetry's residual may be from zero.
_EXACT = 1e-8


def _residuals(setting: PaperSetting, work: LongWork) -> dict[str, float]:
    """How far the network's two symmetries are from exact at the start of the run."""
    configuration = setting.configuration
    problem, params = setting.problem(configuration.weight_decays[0], configuration.seed)
    found = {
        f"scale {SCALE_INVARIANT}": Scale(SCALE_INVARIANT).residual(problem, params),
        f"translation {TRANSLATION_INVARIANT}": Translation(TRANSLATION_INVARIANT).residual(
            problem, params
        ),
    }
    # Now, not after hours, for everything else rests on it.
    claim = _claim(found)
    work.say(f"{claim.text}: {'holds' if claim.holds else 'FAILS'}; {claim.figures}")
    return found


def _claim(found: dict[str, float]) -> Claim:
    said = ", ".join(f"{name}: {residual:.0e}" for name, residual in found.items())
    return Claim(
        "the hidden layer is scale-invariant and the readout translation-invariant",
        f"change of the loss over what it could be: {said}",
        all(residual < _EXACT for residual in found.values()),
    )


def _finding(run: Run) -> Finding:
    """Whether the layers have the symmetries that the experiments are about."""
    return Finding(
        "symmetries",
        "The network's symmetries, checked at the start",
        "The hidden layer may be scaled, and the readout shifted, without a change of the loss.",
        (_claim(run.results["symmetries"]),),
    )


EXPERIMENT = Experiment("symmetries", _finding, long_results={"symmetries": _residuals})
