"""Does the series of counter terms converge at this learning rate?"""

import warnings
from typing import Any

from ...dynamics.equation_of_motion import EquationOfMotion
from ...runs.run import Run
from ..curves import scientific
from ..experiment import Experiment
from ..finding import Claim, Finding, Table
from .setting import OwnSetting


def _convergence(setting: OwnSetting) -> dict[str, Any]:
    analysis = setting.configuration
    order, method = max(analysis.orders), analysis.method or "taylor"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the verdict says it
        motion = EquationOfMotion(setting.problem, analysis.learning_rate, order, method)
        found = motion.convergence(setting.params)
    return {
        "gradient_size": found.gradient_size,
        "sizes": list(found.sizes),
        "ratios": list(found.ratios),
        "converging": found.converging,
        "verdict": found.verdict,
    }


def _finding(run: Run) -> Finding:
    known = run.results["convergence"]
    rows = [("g", scientific(known["gradient_size"]), "")]
    rows += [
        (f"η^{alpha + 1} ξ̃_{alpha}", scientific(size * run.configuration.learning_rate), f"{r:.3g}")
        for alpha, (size, r) in enumerate(zip(known["sizes"], known["ratios"], strict=True))
    ]
    return Finding(
        "convergence",
        "Convergence of the counter terms",
        "The terms of the equation of motion's velocity at the initial params. While each is "
        "smaller than the one before, higher orders help; where they grow, none is to be trusted.",
        (
            Claim(
                "the series of counter terms converges at the start",
                known["verdict"],
                known["converging"],
            ),
        ),
        table=Table(("term", "norm", "over the one before"), tuple(rows)),
    )


EXPERIMENT = Experiment("convergence", _finding, results={"convergence": _convergence})
