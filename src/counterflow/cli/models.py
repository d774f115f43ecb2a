"""One's own problem, from a file that is named on the command line."""

import contextlib
import difflib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from jaxtyping import PyTree

from ..data.files import read_plain
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from .working import CommandError

# A longer file is none that someone wrote.
_MOST_BYTES = 2**24
# Where code is that no user wrote; there may be several folders of installed packages.
_INSTALLED = {"site-packages", "dist-packages"}
_LIBRARIES = tuple(
    Path(folder).resolve()
    for folder in (Path(__file__).parents[1], *map(sysconfig.get_path, ("stdlib", "platstdlib")))
)
_EXPECTED = "a pair (problem, params), or a function without arguments that returns one"


@dataclass(frozen=True, eq=False)
class Model:
    """One's own problem.

    Attributes:
        name: Where it comes from, as `my_model.py:problem`.
        path: The file.
        source: The text of the file.
        problem: The problem.
        params: Its initial params.
    """

    name: str
    path: Path
    source: str
    problem: Problem
    params: PyTree


def load_model(named: str) -> Model:
    """The problem that `FILE.py:NAME` names.

    Raises:
        CommandError: If there is none, or what the file does fails; with the file's own lines.
    """
    file, colon, attribute = named.rpartition(":")
    if not (colon and file and attribute):
        raise CommandError(
            f"a model is named as FILE.py:NAME, such as my_model.py:problem, got {named!r}"
            + (f": did you mean {named}:problem?" if named.endswith(".py") else "")
        )
    path = Path(file)
    content = _content(path)
    with blaming(path):
        source = importlib.util.decode_source(content)
        module = _imported(path)
        if not hasattr(module, attribute):
            names = [name for name in vars(module) if not name.startswith("_")]
            own = [name for name in names if not isinstance(getattr(module, name), ModuleType)]
            hint = _nearest(attribute, own) or f"it has {', '.join(own) or 'nothing'}"
            raise CommandError(f"{path} has no {attribute!r}: {hint}")
        found = getattr(module, attribute)
        if callable(found) and not isinstance(found, Problem):
            found = found()
        problem, params = _pair(found, named)
        params = at_the_door(problem, params)
    return Model(f"{path.name}:{attribute}", path, source, problem, params)


def _content(path: Path) -> bytes:
    """The bytes of a Python file that is there."""
    try:
        content = read_plain(path, _MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        near = [one.name for one in path.parent.glob("*.py")] if path.parent.is_dir() else []
        hint = _nearest(path.name, near) or "`counterflow init` writes one to start from"
        raise CommandError(f"there is no file {path}: {hint}") from error
    except OSError as error:
        raise CommandError(
            f"{path} must be a Python file, but reading it failed ({error.strerror}): "
            "`counterflow init` writes one to start from"
        ) from error
    if path.suffix != ".py":
        raise CommandError(f"{path} is no Python file: its name must end in .py")
    return content


@contextlib.contextmanager
def blaming(path: Path) -> Iterator[None]:
    """What fails inside, in lines of a user's file or by what it made, is told by those lines."""
    try:
        yield
    except (CommandError, KeyboardInterrupt):
        raise
    except BaseException as error:
        told = _told(error, path)
        if told is None:
            raise
        raise CommandError(told) from error


def _imported(path: Path) -> ModuleType:
    # A name of its own, so that a file called jax.py is not taken for what it imports.
    name = f"counterflow_model_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path.resolve())
    assert specification is not None  # as the name ends in .py
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # As Python does for a script: the files beside it can be imported.
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def _pair(found: Any, named: str) -> tuple[Problem, PyTree]:
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Problem):
        return found
    got = "a Problem without params" if isinstance(found, Problem) else f"{type(found).__name__}"
    if isinstance(found, tuple):
        got = f"a tuple of {', '.join(type(one).__name__ for one in found) or 'nothing'}"
    raise CommandError(f"{named} must be {_EXPECTED}, got {got}")


def _told(error: BaseException, path: Path) -> str | None:
    """An error by the user's own lines, the innermost last; nothing if they have no part in it."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        line = (error.text or "").strip()
        return f"{error.filename}, line {error.lineno}: {error.msg}\n    {line}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame, path)]
    if not own:
        if isinstance(error, SyntaxError | UnicodeError | MemoryError | RecursionError):
            return f"{path} is no Python that can be read: {error or type(error).__name__}"
        # What the library refuses, it explains; the rest is not for the user to mend.
        explained = isinstance(error, TypeError | ValueError | NotImplementedError)
        return str(error) if explained else None
    lines = [
        f"{_named_from(path, Path(frame.filename))}, line {frame.lineno}, in {frame.name}\n"
        f"    {frame.line}"
        for frame in own
    ]
    return "\n".join(["an error in your file:", *lines, f"{type(error).__name__}: {error}"])


def _is_own(frame: traceback.FrameSummary, path: Path) -> bool:
    """Whether a line is one that the user wrote: in the file, beside it, or in no library."""
    if frame.filename.startswith("<"):  # made by Python, or by a library
        return False
    file = Path(frame.filename).resolve()
    if file.parent == path.resolve().parent:
        return True
    return not _INSTALLED & set(file.parts) and not any(map(file.is_relative_to, _LIBRARIES))


def _named_from(path: Path, file: Path) -> Path:
    """A file as seen from where `path` was typed, if it lies below."""
    folder = path.resolve().parent
    within = file.resolve().is_relative_to(folder)
    return path.parent / file.resolve().relative_to(folder) if within else file


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else ""
