"""Going on with a training from the last of its states that is whole."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from jaxtyping import PyTree

from .processes import FirstFailed

#: What a training does with a state: given what `keep` was given as `ended`, and a function that
#: returns the stored state, given one of its structure.
Fill = Callable[[dict[str, dict[str, str]], Callable[[PyTree], PyTree]], None]


class Resuming(ABC):
    """What has states can be gone on with."""

    @abstractmethod
    def states(self, training: str) -> Sequence[tuple[int, str]]:
        """The records of which there are states, the latest first, with their `ended` as JSON."""

    @abstractmethod
    def state(self, training: str, record: int, like: PyTree) -> PyTree:
        """The state of a record, with the structure of another one."""

    @abstractmethod
    def go_back(self, training: str, record: int) -> None:
        """Forgets what came after a record."""

    @abstractmethod
    def require_no_records(self, training: str, wrong: str) -> None:
        """Raises if there are records, none of which can be gone on from."""

    def resume(self, training: str, fill: Fill) -> tuple[int, str]:
        """Goes on with a training from the last record whose state is whole.

        Args:
            training: Its name.
            fill: Called with what was stored.

        Returns:
            How many records are done, and what was wrong with a later state, if anything was.
        """
        wrong = ""
        for record, ended in self.states(training):
            try:
                fill(json.loads(ended), lambda like, r=record: self.state(training, r, like))
            except (OSError, LookupError, TypeError, ValueError, FirstFailed) as error:
                wrong = str(error)
                continue
            self.go_back(training, record)
            return record + 1, wrong
        self.require_no_records(training, wrong)
        return 0, wrong
