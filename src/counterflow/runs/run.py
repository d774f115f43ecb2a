"""A run that is on disk, for reading: its configuration, its series, its results."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .analysis import Analysis
from .configuration import Configuration
from .database import StoreError
from .opening import reading
from .training import Training

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, eq=False)
class TrainingSeries:
    """What is known of one training.

    Attributes:
        training: The training.
        steps: The step numbers of the records that are done.
        total: How many records there are to do.
        series: By process and quantity, the value at every record; not a number where there is
            none.
        status: `running` until it is done, then how it ended.
        statistics: What every part cost.
        seconds: How long it took.
    """

    training: Training
    steps: np.ndarray
    total: int
    series: Mapping[tuple[str, str], np.ndarray]
    status: str
    statistics: Mapping[str, Mapping[str, Any]]
    seconds: float

    @property
    def times(self) -> np.ndarray:
        """The times `kη` of the records."""
        return self.steps * self.training.learning_rate

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.status != "running"

    def __call__(self, process: str, quantity: str) -> np.ndarray:
        """A quantity of a process at every record."""
        missing = np.full(len(self.steps), np.nan)
        return self.series.get((process, quantity), missing)

    def flow(self, order: int, quantity: str) -> np.ndarray:
        """A quantity of the flow of an order at every record."""
        return self(f"flow {order}", quantity)


@dataclass(frozen=True, eq=False)
class Run:
    """A run on disk, as it is now.

    Attributes:
        folder: Its folder.
        configuration: Its configuration: a `Configuration` of the paper's experiments, or the
            `Analysis` of one's own problem.
        trainings: What is known of its trainings, by name.
        results: Its results that are not series, by name.
        result_seconds: How long each of these took.
        sittings: When it was worked on, by which command, with which versions.
    """

    folder: Path
    configuration: Any
    trainings: Mapping[str, TrainingSeries]
    results: Mapping[str, Any]
    result_seconds: Mapping[str, float]
    sittings: tuple[Mapping[str, Any], ...]

    @cached_property
    def processes(self) -> tuple[str, ...]:
        """The names of all processes, descent first."""
        found = {process for known in self.trainings.values() for process, _ in known.series}
        return tuple(sorted(found))

    def to_xarray(self) -> "xarray.Dataset":
        """Every series as an `xarray.Dataset` over (training, process, record).

        Trainings with fewer records than others end in NaN.
        """
        import xarray  # takes a second to import

        known = list(self.trainings.values())
        shape = (len(known), len(self.processes), max((len(one.steps) for one in known), default=0))
        values: dict[str, np.ndarray] = {}
        steps, times = np.full((2, shape[0], shape[2]), np.nan)
        for i, one in enumerate(known):
            steps[i, : len(one.steps)], times[i, : len(one.steps)] = one.steps, one.times
            for (process, quantity), series in one.series.items():
                if quantity not in values:
                    values[quantity] = np.full(shape, np.nan)
                values[quantity][i, self.processes.index(process), : len(series)] = series
        over = ("training", "process", "record")
        settings = {
            name: ("training", [_number(getattr(one.training, name)) for one in known], attributes)
            for name, attributes in _SETTINGS.items()
        }
        return xarray.Dataset(
            {
                name: (over, cube, {"units": "1", "long_name": _QUANTITIES.get(name, name)})
                for name, cube in sorted(values.items())
            },
            {
                "training": list(self.trainings),
                "process": list(self.processes),
                "step": (("training", "record"), steps, {"long_name": "step k", "units": "1"}),
                "time": (("training", "record"), times, {"long_name": "time kη", "units": "1"}),
                **settings,
            },
            {
                "title": f"counterflow run {self.folder.name}",
                "configuration": self.configuration.to_json(),
                # One text: netCDF has no lists of them.
                "status": "\n".join(f"{name}: {k.status}" for name, k in self.trainings.items()),
            },
        )

    def __repr__(self) -> str:
        done = sum(one.finished for one in self.trainings.values())
        return (
            f"Run({self.folder.name}: {done} of {len(self.trainings)} trainings finished, "
            f"{sum(len(one.steps) for one in self.trainings.values())} records, "
            f"{len(self.results)} further results)"
        )


def _number(value: float | int | None) -> float | int:
    return np.nan if value is None else value


_SETTINGS = {
    "learning_rate": {"long_name": "learning rate η", "units": "1"},
    "weight_decay": {"long_name": "weight decay λ", "units": "1"},
    "seed": {"long_name": "seed of the initial weights", "units": "1"},
}
_QUANTITIES = {
    "loss": "loss of gradient descent, without weight decay",
    "flow_loss": "loss of the flow, without weight decay",
    "error": "discretization error ‖θ(kη) − θ_k‖",
    "relative_error": "relative discretization error ‖θ(kη) − θ_k‖ / ‖θ_k‖",
    "solver_error": "distance from the same flow solved to ten times the tolerance",
    "rounding": "rounding error of the parameters",
    "squared_norm": "squared norm of the scale-invariant layer",
    "sum_of_weights": "sum of weights of the translation-invariant layer",
    "perpendicular": "‖θ_⊥‖ of the translation-invariant layer",
    "sharpness": "largest eigenvalue of H + λI",
    "local_prediction": "error as predicted by the paper's sum",
    "propagated_prediction": "error as predicted by the propagated equation",
    "local_mismatch": "‖predicted − measured‖ / ‖measured‖ of the paper's sum",
    "propagated_mismatch": "‖predicted − measured‖ / ‖measured‖ of the propagated equation",
}


def _configuration(text: str) -> Any:
    kind = Analysis if '"model":' in text else Configuration
    return kind.from_json(text)


def _training(
    name: str, known: Mapping[str, Any], values: Mapping[tuple[str, str], Mapping[int, float]]
) -> TrainingSeries:
    count, steps = known["records"], known["steps"]
    if count > len(steps) or any(record < 0 for at in values.values() for record in at):
        raise ValueError(f"{name!r} must have records 0 to {len(steps) - 1}, and has others")
    series = {}
    for key, at in values.items():
        series[key] = np.full(count, np.nan)
        series[key][list(at)] = list(at.values())
    return TrainingSeries(
        training=Training.from_settings(known["settings"]),
        steps=np.array(steps[:count], dtype=int),
        total=len(steps),
        series=series,
        status=known["status"],
        statistics=known["statistics"],
        seconds=known["seconds"],
    )


def open_run(path: str | Path) -> Run:
    """The run in a folder, as it is now, also while it is being written.

    Args:
        path: The folder, as `counterflow reproduce` names it.

    Raises:
        StoreError: If there is no run, or it cannot be read.
    """
    folder = Path(path)
    store = reading(folder)
    try:
        configuration = _configuration(store.header("configuration"))
        trainings = {
            name: _training(name, known, store.series(name))
            for name, known in store.trainings().items()
        }
        return Run(
            folder,
            configuration,
            trainings,
            store.results(),
            store.result_seconds(),
            tuple(store.sittings()),
        )
    except ValueError as error:
        raise StoreError(f"cannot read the run in {folder}: {error}") from error
    finally:
        store.close()
