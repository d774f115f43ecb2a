"""Up to which learning rate does gradient flow follow descent?"""

from functools import partial
from typing import Any

from ...errors.learning_rate_bound import learning_rate_bound
from ...problem.tree import norm
from ...runs.run import Run
from ..curves import largest, scientific
from ..experiment import Experiment
from ..finding import Claim, Finding, Table
from ..long_work import LongWork
from .setting import OwnSetting, training_of, trainings_of

_KINDS = {"local": "local (the paper's Corollary 4.2)", "propagated": "propagated"}


def _bound(kind: str, setting: OwnSetting, work: LongWork) -> dict[str, Any]:
    """The bound of a kind and the doubt about it, or the reason why there is none."""
    analysis = setting.configuration
    tolerance = analysis.tolerance * float(norm(setting.params))
    found: dict[str, Any] = {"tolerance": tolerance}
    if not setting.smooth:
        # Along kinks the error equation takes steps without end, and means little.
        reason = "not computed: the loss has kinks, where the theory behind it does not hold"
        return found | {"reason": reason}

    def tried(count: int, learning_rate: float) -> None:
        work.tell(f"learning rate {count} tried, {learning_rate:.3g}")

    try:
        bound = learning_rate_bound(
            setting.problem,
            setting.params,
            steps=analysis.steps,
            tolerance=tolerance,
            kind=kind,
            # From gradients alone: a quarter of the time, for the same to some percent.
            method=analysis.method or "orbit",
            progress=tried,
        )
    except (ValueError, RuntimeError) as error:
        return found | {"reason": str(error)}
    return found | {"learning_rate": bound.learning_rate, "doubt": bound.uncertainty}


def _finding(run: Run) -> Finding:
    analysis = run.configuration
    known = {kind: run.results[f"{kind} bound"] for kind in _KINDS}
    tolerance = known["local"]["tolerance"]
    rate, within = analysis.learning_rate, f"{analysis.tolerance:g} ‖θ_0‖"
    measured = largest(run.trainings[training_of(analysis).name].flow(0, "error"))
    rows: list[tuple[str, str]] = []
    claims = [
        Claim(
            f"gradient flow stays within {within} of descent for {analysis.steps:,} steps",
            f"η = {rate:g}, measured error at most {scientific(measured)}, which is "
            f"{scientific(measured / tolerance)} of that",
            measured <= tolerance,
        )
    ]
    for kind, name in _KINDS.items():
        bound = known[kind].get("learning_rate")
        doubt = known[kind].get("doubt")
        said = known[kind].get("reason") or f"η = {rate:g}, the bound is {scientific(bound)}"
        said += "" if doubt is None else f", the error behind it known to {doubt:.0%}"
        claims.append(
            Claim(
                f"the learning rate is within the {kind} bound for that",
                said,
                bound is not None and rate <= bound,
            )
        )
        rows.append((name, "none" if bound is None else f"{bound:.3g}"))
    return Finding(
        "learning_rates",
        "Learning-rate bounds",
        "The learning rate up to which gradient flow stays within the tolerance of descent, over "
        "the same number of steps: measured, and without running descent. The local bound is the "
        "number of steps times the largest local error: where errors shrink on the way it is far "
        "too strict, where they grow a real run may break it. The propagated bound accounts for "
        "both.",
        tuple(claims),
        table=Table(("bound", "learning rate"), tuple(rows)),
    )


EXPERIMENT = Experiment(
    "learning_rates",
    _finding,
    trainings_of,
    long_results={f"{kind} bound": partial(_bound, kind) for kind in _KINDS},
)
