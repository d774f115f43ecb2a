"""An experiment's cases, each computed once and kept, and the verdict on its claims."""

import abc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..runs.results import ResultsFile

Progress = Callable[[str, int, int], None]


class Verdict(abc.ABC):
    """The result of an experiment, which says of every claim whether it holds."""

    @property
    @abc.abstractmethod
    def claims(self) -> dict[str, bool]:
        """Each claim, and whether it holds."""

    @property
    def verdict(self) -> bool:
        """Whether every claim holds."""
        return all(self.claims.values())


def silent(name: str, done: int, total: int) -> None:
    """Shows no progress."""
    del name, done, total


def results_of(
    path: Path,
    configuration: dict[str, Any],
    cases: Mapping[str, Callable[[], Any]],
    progress: Progress,
) -> dict[str, Any]:
    """The result of every case by name, computed where it is not yet on file.

    Args:
        path: The file of results.
        configuration: Everything the results depend on, as JSON values.
        cases: By name, functions that compute a result as JSON values.
        progress: Called with what comes next and how many cases are done and to do.
    """
    file = ResultsFile(path, configuration)
    for done, (name, compute) in enumerate(cases.items()):
        if name not in file.results:
            progress(name, done, len(cases))
            file.add(name, compute())
    progress("done", len(cases), len(cases))
    return {name: file.results[name] for name in cases}


def with_tuples(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored result with tuples in place of the lists that JSON makes of them."""

    def as_tuple(value: Any) -> Any:
        return tuple(map(as_tuple, value)) if isinstance(value, list) else value

    return {name: as_tuple(value) for name, value in stored.items()}
