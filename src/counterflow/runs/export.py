"""A run in the formats of other programs: CSV, one row per value, and netCDF."""

import csv
from pathlib import Path

from .run import Run
from .store import StoreError

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
    run.to_xarray().to_netcdf(path, engine="scipy")
    return path
