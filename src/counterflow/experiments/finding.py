"""What an experiment found: its claims with their figures, and what there is to see.

A finding says what is drawn, not how: the report draws it.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

#: What a curve stands for; the report gives each its colour and dash, the same in all figures.
Role = Literal[
    "descent",
    "order 0",
    "order 1",
    "order 2",
    "order 3",
    "order 4",
    "learning rate 0",
    "learning rate 1",
    "learning rate 2",
    "local",
    "restarted",
    "propagated",
    "exact",
    "solver",
    "background",
]


@dataclass(frozen=True)
class Claim:
    """One claim, the figures it rests on, and whether it holds.

    Attributes:
        text: The claim as a sentence.
        figures: The numbers that decide it, as they were measured.
        holds: Whether it holds.
    """

    text: str
    figures: str
    holds: bool

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS'}: {self.text} ({self.figures})"


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of a figure.

    Attributes:
        name: Its name in the legend.
        role: What it stands for.
        x: Where it is known.
        y: Its values there; not a number where there is none.
        points: Whether to mark every point.
        variant: Tells apart curves of one role in one panel, as of several learning rates: the
            first is drawn as the role says, further ones with other dashes in the same colour.
        band: Lower and upper values around `y`, as of several seeds.
    """

    name: str
    role: Role
    x: Float[np.ndarray, " points"]
    y: Float[np.ndarray, " points"]
    points: bool = False
    variant: int = 0
    band: tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]] | None = None


@dataclass(frozen=True, eq=False)
class Panel:
    """A pair of axes with curves.

    Attributes:
        title: What distinguishes it from the other panels of the figure.
        x_title: The title of the horizontal axis.
        y_title: The title of the vertical axis.
        curves: The curves, those below others first.
        x_scale: Whether the horizontal axis is logarithmic.
        y_scale: Whether the vertical axis is logarithmic.
        plane: Whether both axes are lengths in one plane, to be drawn to the same scale.
        y_ends: The ends of the vertical axis, where panels share one; by default those of the
            curves.
    """

    title: str
    x_title: str
    y_title: str
    curves: tuple[Curve, ...]
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    plane: bool = False
    y_ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class Table:
    """A table of text, numbers already written out."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Finding:
    """What an experiment found.

    Attributes:
        name: The name to ask for it by, as in `counterflow reproduce figure2`.
        title: A heading.
        caption: What is seen.
        claims: What is claimed, and whether it holds.
        panels: What is drawn.
        table: What is tabulated, if anything is.
    """

    name: str
    title: str
    caption: str
    claims: tuple[Claim, ...]
    panels: tuple[Panel, ...] = ()
    table: Table | None = None

    @property
    def holds(self) -> bool:
        """Whether every claim holds."""
        return all(claim.holds for claim in self.claims)
