"""What is seen of a run while it is at work: a live table in a terminal, else plain lines."""

import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..experiments.carry_out import Watcher
from ..report.report import duration
from ..runs.training import Training, Update
from .printing import printable, say

#: Seconds between two plain lines about one training.
_INTERVAL = 10.0


class PlainView(Watcher):
    """One line for every part that is done, and now and then one in between."""

    def __init__(self, console: Console):
        self.console, self.todo, self.done = console, 0, 0
        self._since = self._spoke = time.perf_counter()
        self._pace = _Pace()

    def planned(self, trainings: Sequence[Training], results: Sequence[str]) -> None:
        self.todo = len(trainings) + len(results)

    def started(self, what: str) -> None:
        self._since = self._spoke = time.perf_counter()
        self._pace = _Pace()
        say(self.console, f"[{self.done + 1}/{self.todo}] {what}")

    def finished(self, what: str) -> None:
        self.done += 1
        took = duration(time.perf_counter() - self._since)
        say(self.console, f"[{self.done}/{self.todo}] {what}: done in {took}")

    def progressed(self, done: int, total: int, words: str) -> None:
        now = time.perf_counter()
        told = self._pace.progress(done, total, words, now)
        if now - self._spoke >= _INTERVAL:
            self._spoke = now
            say(self.console, f"    {told}")

    def recorded(self, update: Update) -> None:
        now = time.perf_counter()
        remaining = self._pace.remaining(update.done, update.total, now)
        if now - self._spoke < _INTERVAL:
            return
        self._spoke = now
        flow = update.rows.get("flow 0", {})
        say(
            self.console,
            f"    step {update.step:,} of {update.training.steps:,}, loss "
            f"{update.rows['descent']['loss']:.4g}, error of gradient flow "
            f"{flow.get('error', float('nan')):.2e}, {update.rate:,.0f} gradients/s, "
            f"{remaining}",
        )

    def said(self, message: str) -> None:
        say(self.console, message)


class LiveView(Watcher):
    """A table of the processes of the training at work, redrawn at every record."""

    def __init__(self, console: Console):
        self.console, self.todo, self.done = console, 0, 0
        self._live = Live(console=console, refresh_per_second=4)
        self._since, self._what = time.perf_counter(), ""
        self._update: Update | None = None
        self._pace = _Pace()
        self._before: tuple[float, dict[str, int]] = (0.0, {})

    def __enter__(self) -> "LiveView":
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.update(Text(""))
        self._live.__exit__(None, None, None)

    def planned(self, trainings: Sequence[Training], results: Sequence[str]) -> None:
        self.todo = len(trainings) + len(results)

    def started(self, what: str) -> None:
        self._since, self._what, self._update = time.perf_counter(), what, None
        self._before, self._pace = (self._since, {}), _Pace()
        self._draw()

    def finished(self, what: str) -> None:
        self.done += 1
        took = duration(time.perf_counter() - self._since)
        say(self._live.console, f"[{self.done}/{self.todo}] {what}: done in {took}")

    def progressed(self, done: int, total: int, words: str) -> None:
        self._draw(self._pace.progress(done, total, words, time.perf_counter()))

    def recorded(self, update: Update) -> None:
        self._update = update
        self._draw()

    def said(self, message: str) -> None:
        say(self._live.console, message)

    def _draw(self, doing: str = "compiling and computing") -> None:
        heading = printable(f"[{self.done + 1}/{self.todo}] {self._what}")
        update = self._update
        if update is None:
            note = Text(f"{heading}: {printable(doing)}", style="bold")
            self._live.update(note)
            return
        now = time.perf_counter()
        heading += (
            f": record {update.done} of {update.total}, "
            f"{self._pace.remaining(update.done, update.total, now)} for this part"
        )
        self._live.update(Group(Text(heading, style="bold"), self._table(update, now)))

    def _table(self, update: Update, now: float) -> Table:
        table = Table(box=None, pad_edge=False)
        for column in ("process", "step", "time", "loss", "error", "gradients", "gradients/s"):
            table.add_column(column, justify="left" if column == "process" else "right")
        since, before = self._before
        counts = {n: part["gradient_evaluations"] or 0 for n, part in update.statistics.items()}
        for name, count in counts.items():
            rows = update.rows.get(name, {})
            loss = rows.get("loss", rows.get("flow_loss"))
            error = rows.get("error")
            # What an earlier sitting did was not done just now.
            rate = (count - before.get(name, count)) / max(now - since, 1e-9)
            table.add_row(
                name,
                f"{update.step:,}",
                f"{update.step * update.training.learning_rate:g}",
                "" if loss is None else f"{loss:.5g}",
                "" if error is None else f"{error:.2e}",
                f"{count:,}",
                f"{rate:,.0f}",
            )
        self._before = (now, counts)
        return table


class _Pace:
    """How fast records or parts come, the first aside: it takes the compilations too."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def remaining(self, done: int, total: int, now: float) -> str:
        """How long the rest will take, told at every record or part."""
        if self._first is None:
            self._first = (done, now)
        first, since = self._first
        if done >= total:
            return "done"
        if done == first:
            return "no estimate yet"
        return f"about {duration((total - done) * (now - since) / (done - first))} left"

    def progress(self, done: int, total: int, words: str, now: float) -> str:
        """How far a result is that takes long: in words, or by its parts."""
        return words or f"part {done} of {total}, {self.remaining(done, total, now)}"
