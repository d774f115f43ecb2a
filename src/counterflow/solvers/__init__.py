"""Running a dynamics: `solve`, and what comes back."""

from .solve import solve as solve
from .trajectory import (
    SolveError as SolveError,
    SolveInterrupted as SolveInterrupted,
    Statistics as Statistics,
    Status as Status,
    Trajectory as Trajectory,
)
