"""Figure 4: the counter term reduces the error, and so does a smaller learning rate."""

from collections.abc import Sequence
from itertools import pairwise

from ...runs.configuration import Configuration
from ...runs.run import Run, TrainingSeries
from ...runs.training import Training
from ..curves import (
    by_method,
    error_panel,
    flow_name,
    largest,
    on_further_orders,
    scientific,
)
from ..experiment import Experiment
from ..finding import Claim, Finding
from ..solver_error import solver_claim
from ..trainings import at_weight_decay, series


def small_rates(run: Run, weight_decay: float) -> list[TrainingSeries]:
    """All trainings at a weight decay but the one at the largest learning rate, if there are."""
    at = [series(run, one) for one in at_weight_decay(run.configuration, weight_decay)]
    return at[1:] or at


def _trainings(configuration: Configuration) -> tuple[Training, ...]:
    return at_weight_decay(configuration, configuration.weight_decays[-1])


def claims(at: Sequence[TrainingSeries], quantity: str) -> tuple[Claim, ...]:
    """What is claimed of several learning rates, the largest first."""
    # Up to the time that all of them reach.
    end = min(float(known.times[-1]) for known in at) * (1 + 1e-12)
    errors = {
        order: [largest(known.flow(order, quantity)[known.times <= end]) for known in at]
        for order in at[0].training.orders
    }
    settings = at[0].training
    decay = settings.weight_decay
    rates = ", ".join(f"{known.training.learning_rate:g}" for known in at)
    where = f"at η = {rates}, λ = {decay:g}, up to t = {end:g}"

    said = "relative error" if quantity == "relative_error" else "error"

    def listed(order: int) -> str:
        return f"{flow_name(order)} {', '.join(map(scientific, errors[order]))}"

    found = [
        Claim(
            f"{by_method(settings, order)} is closer to descent than "
            f"{by_method(settings, order - 1)}, {where}",
            f"largest {said}: {listed(order - 1)}; {listed(order)}",
            all(b < a for a, b in zip(errors[order - 1], errors[order], strict=True)),
        )
        for order in errors
        if order - 1 in errors
    ]
    if len(at) > 1:
        found.append(
            Claim(
                f"a smaller learning rate gives a smaller error, {where}",
                "; ".join(map(listed, errors)),
                all(b < a for row in errors.values() for a, b in pairwise(row)),
            )
        )
    return tuple(found)


def _finding(run: Run) -> Finding:
    decay = run.configuration.weight_decays[-1]
    at = small_rates(run, decay)
    return Finding(
        "figure4",
        "Figure 4: the error of gradient flow and of the equation of motion",
        f"The error at the smaller learning rates, λ = {decay:g}; all of them are in Figure 3."
        + on_further_orders(run.configuration.orders),
        (*claims(at, "error"), solver_claim(at)),
        (error_panel(at, rates=run.configuration.learning_rates),),
    )


EXPERIMENT = Experiment("figure4", _finding, _trainings)
