"""Several seeds: how much the errors depend on the initial weights."""

import numpy as np

from ...runs.configuration import Configuration
from ...runs.run import Run
from ...runs.training import Training
from ..curves import TIME, flow_name, last, order_role, scientific
from ..experiment import Experiment
from ..finding import Claim, Curve, Finding, Panel
from ..trainings import middle, other_seeds, series


def _trainings(configuration: Configuration) -> tuple[Training, ...]:
    return (middle(configuration), *other_seeds(configuration))


def _finding(run: Run) -> Finding:
    known = [series(run, one) for one in _trainings(run.configuration)]
    # The first training has a record more, where its predictions restart.
    steps = known[-1].steps
    curves, claims = [], []
    count = f"{len(known)} seed{'s'[: len(known) != 1]}"
    ends = {
        order: np.array([last(one.flow(order, "relative_error")) for one in known])
        for order in (0, 1)
    }
    for order in (0, 1):
        rows = [one.flow(order, "relative_error")[np.isin(one.steps, steps)] for one in known]
        values = np.stack([row[: min(map(len, rows))] for row in rows])
        times = steps[: values.shape[1]] * known[0].training.learning_rate
        band = (np.min(values, axis=0), np.max(values, axis=0))
        middle_value = np.median(values, axis=0)
        curves.append(Curve(flow_name(order), order_role(order), times, middle_value, band=band))
        spread = float(np.max(ends[order]) / np.min(ends[order]))
        if len(known) < 2:
            continue  # one seed has no spread
        claims.append(
            Claim(
                f"the error of {flow_name(order)} is the same within a factor of two for all seeds",
                f"{scientific(float(np.min(ends[order])))} … "
                f"{scientific(float(np.max(ends[order])))}; {count}",
                spread < 2,
            )
        )
    several = len(known) > 1
    claims += [
        Claim(
            "the equation of motion is closer to descent than gradient flow for every seed",
            f"by factors of {scientific(float(np.min(ends[0] / ends[1])))} to "
            f"{scientific(float(np.max(ends[0] / ends[1])))}",
            bool(np.all(ends[1] < ends[0])),
        )
    ] * several
    settings = known[0].training
    title = f"η = {settings.learning_rate:g}, λ = {settings.weight_decay:g}, {count}"
    panel = Panel(title, TIME, "relative error ‖e_k‖/‖θ_k‖", tuple(curves), y_scale="log")
    return Finding(
        "seeds",
        "Spread over seeds",
        "The relative error for several initial weights: the median, and from the smallest to the "
        "largest. The paper shows one seed.",
        tuple(claims),
        (panel,),
    )


EXPERIMENT = Experiment("seeds", _finding, _trainings)
