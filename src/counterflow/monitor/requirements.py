"""What is asked of the arguments of a monitor."""

import operator
from collections.abc import Iterable
from typing import Any

from ..symmetries.symmetry import Symmetry


def require_step(step: Any) -> int:
    """The number of a step; raises unless it is an integer."""
    try:
        return operator.index(step)
    except TypeError:
        raise TypeError(
            f"`step` must be an integer, the number of steps taken so far, got {step!r}"
        ) from None


def require_budget(budget: Any) -> float:
    """The budget; raises unless it is a number of at least 0."""
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not budget >= 0:
        raise ValueError(
            f"`budget` must be a number of at least 0, got {budget!r}: it is how many gradients "
            "the monitor may spend for each step of the loop"
        )
    return float(budget)


def require_log(log: Any) -> Any:
    """What is called with every record; raises unless it can be."""
    if log is not None and not callable(log):
        raise TypeError(f"`log` must be a function of a step and a dictionary, got {log!r}")
    return log


def require_symmetries(symmetries: Any) -> str | tuple[Symmetry, ...]:
    """The symmetries, or the word to look for them; raises unless it is either."""
    if symmetries == "find":
        return symmetries
    given = (symmetries,) if isinstance(symmetries, Symmetry) else symmetries
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(
            f"`symmetries` must be 'find' or a list of symmetries, got {symmetries!r}: "
            "for example `[Scale('hidden', axis=1)]`"
        )
    given = tuple(given)
    for symmetry in given:
        if not isinstance(symmetry, Symmetry):
            raise TypeError(f"`symmetries` must be symmetries, got {symmetry!r} among them")
    return given
