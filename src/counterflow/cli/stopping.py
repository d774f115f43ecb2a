"""Ctrl-C: the first stops at the next record, the second at once."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopping_at_a_record(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Within it, Ctrl-C and a request to terminate only set what the function given asks for.

    Args:
        say: Called with what happens next when one of them comes.
    """
    asked = False

    def handle(number: int, frame: Any) -> None:
        nonlocal asked
        del frame
        if asked or number != signal.SIGINT:
            # A terminating system does not wait for the next record: what is kept is safe.
            raise KeyboardInterrupt
        asked = True
        say("stopping at the next record; Ctrl-C once more stops at once, and loses no record")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
