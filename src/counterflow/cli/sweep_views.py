"""What is seen of a sweep while it is at work: a live table in a terminal, else plain lines."""

import time

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..report.report import duration
from ..sweeps.carry_out import Board, Progress, SweepWatcher
from .printing import printable, say

# Seconds between two plain lines about all runs.
_INTERVAL = 10.0
# What is worth a line first, where a terminal has too few.
_FIRST = ("at work", "failed", "waiting", "done", "found")
_STYLES = {"failed": "bold red", "done": "green", "found": "green", "at work": "bold"}


class PlainSweepView(SweepWatcher):
    """One line for every run that ends, and now and then one about all."""

    def __init__(self, console: Console):
        self.console = console
        self._spoke = time.perf_counter()

    def planned(self, board: Board) -> None:
        say(self.console, summary(board))
        for name, one in board.items():
            if one.status == "failed":
                say(self.console, f"{name}: failed: {one.reason}")

    def ended(self, name: str, board: Board) -> None:
        say(self.console, ending(name, board))

    def retried(self, name: str, reason: str, board: Board) -> None:
        say(self.console, retrying(name, reason))

    def looked(self, board: Board) -> None:
        now = time.perf_counter()
        if now - self._spoke >= _INTERVAL:
            self._spoke = now
            say(self.console, summary(board))


class LiveSweepView(SweepWatcher):
    """A table of all runs, redrawn at every look."""

    def __init__(self, console: Console):
        self.console = console
        self._live = Live(console=console, refresh_per_second=4)

    def __enter__(self) -> "LiveSweepView":
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.update(Text(""))
        self._live.__exit__(None, None, None)

    def planned(self, board: Board) -> None:
        self.looked(board)

    def ended(self, name: str, board: Board) -> None:
        say(self._live.console, ending(name, board))
        self.looked(board)

    def retried(self, name: str, reason: str, board: Board) -> None:
        say(self._live.console, retrying(name, reason))
        self.looked(board)

    def looked(self, board: Board) -> None:
        shown = sorted(board, key=lambda name: _FIRST.index(board[name].status))
        room = max(3, self.console.size.height - 6)
        left = len(shown) - room
        # In the order of the file, whatever is chosen.
        chosen = set(shown[:room])
        table = _table({name: one for name, one in board.items() if name in chosen})
        more = [Text(f"and {left} more")] if left > 0 else []
        self._live.update(Group(Text(summary(board), style="bold"), table, *more))


def summary(board: Board) -> str:
    """How far all runs are, in a line."""
    counts = dict.fromkeys(("done", "found", "at work", "waiting", "failed"), 0)
    for one in board.values():
        counts[one.status] += 1
    told = {"found": "finished before"}
    said = [f"{count} {told.get(status, status)}" for status, count in counts.items() if count]
    records = sum(one.records for one in board.values())
    total = sum(one.total for one in board.values())
    return f"{len(board)} runs: {', '.join(said)}; {records:,} of {total:,} records"


def ending(name: str, board: Board) -> str:
    """That a run is done or failed, in a line."""
    one = board[name]
    over = sum(other.status in ("done", "found", "failed") for other in board.values())
    took = "" if one.seconds is None else f" in {duration(one.seconds)}"
    said = f"failed: {one.reason}" if one.status == "failed" else f"done{took}"
    return f"[{over}/{len(board)}] {name}: {said}"


def retrying(name: str, reason: str) -> str:
    """That a run was begun again, in a line."""
    return f"{name}: {reason}; going on from its last record"


def _table(board: Board) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("run", "status", "records", "tries", "time"):
        right = column in ("records", "tries", "time")
        table.add_column(column, justify="right" if right else "left", no_wrap=column != "run")
    for name, one in board.items():
        table.add_row(
            Text(printable(name)),
            Text(one.status, style=_STYLES.get(one.status, "")),
            _records(one),
            str(one.tries) if one.tries else "",
            "" if one.seconds is None else duration(one.seconds),
        )
    return table


def _records(one: Progress) -> str:
    return f"{one.records:,} / {one.total:,}" if one.total else ""
