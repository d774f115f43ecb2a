"""Does the theory apply to the problem?"""

from dataclasses import asdict
from typing import Any

from ...runs.run import Run
from ..experiment import Experiment
from ..finding import Claim, Finding
from .setting import OwnSetting

# What each check of `check_problem` is about.
_CLAIMS = {
    "params": "the params are float arrays",
    "dtype": "they are in double precision",
    "closure": "the loss closes over no large arrays",
    "finite": "loss and gradient are finite",
    "determinism": "the loss is the same every time",
    "samples": "the loss of a chunk is a mean over its samples",
    "gradient": "the gradient is that of the loss",
    "smoothness": "the loss is smooth enough",
    "methods": "the methods for counter terms work and agree",
}


def _checks(setting: OwnSetting) -> list[dict[str, Any]]:
    return [asdict(check) for check in setting.checks]


def _finding(run: Run) -> Finding:
    order = max(run.configuration.orders)
    return Finding(
        "problem",
        "The problem",
        f"Whether what the theory asks for up to order {order} is there, as `cf.check_problem` "
        "measured it at the initial params.",
        tuple(
            Claim(
                _CLAIMS.get(check["name"]) or check["name"],
                ("a warning: " if check["level"] == "warning" else "") + check["message"],
                check["level"] != "failure",
            )
            for check in run.results["checks"]
        ),
    )


EXPERIMENT = Experiment("problem", _finding, results={"checks": _checks})
