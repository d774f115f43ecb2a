"""The store of several processes: the first keeps it, the others learn what it says."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from .opening import writing
from .processes import from_first, told
from .resuming import Resuming
from .states import pack, unpack
from .store import Rows, Store


class SharedStore(Resuming):
    """A store as several processes see it: each calls the same methods in the same order.

    Args:
        store: The store, in the first process; nothing in the others, which may not even see the
            disk that it is on.
    """

    def __init__(self, store: Store | None):
        self._store = store

    @property
    def _kept(self) -> Store:
        assert self._store is not None  # only the first process asks
        return self._store

    def trainings(self) -> dict[str, dict[str, Any]]:
        """As `Store.trainings`."""
        return told(lambda: self._kept.trainings())

    def results(self) -> dict[str, Any]:
        """As `Store.results`."""
        return told(lambda: self._kept.results())

    def series(self, training: str) -> dict[tuple[str, str], dict[int, float]]:
        """As `Store.series`."""
        # As lists: JSON has only texts for keys.
        kept = told(
            lambda: [(key, list(at.items())) for key, at in self._kept.series(training).items()]
        )
        return {tuple(key): dict(map(tuple, at)) for key, at in kept}

    def begin(self, training: str, settings: Any, steps: list[int]) -> None:
        """As `Store.begin`."""
        told(lambda: self._kept.begin(training, settings, steps))

    def require_settings(self, training: str, settings: Any, steps: list[int]) -> None:
        """As `Store.require_settings`."""
        told(lambda: self._kept.require_settings(training, settings, steps))

    def keep(
        self,
        training: str,
        record: int,
        rows: Rows,
        state: PyTree,
        ended: Any,
        statistics: Any,
        seconds: float,
    ) -> None:
        """As `Store.keep`: when this returns anywhere, the record is safe."""
        told(lambda: self._kept.keep(training, record, rows, state, ended, statistics, seconds))

    def finish(self, training: str, status: str) -> None:
        """As `Store.finish`."""
        told(lambda: self._kept.finish(training, status))

    def add_result(self, name: str, value: Any, seconds: float) -> None:
        """As `Store.add_result`."""
        told(lambda: self._kept.add_result(name, value, seconds))

    def states(self, training: str) -> list[tuple[int, str]]:
        """As `Store.states`."""
        return told(lambda: self._kept.states(training))

    def state(self, training: str, record: int, like: PyTree) -> PyTree:
        """As `Store.state`."""
        return unpack(from_first(lambda: pack(self._kept.state(training, record, like))), like)

    def go_back(self, training: str, record: int) -> None:
        """As `Store.go_back`."""
        told(lambda: self._kept.go_back(training, record))

    def require_no_records(self, training: str, wrong: str) -> None:
        """As `Store.require_no_records`."""
        told(lambda: self._kept.require_no_records(training, wrong))


@contextmanager
def writing_together(
    folder: Path, configuration: str, command: str, say: Callable[[str], None]
) -> Iterator[Store | SharedStore]:
    """As `writing`; of several processes, the first one has the folder."""
    with ExitStack() as stack:
        opened: list[Store] = []

        def open_store() -> None:
            opened.append(stack.enter_context(writing(folder, configuration, command, say)))

        told(open_store)
        if jax.process_count() == 1:
            yield opened[0]
        else:
            yield SharedStore(opened[0] if opened else None)
