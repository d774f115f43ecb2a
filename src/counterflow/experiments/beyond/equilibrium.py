"""A long run: does the scale-invariant layer settle, as Corollaries 5.1 and 5.2 have it?"""

from typing import Any

import numpy as np

from ...runs.run import Run
from ...solvers.trajectory import Status
from ...symmetries.equilibrium import equilibrium
from ...symmetries.fixed_point import equilibrium_angle
from ...symmetries.scale import Scale
from ..curves import STEP, scientific
from ..experiment import Experiment
from ..finding import Claim, Curve, Finding, Panel
from ..paper.setting import SCALE_INVARIANT, PaperSetting

# Windows in each half of the run; the first half is for the start to be forgotten.
_WINDOWS = 20


def compute(setting: PaperSetting) -> dict[str, Any]:
    """Averages of a long run over windows of steps, and over its second half."""
    configuration = setting.configuration
    rate, decay = configuration.learning_rates[0], configuration.weight_decays[0]
    everything = configuration.samples or len(setting.dataset.inputs)
    samples = min(configuration.long_samples, everything)
    problem, params = setting.problem(decay, configuration.seed, samples)
    half = max(configuration.long_steps // 2, 1)
    halves = []
    for _ in range(2):
        layer = Scale(SCALE_INVARIANT)
        halves.append(equilibrium(problem, layer, params, rate, half, windows=_WINDOWS))
        params = halves[-1].params
    first, second = halves
    left, right = second.averaged_law
    gradient_squared = second.gradient_deviation**2 + second.gradient_mean**2
    return {
        "learning_rate": rate,
        "weight_decay": decay,
        "samples": samples,
        "status": str(second.status),
        "steps": [*first.steps.tolist(), *(half + second.steps).tolist()],
        "radius": [*first.radius_mean.tolist(), *second.radius_mean.tolist()],
        "angle": [*first.angle_mean.tolist(), *second.angle_mean.tolist()],
        "decayed": float(left),
        "gained": float(right),
        "drift": float(second.drift),
        "mean_angle": float(second.angle),
        "radius_fluctuation": _fluctuation(second.radius_mean, second.radius_squared),
        "gradient_fluctuation": _fluctuation(second.gradient_mean, gradient_squared),
    }


def _fluctuation(means: np.ndarray, squares: np.ndarray) -> float:
    """The standard deviation over all windows, over the mean."""
    mean = float(np.mean(means))
    return float(np.sqrt(max(np.mean(squares) - mean**2, 0))) / mean


def _finding(run: Run) -> Finding:
    found = run.results["equilibrium"]
    rate, decay = found["learning_rate"], found["weight_decay"]
    angles = equilibrium_angle(rate, decay)
    # (2λ − ηλ²)⟨r²⟩ = η⟨c²/r²⟩ + (r_0² − r_k²)/(kη), exactly.
    balance = (found["gained"] + found["drift"]) / found["decayed"] - 1
    steps = np.array(found["steps"], dtype=float)
    middles = steps - np.diff(steps, prepend=0) / 2
    exact = np.full(len(steps), angles.exact)
    constant = found["radius_fluctuation"] < 0.01 and found["gradient_fluctuation"] < 0.01
    angle_off = found["mean_angle"] / angles.leading - 1
    half = f"over the second half of {int(steps[-1]):,} steps"
    return Finding(
        "equilibrium",
        "Angular update and equilibrium over a long run",
        f"Descent at η = {rate:g}, λ = {decay:g} for {int(steps[-1]):,} steps on "
        f"{found['samples']:,} images: the norm r of the scale-invariant layer and the angle that "
        "its direction turns per step, averages over windows. Corollaries 5.1 and 5.2 describe an "
        "equilibrium in which both are constant; what holds of any run is its average, with the "
        "drift of r. The claims are judged on the second half of the run.",
        (
            Claim(
                f"the averaged law (2λ − ηλ²)⟨r²⟩ = η⟨c²/r²⟩ + drift holds to 1e-9, {half}",
                f"{found['decayed']:.6g} against {found['gained']:.6g} + {found['drift']:.6g}: "
                f"off by {abs(balance):.0e}",
                abs(balance) < 1e-9 and found["status"] == Status.COMPLETED,
            ),
            Claim(
                f"the paper: at equilibrium r and c are constant (to one percent, {half})",
                f"r fluctuates by {found['radius_fluctuation']:.1%}, c by "
                f"{found['gradient_fluctuation']:.1%}",
                constant,
            ),
            Claim(
                "the paper: the angular update is √(2ηλ) (within a tenth, on average)",
                f"mean angle {found['mean_angle']:.4f}; √(2ηλ) = {angles.leading:.4f}, exactly "
                f"arccos(1 − ηλ) = {angles.exact:.4f}",
                abs(angle_off) < 0.1,
            ),
        ),
        (
            Panel(
                "norm of the hidden layer",
                STEP,
                "r, mean in a window",
                (Curve("gradient descent", "descent", middles, np.array(found["radius"])),),
            ),
            Panel(
                "angle turned per step",
                STEP,
                f"Δ ({scientific(angles.exact)} at equilibrium)",
                (
                    Curve("gradient descent", "descent", middles, np.array(found["angle"])),
                    Curve("arccos(1 − ηλ)", "exact", middles, exact),
                ),
                y_scale="log",
            ),
        ),
    )


EXPERIMENT = Experiment("equilibrium", _finding, results={"equilibrium": compute})
