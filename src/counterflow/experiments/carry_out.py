"""Experiments carried out: every training and result that they need, each computed once."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..runs.analysis import Analysis
from ..runs.configuration import Configuration
from ..runs.processes import is_first, told
from ..runs.run import Run, open_run
from ..runs.shared_store import SharedStore, writing_together
from ..runs.store import Store
from ..runs.training import Stopped, Training, Update, train
from .experiment import Experiment, Setting
from .finding import Finding
from .long_work import LongWork


class Watcher:
    """Hears how a reproduction is going; this one keeps silent."""

    def planned(self, trainings: Sequence[Training], results: Sequence[str]) -> None:
        """What is going to be computed, as far as it is not there yet."""

    def recorded(self, update: Update) -> None:
        """A record of a training was kept."""

    def started(self, what: str) -> None:
        """A training or a result is going to be computed."""

    def progressed(self, done: int, total: int, words: str) -> None:
        """A result that takes long got further: by a part, or by what the words say."""

    def finished(self, what: str) -> None:
        """It is done."""

    def said(self, message: str) -> None:
        """Something that the user should know."""


def needed(
    experiments: Sequence[Experiment], configuration: Any
) -> tuple[dict[str, Training], dict[str, Callable[[Any, LongWork], Any]]]:
    """The trainings and the results that experiments need, by name, each once."""
    trainings = {
        training.name: training
        for experiment in experiments
        for training in experiment.trainings(configuration)
    }
    results: dict[str, Callable[[Any, LongWork], Any]] = {}
    for experiment in experiments:
        results |= experiment.computed
    return trainings, results


def carry_out(
    experiments: Sequence[Experiment],
    configuration: Configuration | Analysis,
    folder: Path,
    prepare: Callable[[], Setting],
    command: str,
    watcher: Watcher,
    stopping: Callable[[], bool],
) -> Run | None:
    """The run of a configuration with everything that experiments need, computed where it is not.

    Args:
        experiments: The experiments.
        configuration: The configuration.
        folder: Where the runs are; the run has a folder of its own there.
        prepare: Makes what is trained, called only if something is to be computed.
        command: The command at work, to be noted.
        watcher: Hears how it is going.
        stopping: Asked after each record, result and part of one; if true, `Stopped` is raised.

    Returns:
        The run; of several processes that compute together, in the first one.
    """
    configuration.require_valid()
    stopping = partial(told, stopping)  # all of them stop, or none
    trainings, results = needed(experiments, configuration)
    place = folder / configuration.name
    # Data that cannot be had leave no empty run behind.
    setting = None if told(place.exists) else prepare()
    with writing_together(place, configuration.to_json(), command, watcher.said) as store:
        known = store.trainings()
        for name, training in trainings.items():
            if name in known:
                store.require_settings(name, training.settings, training.record_steps.tolist())
        todo = [
            training
            for name, training in trainings.items()
            if known.get(name, {"status": "running"})["status"] == "running"
        ]
        missing = [name for name in results if name not in store.results()]
        watcher.planned(todo, missing)
        if todo or missing:
            setting = setting or prepare()
            for name in missing:
                _compute(store, name, results[name], setting, watcher, stopping)
            for training in todo:
                _train(store, training, setting, watcher, stopping)
    return open_run(place) if is_first() else None


def _compute(
    store: Store | SharedStore,
    name: str,
    compute: Callable[[Any, LongWork], Any],
    setting: Setting,
    watcher: Watcher,
    stopping: Callable[[], bool],
) -> None:
    watcher.started(name)
    since = time.perf_counter()
    work = LongWork(name, store, watcher.progressed, stopping, watcher.said)
    found = compute(setting, work)
    store.add_result(name, found, work.earlier + time.perf_counter() - since)
    watcher.finished(name)
    if stopping():
        raise Stopped


def _train(
    store: Store | SharedStore,
    training: Training,
    setting: Setting,
    watcher: Watcher,
    stopping: Callable[[], bool],
) -> None:
    watcher.started(training.name)
    problem, params = setting.start(training)
    measured = setting.observables
    train(training, problem, params, measured, store, watcher.recorded, stopping, watcher.said)
    watcher.finished(training.name)
    if stopping():
        raise Stopped


def is_complete(run: Run, experiment: Experiment) -> bool:
    """Whether a run has everything that an experiment needs."""
    wanted = {training.name for training in experiment.trainings(run.configuration)}
    there = {known.training.name for known in run.trainings.values() if known.finished}
    return wanted <= there and set(experiment.computed) <= set(run.results)


def findings(run: Run, experiments: Sequence[Experiment]) -> tuple[Finding, ...]:
    """What experiments find in a run, those that the run has everything for."""
    found = [one.finding(run) for one in experiments if is_complete(run, one)]
    # Of one seed there is no spread to tell of.
    return tuple(finding for finding in found if finding.claims)
