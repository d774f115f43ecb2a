"""Compiled programs, kept on disk between processes, and the time that compiling takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jax
import pooch

# Programs that compile in less are not worth a file.
_SHORTEST = 0.2
_COMPILED = "/jax/core/compile/backend_compile_duration"
_FOUND = "/jax/compilation_cache/cache_hits"


@dataclass
class Compilation:
    """What was compiled so far: seconds, programs, and how many of them were found on disk."""

    seconds: float = 0.0
    programs: int = 0
    found: int = 0

    def __str__(self) -> str:
        return (
            f"compiled {self.programs} programs in {self.seconds:.0f} s; {self.found} of them were "
            "on disk"
        )


@contextmanager
def compiled_on_disk() -> Iterator[Compilation]:
    """Keeps compiled programs in the user's cache, and counts them.

    Where JAX was given a folder already (`JAX_COMPILATION_CACHE_DIR`), that one is used.
    """
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        folder = Path(pooch.os_cache("counterflow")) / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _SHORTEST)
    done = Compilation()

    def lasted(event: str, duration_secs: float, **_: object) -> None:
        if event == _COMPILED:
            done.seconds += duration_secs
            done.programs += 1

    def happened(event: str, **_: object) -> None:
        done.found += event == _FOUND

    jax.monitoring.register_event_duration_secs_listener(lasted)
    jax.monitoring.register_event_listener(happened)
    try:
        yield done
    finally:
        jax.monitoring.unregister_event_duration_listener(lasted)
        jax.monitoring.unregister_event_listener(happened)
