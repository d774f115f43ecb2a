"""`counterflow sweep`: many runs on a Ray cluster, one report."""

import math
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro
from rich.console import Console

from ..counter_terms.checks.questions import Check
from ..data.dataset import DataError, load
from ..experiments.analyse import prepared
from ..experiments.carry_out import findings
from ..experiments.registry import EXPERIMENTS, OWN, experiments_of, with_symmetries
from ..report.report import PAGE, write_report
from ..runs.analysis import Analysis, digest_of
from ..runs.configuration import Configuration
from ..sweeps.carry_out import Board, SweepWatcher, carry_out
from ..sweeps.cluster import Cluster, connected
from ..sweeps.jobs import Job, folder_name
from ..sweeps.page import write_sweep_report
from ..sweeps.plan import Plan, SweepError
from ..sweeps.reading import read_sweep
from ..sweeps.sweep import open_sweep, write_sweep
from .downloads import download_view
from .models import blaming, load_model
from .printing import can_be_drawn_on, say
from .sweep_run import Task, carry_out_one
from .sweep_views import LiveSweepView, PlainSweepView, summary
from .working import STOPPED, CommandError


def sweep_command(typed: str) -> Callable[..., int]:
    """The command, as it was typed."""

    def sweep(
        file: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SWEEP.toml")],
        ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None,
        cpus: float = 1.0,
        retries: int = 5,
        folder: Path = Path("runs"),
        data_dir: Path | None = None,
        quiet: bool = False,
    ) -> int:
        """Carry out many runs, over a grid or a list of settings, and write one report.

        On a Ray of this machine's own, or on any Ray cluster. Each run is the one that `counterflow
        reproduce` or `counterflow run` would make, in its own folder: finished ones are found
        again, and those whose worker is killed go on from their last record. A run that fails is
        listed with its reason; the others go on.

        Args:
            file: What is swept: a TOML file, see docs/sweep.md.
            ray: The address of a Ray cluster, such as 10.0.0.1:6379; by default Ray is started on
                this machine for as long as the sweep lasts.
            cpus: How many processors a run takes: so many runs are at work at once as fit.
            retries: How often a run is begun again whose worker was killed.
            folder: Where runs are kept, each in a folder of its own; all machines must see it.
            data_dir: A folder with the files of MNIST or Fashion-MNIST, idx, plain or gz; by
                default they are downloaded.
            quiet: Print only how it ended and where the report is.
        """
        if not (math.isfinite(cpus) and cpus > 0):
            raise CommandError(f"--cpus must be positive, got {cpus:g}")
        if retries < 0:
            raise CommandError(f"--retries must not be negative, got {retries}")
        try:
            plan = read_sweep(file)
        except SweepError as error:
            raise CommandError(str(error)) from error
        _require_use(plan, data_dir)
        jax.config.update("jax_enable_x64", True)
        console = Console()
        jobs, tasks = _paper(plan) if plan.model is None else _own(plan, plan.model)
        _require_different(plan, jobs)
        place = folder / folder_name(plan.name, jobs)
        runs = {job.name: (job.swept, job.configuration.name) for job in jobs}
        given = {"command": typed, "folder": folder.resolve()}
        if data_dir is not None:
            given["data_dir"] = data_dir.resolve()

        def note(failed: Mapping[str, str]) -> None:
            write_sweep(place, plan.name, typed, runs, failed)

        @contextmanager
        def cluster() -> Iterator[Cluster]:
            with connected(ray, cpus) as at, _terminating():
                yield at

        view: SweepWatcher = SweepWatcher()
        if not quiet:
            view = LiveSweepView(console) if can_be_drawn_on(console) else PlainSweepView(console)
        jobs = _with_data(jobs, folder, data_dir, console, quiet)
        try:
            with view if isinstance(view, LiveSweepView) else nullcontext():
                board = carry_out(
                    jobs,
                    folder,
                    cluster,
                    carry_out_one,
                    lambda job: replace(tasks[job.name], **given),
                    cpus,
                    retries,
                    note,
                    view,
                )
        except KeyboardInterrupt:
            say(console, f"stopped; every record so far is in {folder}\nto go on: {typed}")
            return STOPPED
        return _finish(console, place, board)

    return sweep


Tasks = dict[str, Task]


