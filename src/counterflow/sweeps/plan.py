"""A sweep as it is planned: its runs, and the settings by which they differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# As the paper calls what is swept most.
_SYMBOLS = {
    "learning_rate": "η",
    "learning_rates": "η",
    "weight_decays": "λ",
    "orders": "γ",
}


class SweepError(Exception):
    """A file that is no sweep, or a sweep that cannot be read; the message says why."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep.

    Attributes:
        swept: The fields by which it differs from others, with their values.
        settings: Every field of its configuration, or of one's own problem every one that the
            file of the model leaves open.
    """

    swept: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What is swept, as a title.

        >>> PlannedRun({"learning_rates": (0.1,), "seed": 3}, {}).name
        'η = 0.1, seed = 3'
        """
        return ", ".join(f"{symbol(field)} = {shown(value)}" for field, value in self.swept.items())


@dataclass(frozen=True)
class Plan:
    """A sweep as its file has it.

    Attributes:
        name: Its name.
        file: Its file.
        model: One's own problem as FILE.py:NAME, or nothing for the paper's experiments.
        experiments: The names of the paper's experiments that every run makes.
        runs: The runs.
    """

    name: str
    file: Path
    model: str | None
    experiments: tuple[str, ...]
    runs: tuple[PlannedRun, ...]


def symbol(field: str) -> str:
    """A field as a heading has it."""
    return _SYMBOLS.get(field, field)


def shown(value: Any) -> str:
    """The value of a field, to the last digit.

    >>> shown((0.1,)), shown((0, 1)), shown(None)
    ('0.1', '0 1', 'chosen')
    """
    if value is None:
        return "chosen"
    if isinstance(value, tuple | list):
        return " ".join(map(shown, value)) or "none"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
