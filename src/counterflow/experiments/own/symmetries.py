"""Which layers can be scaled, shifted or rescaled without a change of the loss?"""

from typing import Any

from ...runs.run import Run
from ..experiment import Experiment
from ..finding import Claim, Finding, Table
from .setting import OwnSetting

_KINDS = "translation, scale or rescale symmetry"


def found(setting: OwnSetting) -> dict[str, Any]:
    """The symmetries that the problem has, as JSON values."""
    known = setting.symmetries
    return {
        "tolerance": known.tolerance,
        "unused": list(known.unused),
        "found": [
            {"symmetry": repr(one.symmetry), "units": one.units, "residual": one.residual}
            for one in known.found
        ],
    }


def _finding(run: Run) -> Finding:
    known = run.results["found symmetries"]
    there, unused = known["found"], known["unused"]
    said = (
        f"{len(there)} found, residuals at most {max(one['residual'] for one in there):.1e}"
        if there
        else f"none within the tolerance {known['tolerance']:g}"
    )
    if unused:
        # As on a bias before a normalization, which does no harm.
        said += f"; the loss does not depend on {', '.join(unused)}"
    rows = tuple((one["symmetry"], str(one["units"]), f"{one['residual']:.1e}") for one in there)
    return Finding(
        "symmetries",
        "Symmetries",
        "Found by measuring the loss, not from names: every array and every axis of it is tried, "
        "and groups of them. Each has a charge that gradient flow without weight decay conserves.",
        (Claim(f"the loss has a {_KINDS}", said, bool(there)),),
        table=Table(("symmetry", "units", "residual"), rows) if rows else None,
    )


EXPERIMENT = Experiment("symmetries", _finding, results={"found symmetries": found})
