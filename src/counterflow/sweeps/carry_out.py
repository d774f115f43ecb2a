"""A sweep carried out: what is finished is found, the rest done on a cluster, each run once."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .cluster import Cluster, Ended, Retried
from .jobs import Job

# Seconds between two looks at how far the runs are.
_INTERVAL = 1.0

Status = Literal["waiting", "at work", "done", "found", "failed"]


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        total: How many records it has.
        status: `found` if it was finished before.
        records: How many of them are kept.
        tries: How often it was begun, in this sitting.
        reason: Why it failed.
        started: When it was seen at work first, and
        ended: when it ended, in seconds of a clock.
    """

    total: int
    status: Status = "waiting"
    records: int = 0
    tries: int = 0
    reason: str = ""
    started: float | None = None
    ended: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long it has been at work, or was."""
        if self.started is None:
            return None
        return (time.perf_counter() if self.ended is None else self.ended) - self.started


#: How far every run is, by name.
Board = Mapping[str, Progress]


class SweepWatcher:
    """Hears how a sweep is going; this one keeps silent."""

    def planned(self, board: Board) -> None:
        """What there is to do, and what is finished or cannot be done."""

    def looked(self, board: Board) -> None:
        """A look was taken at all runs."""

    def ended(self, name: str, board: Board) -> None:
        """A run is done or failed."""

    def retried(self, name: str, reason: str, board: Board) -> None:
        """A run was begun again because its worker died."""


def carry_out(
    jobs: Sequence[Job],
    folder: Path,
    cluster: Callable[[], AbstractContextManager[Cluster]],
    work: Callable[[Any], str],
    task: Callable[[Job], Any],
    cpus: float,
    retries: int,
    note: Callable[[Mapping[str, str]], None],
    watcher: SweepWatcher,
) -> Board:
    """How every run of a sweep ended.

    Args:
        jobs: The runs.
        folder: The folder that all runs are in.
        cluster: Gives the cluster, asked only if there is something to do.
        work: Carries one run out, in a worker; returns why it failed, or nothing.
        task: What it is called with for a job.
        cpus: How many processors a run takes.
        retries: How often one is begun again whose worker died.
        note: Called with the reason of every run that failed, by name, at every change.
        watcher: Hears how it is going.
    """
    board: dict[str, Progress] = {}
    for job in jobs:
        if job.reason:
            board[job.name] = Progress(0, "failed", reason=job.reason)
            continue
        total = sum(job.records.values())
        found = job.is_done(folder)
        board[job.name] = Progress(total, "found", total) if found else Progress(total)
    note(_reasons(board))
    watcher.planned(board)
    todo = {job.name: job for job in jobs if board[job.name].status == "waiting"}
    if not todo:
        return board
    before = {name: job.progress(folder)[1] for name, job in todo.items()}
    spoke = 0.0
    with cluster() as at:
        tasks = {name: task(job) for name, job in todo.items()}
        for event in at.carry_out(work, tasks, cpus, retries):
            if isinstance(event, Ended):
                _end(board[event.name], event.reason)
                if event.reason:
                    note(_reasons(board))
                watcher.ended(event.name, board)
            elif isinstance(event, Retried):
                # It waits for a worker once more.
                board[event.name].status = "waiting"
                before[event.name] = todo[event.name].progress(folder)[1]
                watcher.retried(event.name, event.reason, board)
            if time.perf_counter() - spoke >= _INTERVAL:
                _look(todo, board, before, folder)
                watcher.looked(board)
                spoke = time.perf_counter()
    _look(todo, board, before, folder)
    return board


def _end(progress: Progress, reason: str) -> None:
    progress.status = "failed" if reason else "done"
    progress.reason = reason
    progress.ended = time.perf_counter()
    if not reason:
        progress.records = progress.total


def _look(todo: Mapping[str, Job], board: Board, before: Mapping[str, int], folder: Path) -> None:
    """Takes a look at the folders of all runs that are not finished."""
    for name, job in todo.items():
        progress = board[name]
        if progress.status not in ("waiting", "at work"):
            continue
        progress.records, sittings = job.progress(folder)
        if sittings > before[name] and progress.status == "waiting":
            progress.status, progress.tries = "at work", progress.tries + 1
            progress.started = progress.started or time.perf_counter()


def _reasons(board: Board) -> dict[str, str]:
    return {name: one.reason for name, one in board.items() if one.status == "failed"}
