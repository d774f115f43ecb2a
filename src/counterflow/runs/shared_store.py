"""The store of several processes: the first keeps it, the others learn what it says."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from .opening import writing
from .processes import from_first, is_first, told
from .states import pack, unpack
from .store import Rows, Store


class SharedStore:
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

    def resume(
        self, training: str, fill: Callable[[Any, Callable[[PyTree], PyTree]], None]
    ) -> tuple[int, str]:
        """As `Store.resume`."""
        ended, content = None, b""

        def note(told_ended: Any, read: Callable[[PyTree], PyTree]) -> None:
            nonlocal ended, content

            def packed(like: PyTree) -> PyTree:
                nonlocal content
                content = pack(state := read(like))
                return state

            fill(told_ended, packed)
            ended = told_ended

        def look() -> Any:
            done, wrong = self._kept.resume(training, note)
            return done, wrong, ended

        done, wrong, where = told(look)
        if done:
            state = from_first(lambda: content)
            if not is_first():
                fill(where, lambda like: unpack(state, like))
        return done, wrong


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
