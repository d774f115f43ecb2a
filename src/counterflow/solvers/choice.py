"""Which solver a flow is given where none is named."""

from typing import Any, NamedTuple

import diffrax
import equinox as eqx
from jaxtyping import PyTree

from ..dynamics.dynamics import Flow
from .requirements import require_solver
from .rock4 import ROCK4
from .spectral_radius import Estimate, first_estimate
from .stabilized_adams import StabilizedAdams

# With ρ the spectral radius, T the horizon: classical methods are stable up to about 0.6/ρ of time
# per evaluation, a stabilized Adams method up to about 2/ρ where it is not accuracy that decides.
# It is the cheapest from a few 1/ρ on; but a short flow takes few evaluations anyway, and a
# classical method compiles sooner.
_MULTISTEP_ABOVE = 20
# ROCK4 takes √(ρT N/0.35) evaluations for N steps: as many as its accuracy asks for, in a
# training to t = 50 from 4 rtol^(−1/5) on digits to 12 rtol^(−1/5) on MNIST, and one for each
# record, because it has to stop at records where a flow is stiff. With 16 the switch is about
# where ROCK4 becomes the cheaper one on a quadratic (tests/solvers/test_choice.py has both sides);
# where the radius falls on the way, as on MNIST, that is later.
_ROCK4_ABOVE, _ACCURATE_STEPS = 28, 16
# Comparisons and predictions measure what is a small part of params, with tolerances that are meant
# for Runge–Kutta methods, whose errors are far below them. With this share of the tolerance for a
# step, those of the multistep solver are so too.
_CAREFUL_SHARE = 0.005
# A method of higher order pays at tight tolerances, if it need not stop at many records.
_DOPRI8_BELOW, _MANY_RECORDS, _TSIT5_ABOVE = 1e-7, 20, 3e-13


class Choice(NamedTuple):
    """A solver, and what was found out to choose it, which the solver can begin with.

    Attributes:
        solver: The solver.
        evaluations: How often the velocity was evaluated to choose it.
        velocity: The velocity at the start, if it was.
        estimate: The spectral radius there.
    """

    solver: diffrax.AbstractSolver
    evaluations: int
    velocity: PyTree = None
    estimate: Estimate | None = None


def choose_solver(
    solver: Any,
    flow: Flow,
    params: PyTree,
    rtol: float,
    horizon: float,
    records: int = 1,
    *,
    careful: bool = True,
) -> Choice:
    """The solver given, or one for the flow; raises unless it is one that fits a flow.

    By default a stabilized one where the flow is stiff for its tolerance, else a classical one.

    Args:
        solver: The solver that was asked for, or `None`.
        flow: The flow.
        params: Where it starts.
        rtol: The relative tolerance.
        horizon: How long it is to run.
        records: At how many times it is looked at.
        careful: Whether errors are to be far below the tolerance; else about a tenth of it will do.
    """
    if solver is not None:
        return Choice(require_solver(solver), 0)
    velocity, found = _measure(flow, params)
    suitable = suitable_solver(float(found.radius), rtol, horizon, records, careful=careful)
    return Choice(suitable, 1 + int(found.evaluations), velocity, found)


def suitable_solver(
    radius: float, rtol: float, horizon: float, records: int = 1, *, careful: bool = True
) -> diffrax.AbstractSolver:
    """The solver with the fewest evaluations for a flow with that spectral radius."""
    if radius * horizon > _ROCK4_ABOVE * max(_ACCURATE_STEPS * rtol**-0.2, records):
        return ROCK4()
    if radius * horizon > _MULTISTEP_ABOVE:
        return StabilizedAdams(share=_CAREFUL_SHARE) if careful else StabilizedAdams()
    return classical_solver(rtol, records)


def classical_solver(rtol: float, records: int = 1) -> diffrax.AbstractSolver:
    """The solver for a flow that is not stiff."""
    # Tsit5 reads many records off its own steps; Dopri8, which needs fewer, has to stop at each.
    tsit5 = rtol >= (_TSIT5_ABOVE if records > _MANY_RECORDS else _DOPRI8_BELOW)
    return diffrax.Tsit5() if tsit5 else diffrax.Dopri8()


@eqx.filter_jit
def _measure(flow: Flow, params: PyTree) -> tuple[PyTree, Estimate]:
    velocity = flow.velocity(params)
    return velocity, first_estimate(flow.velocity, params, velocity)
