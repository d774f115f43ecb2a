"""One run of a sweep, in a worker: the same run that `counterflow reproduce` or `run` makes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax

from ..counter_terms.checks.questions import Check
from ..data.dataset import DataError, load
from ..experiments.analyse import analyse
from ..experiments.carry_out import Watcher, findings
from ..experiments.registry import EXPERIMENTS, experiments_of
from ..experiments.reproduce import reproduce
from ..report.report import write_report
from ..runs.analysis import Analysis, digest_of
from ..runs.configuration import Configuration
from ..runs.database import StoreError
from ..runs.opening import BeingWritten
from ..runs.run import open_run
from .compiling import compiled_on_disk
from .models import blaming, load_model
from .working import CommandError

# How long to wait for the lock of a run whose worker died, in seconds: where folders are shared
# between machines, a lock may outlive the process that held it.
_PATIENCE = 60.0


@dataclass(frozen=True)
class Task:
    """A run to carry out.

    Attributes:
        configuration: Its configuration.
        folder: Where the runs are, as every machine of the cluster sees it.
        command: The command at work, to be noted.
        experiments: The paper's experiments that it makes.
        data_dir: A folder with the files of MNIST or Fashion-MNIST.
        model: One's own problem as FILE.py:NAME.
        checks: Whether the theory applies to it.
    """

    configuration: Configuration | Analysis
    folder: Path
    command: str
    experiments: tuple[str, ...] = ()
    data_dir: Path | None = None
    model: str = ""
    checks: tuple[Check, ...] = ()


def carry_out_one(task: Task) -> str:
    """Carries a run out and writes its report; returns why that failed, or nothing."""
    jax.config.update("jax_enable_x64", True)
    try:
        with compiled_on_disk():
            _patiently(lambda: _run(task))
        run = open_run(task.folder / task.configuration.name)
        write_report(run, findings(run, experiments_of(run)))
    except (CommandError, DataError, StoreError, OSError, ValueError) as error:
        return str(error)
    except Exception as error:  # whatever it is, the other runs go on
        return f"{type(error).__name__}: {error}"
    return ""


def _run(task: Task) -> None:
    configuration = task.configuration
    watcher, never = Watcher(), lambda: False
    if isinstance(configuration, Configuration):
        chosen = tuple(EXPERIMENTS[name] for name in task.experiments)

        def load_data():
            # The digits come with scikit-learn.
            at = None if configuration.data == "digits" else task.data_dir
            return load(configuration.data, at)

        reproduce(chosen, configuration, task.folder, load_data, task.command, watcher, never)
        return
    known = load_model(task.model)
    if digest_of(known.problem, known.params, known.source) != configuration.digest:
        raise CommandError(
            f"{task.model} must be the same for all workers, and is another one here than where "
            "the sweep was started: start it again if the file was changed meanwhile"
        )
    with blaming(known.path):
        analyse(
            configuration,
            known.problem,
            known.params,
            task.checks,
            task.folder,
            task.command,
            watcher,
            never,
        )


def _patiently(work: Callable[[], None]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return work()
        except BeingWritten:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
