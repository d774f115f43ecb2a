"""A sweep from its file: a grid, a list, or both, over the fields of a configuration."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from ..experiments.registry import EXPERIMENTS
from ..runs.configuration import default_configuration
from .fields import OWN, OWN_DEFAULTS, PAPER, typed
from .plan import Plan, PlannedRun, SweepError, shown

#: More runs than this are taken for a mistake, and so is a longer file.
MOST_RUNS, MOST_BYTES = 10_000, 1_000_000

_KEYS = ("name", "model", "experiments", "settings", "grid", "list")


def read_sweep(path: Path) -> Plan:
    """The sweep in a TOML file, with every field and type looked at before anything runs.

    Whether values make sense is for each configuration to say: one that does not is a run that
    fails, and the others go on.

    Raises:
        SweepError: If the file is not that of a sweep; with the file and the field.
    """
    try:
        return _plan(path, _parsed(path))
    except ValueError as error:
        raise SweepError(f"{path}: {error}") from error


def _parsed(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise SweepError(f"there is no file {path}: a sweep is a TOML file with a [grid]")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"the file must have at most {MOST_BYTES:,} bytes, and has more")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError("the file must be text in UTF-8, as TOML is") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"this is not TOML: {error}") from error
    except RecursionError as error:
        raise ValueError("the file is nested too deeply") from error


def _plan(path: Path, found: dict[str, Any]) -> Plan:
    for key in found:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            aside = "a field of all runs belongs into [settings]. " if key in PAPER | OWN else ""
            raise ValueError(f"there is no `{key}` in a sweep: {hint}{aside}Known are {_KEYS}")
    model = _model(path, found.get("model"))
    if model is not None and "experiments" in found:
        raise ValueError(
            "`experiments` are those of the paper, and `model` is one's own: leave one of them out"
        )
    known = PAPER if model is None else OWN
    common = _fields(known, "[settings]", found.get("settings", {}))
    listed = _listed(known, found.get("list"))
    grid = _grid(known, found.get("grid"))
    if not listed and not grid:
        raise ValueError("a sweep must have a [grid] or a [[list]]: there is nothing to sweep over")
    _require_apart(("[settings]", common), ("[grid]", grid))
    for entry in listed:
        _require_apart(("[settings]", common), ("[[list]]", entry))
        _require_apart(("[grid]", grid), ("[[list]]", entry))
    count = prod(map(len, grid.values())) * max(1, len(listed))
    if count > MOST_RUNS:
        raise ValueError(f"a sweep must have at most {MOST_RUNS:,} runs, got {count:,}")
    runs = [
        _run(model is None, common, entry | dict(zip(grid, values, strict=True)))
        for entry in listed or [{}]
        for values in product(*grid.values())
    ]
    _require_different(runs)
    return Plan(
        _name(path, found.get("name")),
        path,
        model,
        _experiments(found.get("experiments")),
        tuple(runs),
    )


def _name(path: Path, given: Any) -> str:
    name = re.sub(r"[^\w.-]+", "-", path.stem).strip(".-") if given is None else given
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]{0,63}", name):
        raise ValueError(
            "`name` must be at most 64 letters, digits, dots and dashes, beginning with a letter, "
            f"as it names a folder, got {name!r}"
        )
    return name


def _model(path: Path, given: Any) -> str | None:
    if given is None:
        return None
    file, colon, attribute = given.rpartition(":") if isinstance(given, str) else ("", "", "")
    if not (file and colon and attribute):
        raise ValueError(
            f"`model` must be FILE.py:NAME, such as my_model.py:problem, got {given!r}"
        )
    return f"{path.parent / file}:{attribute}"


def _experiments(given: Any) -> tuple[str, ...]:
    if given is None:
        return tuple(EXPERIMENTS)
    if not isinstance(given, list) or not given or len(set(map(str, given))) < len(given):
        raise ValueError(f"`experiments` must be a list of different names, got {given!r}")
    for name in given:
        if name not in list(EXPERIMENTS):  # whatever it is
            raise ValueError(f"`experiments` must be of {', '.join(EXPERIMENTS)}, got {name!r}")
    return tuple(name for name in EXPERIMENTS if name in given)


def _fields(known: dict[str, Any], where: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{where} must be a table of fields, got {given!r}")
    with _in(where):
        return {field: typed(known, field, value) for field, value in given.items()}


def _listed(known: dict[str, Any], given: Any) -> list[dict[str, Any]]:
    if given is None:
        return []
    if not isinstance(given, list) or not given or not all(isinstance(e, dict) for e in given):
        raise ValueError(
            "`list` must be tables, each begun by [[list]], of fields that go together, got "
            f"{given!r}"
        )
    entries = [
        _fields(known, f"[[list]] number {number}", entry) for number, entry in enumerate(given, 1)
    ]
    for number, entry in enumerate(entries, 1):
        if not entry:
            raise ValueError(f"[[list]] number {number} must have a field, and is empty")
    return entries


def _grid(known: dict[str, Any], given: Any) -> dict[str, list[Any]]:
    if given is None:
        return {}
    if not isinstance(given, dict) or not given:
        raise ValueError(f"`grid` must be a table of fields with their values, got {given!r}")
    grid = {}
    for field, values in given.items():
        if not isinstance(values, list) or not values:
            raise ValueError(
                f"[grid] `{field}` must be a list of the values to take, got {values!r}"
            )
        with _in("[grid]"):
            grid[field] = [typed(known, field, value) for value in values]
        # As text, for what is not a number equals nothing, not even itself.
        if len({shown(value) for value in grid[field]}) < len(values):
            raise ValueError(f"[grid] `{field}` must be different values, got {values!r}")
    return grid


def _run(paper: bool, common: Mapping[str, Any], swept: Mapping[str, Any]) -> PlannedRun:
    given = {**common, **swept}
    if paper:
        default = default_configuration(given.get("size", "quick"), given.get("data", "digits"))
        return PlannedRun(swept, asdict(replace(default, **given)))
    complete = {**OWN_DEFAULTS, **given}
    if missing := [field for field in OWN if field not in complete]:
        raise ValueError(f"every run must have {' and '.join(missing)}, got {given or 'nothing'}")
    return PlannedRun(swept, complete)


def _require_apart(one: tuple[str, Iterable[str]], other: tuple[str, Iterable[str]]) -> None:
    if both := sorted(set(one[1]) & set(other[1])):
        raise ValueError(f"`{both[0]}` must be given once, and is in {one[0]} and in {other[0]}")


def _require_different(runs: list[PlannedRun]) -> None:
    seen: dict[str, PlannedRun] = {}
    for run in runs:
        same = seen.setdefault(repr(sorted(run.settings.items())), run)
        if same is not run:
            raise ValueError(
                f"every run must be another one, and {run.name!r} is the same as {same.name!r}"
            )


@contextmanager
def _in(where: str) -> Iterator[None]:
    """Says where in the file what is wrong stands."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
