"""What a run cost: gradient evaluations and time, part by part, beside what the paper took."""

from collections.abc import Mapping
from typing import Any

from ..experiments.curves import flow_name
from ..experiments.finding import Table
from ..runs.analysis import Analysis
from ..runs.run import Run, TrainingSeries

#: The steps that the paper took for one flow, their length, and what all of them took together.
PAPER_STEPS, PAPER_STEP, PAPER_TIME = 5_000_000, 1e-5, "about a month on a DGX-1"

# Parts of a training that are no flow, by the start of their name, and what the table calls them.
_CHECKS = {
    "coarse flow": "coarse flows",
    "prediction": "predictions",
    "restarted prediction": "restarted predictions",
}


def total_cost(run: Run) -> tuple[int, float]:
    """All gradient evaluations of the trainings of a run, and the seconds everything took."""
    evaluations = sum(_evaluations(known) for known in run.trainings.values())
    trainings = sum(known.seconds for known in run.trainings.values())
    return evaluations, float(trainings + sum(run.result_seconds.values()))


def cost_said(run: Run) -> str:
    """What a run cost, in words: the trainings, and apart from them the long run, if there is one.

    A gradient of the long run is one on other, mostly fewer, images.
    """
    evaluations, seconds = total_cost(run)
    long = run.results.get("equilibrium")
    if long is None:
        return f"{evaluations:,} gradient evaluations in {duration(seconds)}"
    return (
        f"{evaluations:,} gradient evaluations in trainings and {_steps(long):,} in the long run "
        f"on {long['samples']:,} images, all in {duration(seconds)}"
    )


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(8.2), duration(200.0), duration(9000.0)
    ('8 s', '3 min 20 s', '2 h 30 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def cost_note(run: Run) -> str:
    """How to read the table of costs."""
    note = (
        "Gradient evaluations are counted of all parts together, then of descent, of the flow of "
        "each order and of what checks and predicts them; a product with the Hessian counts as "
        "two. Coarse flows are the same flows solved once more with ten times the tolerance: how "
        "far they are from the first is the solver's own error. The times also include measuring "
        "sharpness, which is not counted, and the results that are no trainings."
    )
    if isinstance(run.configuration, Analysis):
        return note
    return (
        f"The paper simulated each flow by {PAPER_STEPS:,} Euler steps, to t = "
        f"{PAPER_STEPS * PAPER_STEP:g}; all of its experiments took {PAPER_TIME}. Beside each "
        f"training is how many of these steps, of length {PAPER_STEP:g}, one flow takes to the "
        f"time reached here. {note} Of these results the long run of descent (`equilibrium`) has "
        "its own row, a gradient for every step, on the images that it takes; it is not in the sum "
        "of the trainings."
    )


def cost_table(run: Run) -> Table:
    """A row for every training and every other result, a column for every kind of work."""
    own = isinstance(run.configuration, Analysis)
    trainings = run.trainings.values()
    orders = sorted({order for known in trainings for order in known.training.orders})
    parts = {"descent": "descent"} | {f"flow {order}": flow_name(order) for order in orders}
    parts |= {
        part: name
        for part, name in _CHECKS.items()
        if any(_has(known, part) for known in trainings)
    }
    paper = () if own else ("Euler steps (paper)",)
    header = ("training", "took", "steps", "to t", *paper, "gradient evaluations", *parts.values())

    def reached(steps: int, learning_rate: float, flows: bool = True) -> tuple[str, ...]:
        time = steps * learning_rate
        euler = f"{round(time / PAPER_STEP):,}" if flows else ""
        return f"{steps:,}", f"{time:g}", *(() if own else (euler,))

    rows = [
        (
            name,
            duration(known.seconds),
            *reached(int(known.steps[-1]) if len(known.steps) else 0, known.training.learning_rate),
            f"{_evaluations(known):,}",
            *(f"{_evaluations(known, part):,}" if _has(known, part) else "–" for part in parts),
        )
        for name, known in run.trainings.items()
    ]
    evaluations, seconds = total_cost(run)
    took = duration(float(sum(known.seconds for known in trainings)))
    sums = [f"{sum(_evaluations(known, part) for known in trainings):,}" for part in parts]
    rows.append(("all trainings", took, "", "", *[""] * len(paper), f"{evaluations:,}", *sums))
    for name, spent in run.result_seconds.items():
        said = [""] * (len(header) - 2)
        if name == "equilibrium" and name in run.results:
            found = run.results[name]
            name = f"{name}, on {found['samples']:,} images"
            count, rest = f"{_steps(found):,}", [""] * (len(parts) - 1)
            said = [*reached(_steps(found), found["learning_rate"], flows=False), count, count]
            said += rest
        rows.append((name, duration(spent), *said))
    rows.append(("everything", duration(seconds), *[""] * (len(header) - 2)))
    return Table(header, tuple(rows))


def _steps(long: Mapping[str, Any]) -> int:
    """The steps of the long run, a gradient each."""
    return int(long["steps"][-1])


def _of(known: TrainingSeries, part: str) -> list[int]:
    """The gradient evaluations of the parts of a training with a name, whatever their order."""
    return [
        cost["gradient_evaluations"] or 0
        for name, cost in known.statistics.items()
        if not part or name == part or name.startswith(f"{part} ")
    ]


def _has(known: TrainingSeries, part: str) -> bool:
    return bool(_of(known, part))


def _evaluations(known: TrainingSeries, part: str = "") -> int:
    return sum(_of(known, part))
