"""A run in the formats of other programs: CSV, one row per value, and netCDF."""

import csv
from pathlib import Path
from typing import Any
from unicodedata import normalize

from .database import StoreError
from .run import Run

CSV, NETCDF = "series.csv", "series.nc"
_HEADER = (
    "training",
    "learning_rate",
    "weight_decay",
    "seed",
    "record",
    "step",
    "time",
    "process",
    "quantity",
    "value",
)


def export_csv(run: Run, path: Path) -> Path:
    """Writes every value of every series as a row; numbers read back to the last bit."""
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(_HEADER)
        for name, known in run.trainings.items():
            settings = known.training
            head = (name, settings.learning_rate, settings.weight_decay, settings.seed)
            for (process, quantity), values in known.series.items():
                for record, value in enumerate(values):
                    step = int(known.steps[record])
                    time = step * settings.learning_rate
                    rows.writerow(
                        (*head, record, step, time, process, quantity, repr(float(value)))
                    )
    return path


def export_netcdf(run: Run, path: Path) -> Path:
    """Writes `to_xarray()` as netCDF, which `xarray.open_dataset` reads.

    Raises:
        StoreError: If there are no records, for which netCDF has no form that could be read.
    """
    if not run.processes:
        raise StoreError(
            f"the run in {run.folder} has no records yet: there are no series to write"
        )
    dataset = run.to_xarray()
    dataset.attrs = {name: _text(value) for name, value in dataset.attrs.items()}
    names: dict[Any, str] = {}
    for name in dataset.data_vars:
        plain = _plain(str(name))
        taken = sum(other.split("~")[0] == plain for other in names.values())
        names[name] = f"{plain}~{taken + 1}" if taken else plain
    dataset.rename(names).to_netcdf(path, engine="scipy")
    return path


def _plain(name: str) -> str:
    """A name that netCDF allows; the whole one is the variable's `long_name`."""
    composed = normalize("NFC", _text(name)).rstrip()
    return "".join(c if c.isprintable() and c != "/" else "_" for c in composed) or "_"


def _text(value: str) -> str:
    """Text that can be written; what stands for no character is written out."""
    return value.encode(errors="backslashreplace").decode()
