"""What is seen of a download."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ..data import dataset
from .printing import can_be_drawn_on


@contextmanager
def download_view(console: Console, quiet: bool) -> Iterator[dataset.Progress]:
    """A function that is told of every file how much of it has come, and draws a bar.

    Where there is no terminal, it only says which file is being downloaded.
    """
    if quiet:
        yield dataset.silent
        return
    if not can_be_drawn_on(console):
        said = set()

        def say(file: str, done: int, total: int) -> None:
            del done, total
            if file not in said:
                said.add(file)
                console.print(f"downloading {file}", markup=False, highlight=False)

        yield say
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        tasks = {}

        def progress(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(f"downloading {file}", total=total or None)
            bars.update(tasks[file], completed=done, total=total or None)

        yield progress
