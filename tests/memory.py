"""How much memory Python takes, for tests that it is not much."""

import tracemalloc
from contextlib import contextmanager


@contextmanager
def peak_memory():
    """A function that says how many bytes were held at most within, once it is left."""
    peak = [0]
    tracemalloc.start()
    try:
        yield lambda: peak[0]
    finally:
        peak[0] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
