"""One's own problem: everything that is asked about it, carried out."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import jax
from jaxtyping import PyTree

from ..counter_terms import taylor
from ..counter_terms.checks.questions import Check
from ..problem.problem import Problem
from ..runs.analysis import Analysis
from ..runs.run import Run
from .carry_out import Watcher, carry_out
from .own.setting import OwnSetting
from .registry import OWN


def analyse(
    analysis: Analysis,
    problem: Problem,
    params: PyTree,
    checks: tuple[Check, ...],
    folder: Path,
    command: str,
    watcher: Watcher,
    stopping: Callable[[], bool],
) -> Run:
    """The run of an analysis with everything that is asked, computed where it is not there.

    Args:
        analysis: What is asked.
        problem: The problem.
        params: Its initial params.
        checks: Whether the theory applies; see `checks_of`.
        folder: Where the runs are; the run has a folder of its own there.
        command: The command at work, to be noted.
        watcher: Hears how it is going.
        stopping: Asked after each record and result; if true, `Stopped` is raised.
    """
    setting = OwnSetting(analysis, problem, params, checks)
    return carry_out(OWN, analysis, folder, lambda: setting, command, watcher, stopping)


def usual_method(problem: Problem, params: PyTree) -> Literal["orbit"] | None:
    """`orbit` where the second derivatives of the gradient are not to be had, else no preference.

    What predicts the error of the equation of motion needs them, unless it is made of gradients.
    """
    try:
        jax.eval_shape(partial(taylor.counter_terms, problem.gradient, count=2), params)
    except Exception:
        return "orbit"
    return None
