"""An experiment: which trainings and results it needs, and what it makes of them."""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import PyTree

from ..problem.problem import Problem
from ..runs.run import Run
from ..runs.training import Training
from .finding import Finding
from .long_work import LongWork


class Setting(abc.ABC):
    """What is trained."""

    @abc.abstractmethod
    def start(self, training: Training) -> tuple[Problem, PyTree]:
        """The problem of a training and its initial params."""

    @abc.abstractmethod
    def observables(self, params: PyTree) -> dict[str, float]:
        """What is measured of params at every record, by name."""


def no_trainings(configuration: Any) -> tuple[Training, ...]:
    """For an experiment that needs none."""
    del configuration
    return ()


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper, or in its manner; of its configuration and its setting.

    Attributes:
        name: The name to ask for it by.
        finding: What it finds in a run that has what it needs.
        trainings: The trainings it needs.
        results: By name, the results it needs besides; functions that compute them as JSON values.
        long_results: Likewise those that take long or have something to say on the way; their
            functions are also given a `LongWork`.
    """

    name: str
    finding: Callable[[Run], Finding]
    trainings: Callable[[Any], tuple[Training, ...]] = no_trainings
    results: Mapping[str, Callable[[Any], Any]] | None = None
    long_results: Mapping[str, Callable[[Any, LongWork], Any]] | None = None

    @property
    def computed(self) -> dict[str, Callable[[Any, LongWork], Any]]:
        """All results, by name, as functions of the setting and the work."""
        short = {
            name: lambda setting, work, compute=compute: compute(setting)
            for name, compute in (self.results or {}).items()
        }
        return short | dict(self.long_results or {})
