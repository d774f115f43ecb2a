"""Which layers can be scaled, shifted or rescaled without a change of the loss?"""

from typing import Any

from ...runs.run import Run
from ...symmetries.find_symmetries import FoundSymmetry
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
        "found": list(map(_as_json, known.found)),
        "nearly": list(map(_as_json, known.nearly)),
    }


def _as_json(one: FoundSymmetry) -> dict[str, Any]:
    return {"symmetry": repr(one.symmetry), "units": one.units, "residual": one.residual}


def _finding(run: Run) -> Finding:
    known = run.results["found symmetries"]
    there, unused = known["found"], known["unused"]
    nearly = known.get("nearly", [])  # earlier runs did not look for these
    said = (
        f"{len(there)} found, residuals at most {max(one['residual'] for one in there):.1e}"
        if there
        else f"none within the tolerance {known['tolerance']:g}"
    )
    for one in nearly:
        said += f"; nearly: {one['symmetry']}, residual {one['residual']:.0e}"
    if unused:
        # As on a bias before a normalization, which does no harm.
        said += f"; the loss does not depend on {', '.join(unused)}"
    shown = [("", one) for one in there] + [("nearly ", one) for one in nearly]
    rows = tuple(
        (word + one["symmetry"], str(one["units"]), f"{one['residual']:.1e}") for word, one in shown
    )
    caption = (
        "Found by measuring the loss, not from names: every array and every axis of it is tried, "
        "and groups of them. Each has a charge that gradient flow without weight decay conserves."
    )
    if nearly:
        caption += (
            " What holds only nearly has one that is conserved as nearly: a scale, as a rule, "
            "before a normalization with an epsilon, which is exact with a smaller epsilon."
        )
    return Finding(
        "symmetries",
        "Symmetries",
        caption,
        (Claim(f"the loss has a {_KINDS}", said, bool(there)),),
        table=Table(("symmetry", "units", "residual"), rows) if rows else None,
    )


EXPERIMENT = Experiment("symmetries", _finding, results={"found symmetries": found})
