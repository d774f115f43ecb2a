"""A long run: does the scale-invariant layer settle, as Corollaries 5.1 and 5.2 have it?"""

from typing import Any

import numpy as np

from ...runs.run import Run
from ...runs.training import SCALE_INVARIANT
from ...symmetries.equilibrium import equilibrium
from ...symmetries.fixed_point import equilibrium_angle
from ...symmetries.scale import Scale
from ..curves import STEP, scientific
from ..experiment import Experiment, Setting
from ..finding import Claim, Curve, Finding, Panel

WINDOWS = 40


def compute(setting: Setting) -> dict[str, Any]:
    """Averages of a long run over windows of steps, from the initial weights on."""
    configuration = setting.configuration
    rate, decay = configuration.learning_rates[0], configuration.weight_decays[0]
    samples = min(configuration.long_samples, len(setting.dataset.inputs))
    problem, params = setting.problem(decay, configuration.seed, samples)
    layer = Scale(SCALE_INVARIANT)
    run = equilibrium(problem, layer, params, rate, configuration.long_steps, windows=WINDOWS)
    left, right = run.averaged_law
    return {
        "learning_rate": rate,
        "weight_decay": decay,
        "samples": samples,
        "steps": run.steps.tolist(),
        "radius": run.radius_mean.tolist(),
        "angle": run.angle_mean.tolist(),
        "decayed": float(left),
        "gained": float(right),
        "drift": float(run.drift),
        "mean_angle": float(run.angle),
        "radius_fluctuation": float(run.radius_fluctuation),
        "gradient_fluctuation": float(run.gradient_fluctuation),
    }


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
    angle_off = found["mean_angle"] / angles.exact - 1
    return Finding(
        "equilibrium",
        "Angular update and equilibrium over a long run",
        f"Descent at η = {rate:g}, λ = {decay:g} for {int(steps[-1]):,} steps on "
        f"{found['samples']:,} images: the norm r of the scale-invariant layer and the angle that "
        "its direction turns per step, averages over windows. Corollaries 5.1 and 5.2 describe an "
        "equilibrium in which both are constant; what holds of any run is its average, with the "
        "drift of r.",
        (
            Claim(
                "the averaged law (2λ − ηλ²)⟨r²⟩ = η⟨c²/r²⟩ + drift holds to 1e-9",
                f"{found['decayed']:.6g} against {found['gained']:.6g} + {found['drift']:.6g}: "
                f"off by {abs(balance):.0e}",
                abs(balance) < 1e-9,
            ),
            Claim(
                "the paper: at equilibrium r and c are constant (to one percent within a window)",
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
