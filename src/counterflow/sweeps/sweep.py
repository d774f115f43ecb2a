"""A sweep that is on disk, for reading: its runs, what failed, and all series as one dataset."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files import read_plain
from ..runs.database import DATABASE, StoreError
from ..runs.fields import conforms
from ..runs.run import Run, open_run
from ..runs.states import sync_folder

if TYPE_CHECKING:
    import xarray

FILE = "sweep.json"
_FORMAT = "1"
# How many bytes it may hold: a sweep of a hundred thousand runs.
_LARGEST = 2**26
_PARTS = {
    "format": str,
    "name": str,
    "command": str,
    "runs": dict[str, dict[str, Any]],
    "failed": dict[str, str],
}
_VALUE = bool | int | float | str | None


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep on disk, as it is now.

    Attributes:
        folder: Its folder; those of its runs lie beside it.
        name: Its name.
        command: The command that carries it out.
        swept: By run, the fields by which it differs from others, with their values.
        runs: By name, the runs of which there is anything yet, finished or not.
        failed: By name, why a run failed.
    """

    folder: Path
    name: str
    command: str
    swept: Mapping[str, Mapping[str, Any]]
    runs: Mapping[str, Run]
    failed: Mapping[str, str]

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that are swept."""
        return tuple(dict.fromkeys(field for swept in self.swept.values() for field in swept))

    def value(self, run: str, field: str) -> Any:
        """What a run has for a field, whether it was swept there or not."""
        if field in self.swept[run]:
            return self.swept[run][field]
        known = self.runs.get(run)
        return None if known is None else getattr(known.configuration, field)

    def to_xarray(self) -> "xarray.Dataset":
        """Every series of every run as one `xarray.Dataset` over (run, training, process, record).

        What is swept are coordinates along `run`. Trainings are numbered as their run has them,
        with their names and settings as coordinates `training_name`, `training_learning_rate` and
        so on; what a run does not have is NaN.

        Raises:
            StoreError: If there are no records yet.
        """
        import xarray  # takes a second to import

        parts = {name: _numbered(run) for name, run in self.runs.items() if run.processes}
        if not parts:
            raise StoreError(f"the sweep in {self.folder} has no records yet: there are no series")
        one = xarray.concat(
            list(parts.values()),
            dim="run",
            join="outer",
            combine_attrs="drop",
            data_vars="all",
            coords="all",
            compat="equals",
        )
        # Where a run has fewer trainings than others, their names are empty, not missing numbers.
        names = one["training_name"]
        one = one.assign_coords(training_name=names.where(names.notnull(), "").astype(str))
        swept = {
            field: ("run", _column([self.value(name, field) for name in parts]))
            for field in self.fields
        }
        first = next(iter(parts.values()))
        for name, variable in one.variables.items():
            if name in first.variables:
                variable.attrs = dict(first.variables[name].attrs)
        return one.assign_coords({"run": list(parts), **swept}).assign_attrs(
            title=f"counterflow sweep {self.name}",
            failed="\n".join(f"{name}: {reason}" for name, reason in self.failed.items()),
        )

    def __repr__(self) -> str:
        return (
            f"Sweep({self.name}: {len(self.runs)} of {len(self.swept)} runs over "
            f"{', '.join(self.fields)}; {len(self.failed)} failed)"
        )


def _numbered(run: Run) -> "xarray.Dataset":
    """The series of a run, its trainings and records numbered so that those of others align."""
    found = run.to_xarray()
    names = {name: f"training_{name}" for name in ("learning_rate", "weight_decay", "seed")}
    count = dict(found.sizes)
    return (
        found.drop_attrs(deep=False)
        .rename_vars(names)
        .assign_coords(training_name=("training", found["training"].values))
        .assign_coords(training=range(count["training"]), record=range(count["record"]))
    )


def _column(values: Sequence[Any]) -> list[Any]:
    """Values along runs, as numbers where all are; a list of one stands for its only value."""
    single = [
        value[0] if isinstance(value, tuple | list) and len(value) == 1 else value
        for value in values
    ]
    if all(isinstance(value, int | float) for value in single):
        return single
    return [json.dumps(value) if not isinstance(value, str) else value for value in single]


def write_sweep(
    folder: Path,
    name: str,
    command: str,
    runs: Mapping[str, tuple[Mapping[str, Any], str]],
    failed: Mapping[str, str],
) -> None:
    """Writes down which runs a sweep has and what failed; whole or not at all.

    Args:
        folder: The folder of the sweep, made if need be.
        name: Its name.
        command: The command that carries it out.
        runs: By name, what is swept and the name of the run's folder beside that of the sweep.
        failed: By name, why a run failed.
    """
    told = {
        "format": _FORMAT,
        "name": name,
        "command": command,
        "runs": {one: {"swept": dict(swept), "folder": at} for one, (swept, at) in runs.items()},
        "failed": dict(failed),
    }
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f"{FILE}.part"
    with aside.open("w", encoding="utf-8") as file:
        json.dump(told, file, indent=1, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(folder / FILE)
    sync_folder(folder)


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (folder / FILE).is_file()


def open_sweep(path: str | Path) -> Sweep:
    """The sweep in a folder, as it is now, also while it is at work.

    Args:
        path: The folder, as `counterflow sweep` names it, such as runs/sweep-….

    Raises:
        StoreError: If there is no sweep, or it cannot be read.
    """
    folder = Path(path)
    if not is_sweep(folder):
        raise StoreError(
            f"{folder} is not a sweep: it has no {FILE}. A sweep is a folder that `counterflow "
            "sweep` wrote, such as runs/sweep-…"
        )
    try:
        told = json.loads(read_plain(folder / FILE, _LARGEST))
        for part, kind in _PARTS.items():
            if not conforms(told.get(part) if isinstance(told, dict) else None, kind):
                raise ValueError(f"{part!r} is missing or of another type")
        if told["format"] != _FORMAT:
            raise ValueError(f"its format is {told['format']}, not {_FORMAT}")
        places = {name: _place(run) for name, run in told["runs"].items()}
        name, command, failed = told["name"], told["command"], dict(told["failed"])
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(
            f"cannot read the sweep in {folder}: {error}; the same `counterflow sweep` writes it "
            "anew"
        ) from error
    runs = {}
    for one, (_, place) in places.items():
        # The name of a folder, never a way out of the one that all runs are in.
        beside = folder.parent / place.name
        if one not in failed and (beside / DATABASE).exists():
            try:
                runs[one] = open_run(beside)
            except StoreError as error:
                failed[one] = str(error)
    return Sweep(
        folder, name, command, {n: swept for n, (swept, _) in places.items()}, runs, failed
    )


def _place(run: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    """What is swept in a run, and its folder."""
    if not conforms(run.get("swept"), dict[str, _VALUE | list[_VALUE]]):
        raise ValueError("'swept' is missing or of another type")
    folder = run.get("folder")
    if not isinstance(folder, str) or "\0" in folder or Path(folder).name in ("", ".."):
        raise ValueError("'folder' is missing or no name")
    return dict(run["swept"]), Path(run["folder"])
