"""The whole paper: every training and result that experiments need, each computed once."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..data.dataset import Dataset
from ..runs.configuration import Configuration
from ..runs.run import Run, open_run
from ..runs.store import Store, writing
from ..runs.training import (
    SCALE_INVARIANT,
    TRANSLATION_INVARIANT,
    Stopped,
    Training,
    Update,
    train,
)
from ..symmetries.scale import Scale
from ..symmetries.translation import Translation
from .experiment import Experiment, Setting
from .finding import Claim, Finding

#: How far a symmetry's residual may be from zero.
_EXACT = 1e-8


class Watcher:
    """Hears how a reproduction is going; this one keeps silent."""

    def planned(self, trainings: Sequence[Training], results: Sequence[str]) -> None:
        """What is going to be computed, as far as it is not there yet."""

    def recorded(self, update: Update) -> None:
        """A record of a training was kept."""

    def started(self, what: str) -> None:
        """A training or a result is going to be computed."""

    def finished(self, what: str) -> None:
        """It is done."""

    def said(self, message: str) -> None:
        """Something that the user should know."""


def needed(
    experiments: Sequence[Experiment], configuration: Configuration
) -> tuple[dict[str, Training], dict[str, Callable[[Setting], Any]]]:
    """The trainings and the results that experiments need, by name, each once."""
    trainings = {
        training.name: training
        for experiment in experiments
        for training in experiment.trainings(configuration)
    }
    results: dict[str, Callable[[Setting], Any]] = {"symmetries": _symmetries}
    for experiment in experiments:
        results.update(experiment.results or {})
    return trainings, results


def reproduce(
    experiments: Sequence[Experiment],
    configuration: Configuration,
    folder: Path,
    load: Callable[[], Dataset],
    command: str,
    watcher: Watcher,
    stopping: Callable[[], bool],
) -> Run:
    """The run of a configuration with everything that experiments need, computed where it is not.

    Args:
        experiments: The experiments.
        configuration: The configuration.
        folder: Where the runs are; the run has a folder of its own there.
        load: Loads the data, called only if something is to be computed.
        command: The command at work, to be noted.
        watcher: Hears how it is going.
        stopping: Asked after each record and result; if true, `Stopped` is raised.
    """
    configuration.require_valid()
    trainings, results = needed(experiments, configuration)
    place = folder / configuration.name
    # Data that cannot be had leave no empty run behind.
    setting = None if place.exists() else Setting(configuration, load())
    with writing(place, configuration.to_json(), command, watcher.said) as store:
        known = store.trainings()
        for name, training in trainings.items():
            if name in known:
                store.require_settings(name, asdict(training), training.record_steps.tolist())
        todo = [
            training
            for name, training in trainings.items()
            if known.get(name, {"status": "running"})["status"] == "running"
        ]
        missing = [name for name in results if name not in store.results()]
        watcher.planned(todo, missing)
        if todo or missing:
            setting = setting or Setting(configuration, load())
            for name in missing:
                _compute(store, name, results[name], setting, watcher, stopping)
            for training in todo:
                _train(store, training, setting, watcher, stopping)
    return open_run(place)


def _compute(
    store: Store,
    name: str,
    compute: Callable[[Setting], Any],
    setting: Setting,
    watcher: Watcher,
    stopping: Callable[[], bool],
) -> None:
    watcher.started(name)
    since = time.perf_counter()
    store.add_result(name, compute(setting), time.perf_counter() - since)
    watcher.finished(name)
    if stopping():
        raise Stopped


def _train(
    store: Store,
    training: Training,
    setting: Setting,
    watcher: Watcher,
    stopping: Callable[[], bool],
) -> None:
    watcher.started(training.name)
    problem, params = setting.problem(training.weight_decay, training.seed)
    train(training, problem, params, store, watcher.recorded, stopping, watcher.said)
    watcher.finished(training.name)
    if stopping():
        raise Stopped


def _symmetries(setting: Setting) -> dict[str, float]:
    """How far the network's two symmetries are from exact at the start of the run."""
    configuration = setting.configuration
    problem, params = setting.problem(configuration.weight_decays[0], configuration.seed)
    return {
        f"scale {SCALE_INVARIANT}": Scale(SCALE_INVARIANT).residual(problem, params),
        f"translation {TRANSLATION_INVARIANT}": Translation(TRANSLATION_INVARIANT).residual(
            problem, params
        ),
    }


def symmetry_finding(run: Run) -> Finding:
    """Whether the layers have the symmetries that the experiments are about."""
    found = run.results["symmetries"]
    said = ", ".join(f"{name}: {residual:.0e}" for name, residual in found.items())
    return Finding(
        "symmetries",
        "The network's symmetries, checked at the start",
        "The hidden layer may be scaled, and the readout shifted, without a change of the loss.",
        (
            Claim(
                "the hidden layer is scale-invariant and the readout translation-invariant",
                f"change of the loss over what it could be: {said}",
                all(residual < _EXACT for residual in found.values()),
            ),
        ),
    )


def findings(run: Run, experiments: Sequence[Experiment]) -> tuple[Finding, ...]:
    """What experiments find in a run, those that the run has everything for."""
    names = {known.training.name for known in run.trainings.values() if known.finished}
    found = [symmetry_finding(run)] if "symmetries" in run.results else []
    for experiment in experiments:
        wanted = {training.name for training in experiment.trainings(run.configuration)}
        results = set(experiment.results or {})
        if wanted <= names and results <= set(run.results):
            finding = experiment.finding(run)
            # Of one seed there is no spread to tell of.
            found += [finding] if finding.claims else []
    return tuple(found)
