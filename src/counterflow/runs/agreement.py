"""How far apart two runs of one configuration are, as on another machine or more of them."""

import numpy as np

from .run import Run, TrainingSeries

# Those that rounding changes in their own last digits; others are differences of params.
_OWN_SIZE = ("loss", "flow_loss", "sharpness")


def apart(run: Run, other: Run) -> dict[str, float]:
    """By quantity, the largest difference between the series of two runs, relative.

    Losses are relative to themselves, charges, which decay, to the largest of their series. Errors
    and what predicts them are differences of params, and relative to the norm of these: in an error
    of 1e-8, eight digits are rounding.
    Differences between a flow and its coarser solution are left out: they are the solver's errors
    of an error. Where only one of the series is finite, they are infinitely far apart.

    Raises:
        ValueError: If the runs do not have the same trainings, series and records.
    """
    found: dict[str, float] = {}
    if run.trainings.keys() != other.trainings.keys():
        raise ValueError(
            f"both runs must have the same trainings, got {list(run.trainings)} and "
            f"{list(other.trainings)}"
        )
    for name, known in run.trainings.items():
        others = other.trainings[name]
        if known.series.keys() != others.series.keys() or len(known.steps) != len(others.steps):
            raise ValueError(
                f"both runs must have the same series and records of {name}, got "
                f"{len(known.series)} and {len(others.series)} series, {len(known.steps)} and "
                f"{len(others.steps)} records"
            )
        for (process, quantity), values in known.series.items():
            if quantity != "solver_error":
                with np.errstate(invalid="ignore", divide="ignore"):
                    sizes = _sizes(known, process, quantity)
                    far = _farthest(values, others(process, quantity), sizes)
                found[quantity] = max(found.get(quantity, 0.0), far)
    return found


def _farthest(values: np.ndarray, others: np.ndarray, sizes: np.ndarray) -> float:
    finite = np.isfinite(values)
    if not np.array_equal(finite, np.isfinite(others)):
        return np.inf
    differ = finite & (values != others)
    ratios = np.abs(values[differ] - others[differ]) / sizes[differ]
    return float(np.max(np.nan_to_num(ratios, nan=np.inf), initial=0.0))


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
    # A charge decays: of the largest that it was.
    return np.full_like(values, np.nanmax(values, initial=0.0))