def _require_use(plan: Plan, data_dir: Path | None) -> None:
    """Raises if files of data are given that no run takes."""
    if data_dir is not None and all(
        run.settings.get("data", "digits") == "digits" for run in plan.runs
    ):
        raise CommandError(
            f"--data-dir is for the files of mnist and fashion-mnist, and no run in {plan.file} "
            "takes them: leave it out"
        )


def _paper(plan: Plan) -> tuple[list[Job], Tasks]:
    chosen = with_symmetries(EXPERIMENTS[name] for name in plan.experiments)
    jobs, tasks = [], {}
    for run in plan.runs:
        configuration = Configuration(**run.settings)
        reason = _invalid(configuration)
        jobs.append(Job(run.name, run.swept, configuration, chosen, reason))
        tasks[run.name] = Task(configuration, Path(), "", plan.experiments)
    return jobs, tasks


def _own(plan: Plan, model: str) -> tuple[list[Job], Tasks]:
    known = load_model(model)
    digest = digest_of(known.problem, known.params, known.source)
    decay = float(known.problem.weight_decay)
    looked: dict[Any, tuple[Analysis, tuple[Check, ...]]] = {}
    jobs, tasks = [], {}
    for run in plan.runs:
        analysis = Analysis(known.name, digest, decay, **run.settings)
        checks: tuple[Check, ...] = ()
        reason = _invalid(analysis)
        if not reason:
            # What is left to the problem depends on these settings alone.
            asked = (analysis.orders, analysis.method, analysis.rtol)
            try:
                if asked not in looked:
                    with blaming(known.path):
                        looked[asked] = prepared(analysis, known.problem, known.params)
                like, checks = looked[asked]
                analysis = replace(analysis, method=like.method, rtol=like.rtol)
            except CommandError as error:
                reason = str(error)
        jobs.append(Job(run.name, run.swept, analysis, OWN, reason))
        path = f"{known.path.resolve()}:{model.rpartition(':')[2]}"
        tasks[run.name] = Task(analysis, Path(), "", model=path, checks=checks)
    return jobs, tasks


def _require_different(plan: Plan, jobs: list[Job]) -> None:
    """Raises if two runs would be in the same folder, once what they leave open is settled."""
    seen: dict[str, Job] = {}
    for job in jobs:
        same = seen.setdefault(job.configuration.name, job)
        if same is not job:
            raise CommandError(
                f"{plan.file}: every run must be another one, and {job.name!r} is the same as "
                f"{same.name!r}: leave one of them out"
            )


def _invalid(configuration: Configuration | Analysis) -> str:
    try:
        configuration.require_valid()
    except ValueError as error:
        return str(error)
    return ""


def _with_data(
    jobs: list[Job], folder: Path, data_dir: Path | None, console: Console, quiet: bool
) -> list[Job]:
    """The jobs, when the data that they need are there: downloaded once, not by every worker."""
    wanted: dict[str, str] = {}
    for job in jobs:
        configuration = job.configuration
        if isinstance(configuration, Configuration) and configuration.data != "digits":
            if configuration.data in wanted or job.reason or job.is_done(folder):
                continue
            wanted[configuration.data] = ""
            try:
                with download_view(console, quiet) as progress:
                    load(configuration.data, data_dir, progress)
            except DataError as error:
                wanted[configuration.data] = str(error)
    return [
        replace(job, reason=wanted[job.configuration.data])
        if isinstance(job.configuration, Configuration)
        and not job.reason
        and wanted.get(job.configuration.data)
        else job
        for job in jobs
    ]


@contextmanager
def _terminating() -> Iterator[None]:
    """Within it, a request to terminate stops as Ctrl-C does; Ray would end the process."""

    def handle(number: int, frame: Any) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _finish(console: Console, place: Path, board: Board) -> int:
    """Writes the report and says how it ended; returns the exit code."""
    say(console, summary(board))
    failed = {name: one.reason for name, one in board.items() if one.status == "failed"}
    for name, reason in failed.items():
        say(console, f"failed: {name}: {reason}")
    sweep = open_sweep(place)
    for name, run in sweep.runs.items():
        # Its worker may have been killed between the last record and the report.
        if board[name].status != "failed" and not (run.folder / PAGE).is_file():
            write_report(run, findings(run, experiments_of(run)))
    say(console, f"report: {write_sweep_report(sweep)}")
    return 1 if failed else 0
