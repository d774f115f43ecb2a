"""One's own problem: everything that is asked about it, carried out."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
from jaxtyping import PyTree

from ..counter_terms import taylor
from ..counter_terms.checks.questions import Check, reason_for
from ..problem.chunks import Chunks
from ..problem.problem import Problem
from ..problem.sharding import everywhere
from ..runs.analysis import Analysis
from ..runs.run import Run
from .carry_out import Watcher, carry_out
from .own.setting import OwnSetting, checks_of, is_smooth
from .registry import OWN

# The relative tolerance of flows along a loss with kinks.
_ROUGH = 1e-5


def analyse(
    analysis: Analysis,
    problem: Problem,
    params: PyTree,
    checks: tuple[Check, ...],
    folder: Path,
    command: str,
    watcher: Watcher,
    stopping: Callable[[], bool],
) -> Run | None:
    """The run of an analysis with everything that is asked, computed where it is not there.

    Args:
        analysis: What is asked.
        problem: The problem.
        params: Its initial params.
        checks: Whether the theory applies; see `prepared`.
        folder: Where the runs are; the run has a folder of its own there.
        command: The command at work, to be noted.
        watcher: Hears how it is going.
        stopping: Asked after each record and result; if true, `Stopped` is raised.
    """
    setting = OwnSetting(analysis, problem, params, checks)
    return carry_out(OWN, analysis, folder, lambda: setting, command, watcher, stopping)


def prepared(
    analysis: Analysis, problem: Problem, params: PyTree
) -> tuple[Analysis, tuple[Check, ...]]:
    """The analysis with what it leaves to the problem, and whether the theory applies.

    Raises:
        ValueError: If nothing that is computed would mean anything, or `taylor` is asked for and
            is not to be had.
    """
    checks = checks_of(problem, params, analysis.orders)
    refused = _refused(problem, params)
    if refused and analysis.method == "taylor":
        raise ValueError(
            "`method` must be 'orbit' for this problem, or left out, got 'taylor', which takes "
            f"derivatives that are not to be had ({refused})"
        )
    method = analysis.method or ("orbit" if refused else None)
    # At kinks, exact flows take steps without end.
    rtol = _ROUGH if analysis.rtol is None and not is_smooth(checks) else analysis.rtol
    return replace(analysis, method=method, rtol=rtol), checks


def spread(problem: Problem) -> Problem:
    """The problem with its data on all devices there are.

    Data that are spread already stay where they are, and so do those that come in chunks.
    """
    if problem.data is None or problem.mesh or isinstance(problem.function, Chunks):
        return problem
    return Problem(problem.function, everywhere(problem.data), problem.weight_decay)


def _refused(problem: Problem, params: PyTree) -> str:
    """Why the second derivatives of the gradient are not to be had; nothing if they are.

    What predicts the error of the equation of motion needs them, unless it is made of gradients.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of derivatives that are had, if in a costlier way
        try:
            jax.eval_shape(partial(taylor.counter_terms, problem.gradient, count=2), params)
        except Exception as error:  # whatever a user's function raises when it is differentiated
            return reason_for(error)
    return ""
