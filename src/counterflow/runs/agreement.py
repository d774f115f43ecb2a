"""How far apart two runs of one configuration are, as on another machine or more of them."""

import numpy as np

from .run import Run, TrainingSeries

# Those that rounding changes in their own last digits; others are differences of params.
_OWN_SIZE = ("loss", "flow_loss", "sharpness")


def apart(run: Run, other: Run) -> dict[str, float]:
    """By quantity, the largest difference between the series of two runs, relative.

    Losses and charges are relative to themselves. Errors and what predicts them are differences of
    params, and relative to the norm of these: in an error of 1e-8, eight digits are rounding.
    Differences between a flow and its coarser solution are left out: they are the solver's errors
    of an error. So are series that only one of the runs has.
    """
    found: dict[str, float] = {}
    for name, known in run.trainings.items():
        if name not in other.trainings:
            continue
        for (process, quantity), values in known.series.items():
            others = other.trainings[name](process, quantity)
            count = min(len(values), len(others))
            with np.errstate(invalid="ignore", divide="ignore"):
                size = _sizes(known, process, quantity)[:count]
                ratios = np.abs(values[:count] - others[:count]) / size
            ratios = ratios[np.isfinite(ratios)]
            if quantity != "solver_error" and len(ratios):
                found[quantity] = max(found.get(quantity, 0.0), float(ratios.max()))
    return found


def _sizes(known: TrainingSeries, process: str, quantity: str) -> np.ndarray:
    """What a difference of a quantity is to be compared with, at every record."""
    values = np.abs(known(process, quantity))
    if quantity in _OWN_SIZE:
        return values
    error, relative = known(process, "error"), known(process, "relative_error")
    if quantity == "relative_error":
        return np.ones_like(values)
    if quantity.endswith("mismatch"):
        return 1 / relative
    if quantity in ("error", "rounding") or quantity.endswith(("prediction", "uncertainty")):
        return error / relative
    # A charge decays: of what it was.
    return np.full_like(values, np.nanmax(values, initial=0.0))
