"""The work on a result that takes long: it says how far it is, can be stopped, and goes on."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..runs.shared_store import SharedStore
from ..runs.store import Store
from ..runs.training import Stopped

#: Computes a part: given its index and the state before it, its values by name and the state after.
Part = Callable[[int, Any], tuple[dict[str, float], Any]]


class LongWork:
    """What a result is given that takes long, or has something to say on the way.

    Args:
        name: The name of the result.
        store: Where its parts are kept.
        tell: Called with how far it is: parts done, parts in all, or words where that is not known.
        stopping: Asked in between; if true, `Stopped` is raised.
        say: Called with what the user should know.
    """

    def __init__(
        self,
        name: str,
        store: Store | SharedStore,
        tell: Callable[[int, int, str], None],
        stopping: Callable[[], bool],
        say: Callable[[str], None],
    ):
        self.name, self._store = name, store
        self._tell, self._stopping, self.say = tell, stopping, say
        #: The seconds that parts took in earlier sittings.
        self.earlier = 0.0

    def tell(self, words: str) -> None:
        """Says how far the work is; stops it here if that is wished."""
        self._tell(0, 0, words)
        if self._stopping():
            raise Stopped

    def parts(self, count: int, start: PyTree, part: Part) -> dict[str, np.ndarray]:
        """The values of every part, by name, computed where they are not kept already.

        Each part is safe on disk, with the state after it, before the next is begun.

        Args:
            count: How many parts there are.
            start: The state before the first.
            part: Computes one.
        """
        state = start

        def fill(ended: Any, load: Callable[[PyTree], PyTree]) -> None:
            nonlocal state
            state = load(start)

        done, wrong = self._store.resume(self.name, fill)
        if wrong:
            self.say(f"{wrong}; going on from the state before it, with {done} parts done")
        self.earlier = float(np.sum(self._kept(done).get("seconds", 0.0)))
        for index in range(done, count):
            since = time.perf_counter()
            values, state = part(index, state)
            rows = {self.name: values | {"seconds": time.perf_counter() - since}}
            self._store.keep(self.name, index, rows, state, {}, {}, 0.0)
            self._tell(index + 1, count, "")
            if index + 1 < count and self._stopping():
                raise Stopped
        return self._kept(count)

    def _kept(self, count: int) -> dict[str, np.ndarray]:
        """The values of the first parts, by name."""
        kept = self._store.series(self.name)
        return {
            quantity: np.array([at[index] for index in range(count)])
            for (_, quantity), at in kept.items()
        }
