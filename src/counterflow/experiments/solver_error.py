"""The claim that errors are those of the flows, not of the solver that computed them."""

from collections.abc import Sequence

import numpy as np

from ..runs.run import TrainingSeries
from .curves import flow_name, scientific
from .finding import Claim

# How much smaller the solver's own error has to be than the error it measures.
_SMALLER = 10


def solver_claim(trainings: Sequence[TrainingSeries]) -> Claim:
    """The claim that the solver's own error is far below the error of every flow.

    Judged at every record that a flow got to; what a flow did not get to has no error to judge. At
    a learning rate beyond 2/sharpness it is judged as well: the question is the same there, whether
    what is drawn is a distance of the flow itself.

    Args:
        trainings: The trainings whose errors are shown.
    """
    shares: dict[int, float] = {}
    flagged: list[str] = []
    ended: list[str] = []
    for known in trainings:
        at = f"η = {known.training.learning_rate:g}, λ = {known.training.weight_decay:g}"
        for order in sorted(known.training.orders):
            name = f"{flow_name(order)} at {at}"
            # At the start nothing was solved yet.
            error, own = (known.flow(order, which)[1:] for which in ("error", "solver_error"))
            reached = np.isfinite(error) & np.isfinite(own)
            steps, error, own = known.steps[1:][reached], error[reached], own[reached]
            if not np.all(reached):
                ended.append(f"{name} to step {int(steps[-1]) if len(steps) else 0}")
            if not len(steps):
                shares[order] = np.nan
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                largest = float(np.max(np.where(own > 0, own / error, 0)))
            shares[order] = float(np.maximum(shares.get(order, 0.0), largest))
            if over := steps[_SMALLER * own > error].tolist():
                flagged.append(f"{name}, {_listed(over)}")
    figures = "at most " + ", ".join(
        f"{scientific(share)} of that of {flow_name(order)}" for order, share in shares.items()
    )
    if flagged:
        figures += f"; more than a tenth of it: {'; '.join(flagged)}"
    if ended:
        figures += f"; judged as far as it got: {', '.join(ended)}"
    return Claim(
        f"the solver's own error is at least {_SMALLER} times smaller than the discretization "
        "error, at every record",
        figures,
        bool(shares) and not flagged and not np.any(np.isnan(list(shares.values()))),
    )


def _listed(steps: Sequence[int], most: int = 3) -> str:
    """Step numbers in words, the first ones where there are many.

    >>> _listed([25]), _listed([1, 2, 3, 4, 5])
    ('step 25', 'steps 1, 2, 3 and 2 more')
    """
    more = f" and {len(steps) - most} more" if len(steps) > most else ""
    return f"step{'s'[: len(steps) != 1]} {', '.join(map(str, steps[:most]))}{more}"
