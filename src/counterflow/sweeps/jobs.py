"""What there is to do for a sweep: a configuration for every run, and how far each is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..experiments.carry_out import is_complete, needed
from ..experiments.experiment import Experiment
from ..runs.analysis import Analysis
from ..runs.configuration import Configuration
from ..runs.database import DATABASE, StoreError
from ..runs.opening import reading
from ..runs.run import open_run


@dataclass(frozen=True)
class Job:
    """One run of a sweep, to be carried out.

    Attributes:
        name: What is swept, as a title.
        swept: The fields by which it differs from others, with their values.
        configuration: Its configuration.
        experiments: What it makes.
        reason: Why it cannot be carried out, if it cannot.
    """

    name: str
    swept: Mapping[str, Any]
    configuration: Configuration | Analysis
    experiments: tuple[Experiment, ...] = field(repr=False)
    reason: str = ""

    @cached_property
    def records(self) -> dict[str, int]:
        """How many records every training has that it needs."""
        trainings, _ = needed(self.experiments, self.configuration)
        return {name: len(training.record_steps) for name, training in trainings.items()}

    def is_done(self, folder: Path) -> bool:
        """Whether the run is finished, among those in a folder."""
        place = folder / self.configuration.name
        try:
            run = open_run(place) if (place / DATABASE).exists() else None
        except StoreError:
            return False  # whoever carries it out says what is wrong
        if run is None or run.configuration != self.configuration:
            return False
        return all(is_complete(run, one) for one in self.experiments)

    def progress(self, folder: Path) -> tuple[int, int]:
        """How many of its records are kept, and how often it was worked on."""
        place = folder / self.configuration.name
        if not (place / DATABASE).exists():
            return 0, 0
        try:
            store = reading(place, verify=False)  # at every look
        except StoreError:
            return 0, 0  # it is being made
        try:
            kept = sum(store.records(name) for name in self.records)
            return kept, len(store.sittings())
        except StoreError:
            return 0, 0
        finally:
            store.close()


def folder_name(name: str, jobs: Sequence[Job]) -> str:
    """The name of the folder of a sweep, which no other sweep has."""
    said = [
        [job.configuration.to_json(), [experiment.name for experiment in job.experiments]]
        for job in jobs
    ]
    return f"sweep-{name}-{sha256(json.dumps(said).encode()).hexdigest()[:8]}"
