"""A long run: does the scale-invariant layer settle, as Corollaries 5.1 and 5.2 have it?"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ...runs.run import Run
from ...solvers.trajectory import Status
from ...symmetries.equilibrium import Equilibrium, equilibrium
from ...symmetries.fixed_point import equilibrium_angle
from ...symmetries.scale import Scale
from ..curves import STEP, scientific
from ..experiment import Experiment
from ..finding import Claim, Curve, Finding, Panel
from ..long_work import LongWork
from ..paper.setting import SCALE_INVARIANT, PaperSetting

# Windows in each half of the run; the first half is for the start to be forgotten.
_WINDOWS = 20


def compute(setting: PaperSetting, work: LongWork) -> dict[str, Any]:
    """Averages of a long run over windows of steps, and over its second half."""
    configuration = setting.configuration
    rate, decay = configuration.learning_rates[0], configuration.weight_decays[0]
    everything = configuration.samples or len(setting.dataset.targets)
    samples = min(configuration.long_samples, everything)
    problem, params = setting.problem(decay, configuration.seed, samples)
    half = max(configuration.long_steps // 2, 1)
    ends = _window_ends(half)
    lengths = np.diff(ends, prepend=0)

    def window(index: int, params: PyTree) -> tuple[dict[str, float], PyTree]:
        layer, count = Scale(SCALE_INVARIANT), int(lengths[index])
        run = equilibrium(problem, layer, params, rate, count, windows=1)
        if run.status != Status.COMPLETED:
            return dict.fromkeys(_MEASURED, np.nan), params
        return {name: float(measure(run)) for name, measure in _MEASURED.items()}, run.params

    found = work.parts(len(ends), params, window)
    second = {name: found[name][ends > half] for name in _MEASURED}
    mean = {
        name: float(np.average(values, weights=lengths[ends > half]))
        for name, values in second.items()
    }
    broken = np.isnan(found["radius"])
    return {
        "learning_rate": rate,
        "weight_decay": decay,
        "samples": samples,
        "status": str(Status.NON_FINITE if np.any(broken) else Status.COMPLETED),
        "steps": ends.tolist(),
        "radius": found["radius"].tolist(),
        "angle": found["angle"].tolist(),
        "decayed": (2 * decay - rate * decay**2) * mean["radius_squared"],
        "gained": rate * mean["force_squared"],
        "drift": mean["drift"],
        "mean_angle": mean["angle"],
        "radius_fluctuation": _fluctuation(second["radius"], second["radius_squared"]),
        "gradient_fluctuation": _fluctuation(second["gradient"], second["gradient_squared"]),
    }


#: What is measured in a window, each a mean over its steps, by name.
_MEASURED: dict[str, Callable[[Equilibrium], Any]] = {
    "radius": lambda run: run.radius_mean[0],
    "radius_squared": lambda run: run.radius_squared[0],
    "gradient": lambda run: run.gradient_mean[0],
    "gradient_squared": lambda run: run.gradient_deviation[0] ** 2 + run.gradient_mean[0] ** 2,
    "force_squared": lambda run: run.force_squared[0],
    "angle": lambda run: run.angle_mean[0],
    "drift": lambda run: run.drift,
}


def _window_ends(half: int) -> np.ndarray:
    """The step at the end of each window, of two halves of so many steps."""
    windows = min(_WINDOWS, half)
    ends = np.rint(np.linspace(0, half, windows + 1)).astype(int)[1:]
    return np.concatenate([ends, half + ends])


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


EXPERIMENT = Experiment("equilibrium", _finding, long_results={"equilibrium": compute})
