"""What becomes of a charge, predicted along a flow, without running gradient descent."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..dynamics.equation_of_motion import EquationOfMotion
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import inner, on_device, rounding_of
from ..solvers.choice import classical_solver
from ..solvers.flow import Integrator
from ..solvers.interruption import RunInterrupted
from ..solvers.requirements import (
    require_max_steps,
    require_one_dtype,
    require_progress,
    require_records,
    require_solver,
    require_steps,
    require_tolerances,
)
from ..solvers.runners import FlowRunner, run_records
from ..solvers.trajectory import Statistics, Status
from .charge_equation import MEASURE, ChargeEquation, ChargeState
from .requirements import exactness, require_symmetry
from .symmetry import Symmetry

_RTOL, _RTOL_SINGLE = 1e-10, 1e-4


@dataclass(frozen=True, eq=False)
class ChargePrediction:
    """The charge of a symmetry along a flow, as far as the flow could be run.

    Every array is over the records and, of several, the units.

    Attributes:
        symmetry: The symmetry.
        learning_rate: The learning rate η.
        order: The order γ of the flow.
        steps: The step numbers of the records.
        times: Their times `kη`.
        initial: `e^{−λt} q(0)`.
        weight_decay: `−λ ∫ e^{−λ(t−τ)} θ·((θ·∇)G) dτ`.
        counter: `−η ∫ e^{−λ(t−τ)} (ξ·G + θ·((ξ·∇)G)) dτ`.
        decayed: `e^{−dΓt} q(0)`, the first term of Theorem 5.1's solution, for a charge of degree
            d; NaN for a symmetry of the user's own.
        gradient: `∫ e^{−dΓ(t−τ)} (gradient terms) dτ`, its second term.
        flow_charge: The charge of the flow's own params, which `charge` equals up to the solver's
            error.
        charge: The predicted charge, by the solved conservation law: `initial`, `weight_decay` and
            `counter` together.
        charge_from_gradient: The same by Theorem 5.1's solution, `decayed` and `gradient` together.
        status: How the run ended; `Status.COMPLETED` if every record was reached.
        statistics: What it cost.
    """

    symmetry: Symmetry
    learning_rate: float
    order: int
    steps: np.ndarray
    times: np.ndarray
    initial: np.ndarray
    weight_decay: np.ndarray
    counter: np.ndarray
    decayed: np.ndarray
    gradient: np.ndarray
    flow_charge: np.ndarray
    status: Status
    statistics: Statistics

    @property
    def charge(self) -> np.ndarray:
        """The predicted charge, by the solved conservation law (Theorem B.1)."""
        return self.initial + self.weight_decay + self.counter

    @property
    def charge_from_gradient(self) -> np.ndarray:
        """The same by Theorem 5.1's solution: the decayed charge and the gradient integral."""
        return self.decayed + self.gradient

    def __repr__(self) -> str:
        where = f"{self.symmetry!r}, order {self.order}, η = {self.learning_rate:g}"
        if not len(self.steps):
            return f"ChargePrediction({where}; {self.status} before the first record)"
        charge = np.array2string(self.charge[-1], precision=6, threshold=6, edgeitems=2)
        return (
            f"ChargePrediction({where}; at step {self.steps[-1]}, t = {self.times[-1]:g}: "
            f"{charge}; {self.status})"
        )


def predict_charge(
    problem: Problem,
    symmetry: Symmetry,
    params: PyTree,
    learning_rate: Any,
    steps: int,
    order: int = 1,
    *,
    method: str = "taylor",
    records: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    solver: diffrax.AbstractSolver | None = None,
    max_steps: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ChargePrediction:
    """The charge of a symmetry along a flow, by its broken conservation law (Theorem B.1).

    The integrals of the law are extra state of the flow; nothing is recorded from descent.

    Args:
        problem: The problem, with its weight decay.
        symmetry: A symmetry of its loss; that it is one is checked at `params`.
        params: The params at step 0.
        learning_rate: The η of gradient descent.
        steps: The number of steps to predict.
        order: The order γ of the flow: 0 is gradient flow.
        method: How the flow computes its velocity, as for `EquationOfMotion`.
        records: At which steps to keep the charge: a list of step numbers, or how many evenly
            spaced ones after the start; by default the last step alone.
        rtol: Relative tolerance, by default 1e-10.
        atol: Absolute tolerance, by default `rtol / 100`.
        solver: Any diffrax solver. By default Tsit5, or Dopri8 for a small `rtol`.
        max_steps: How many steps the solver may try, by default a million.
        progress: Called with the number of records done and to do, after each record.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)
        >>> params = jnp.array([0.6, 0.8])
        >>> cf.predict_charge(problem, cf.Scale(""), params, 0.01, steps=100, order=1)
        ChargePrediction(Scale(''), order 1, η = 0.01; at step 100, t = 1: 0.827663; completed)

        The same by descent:

        >>> descent = cf.GradientDescent(problem, 0.01)
        >>> print(f"{cf.Scale('').charge(cf.solve(descent, params, [1.0]).at(-1)):.6f}")
        0.827655
    """
    flow = EquationOfMotion(problem, learning_rate, order, method)
    steps = require_steps(steps)
    kept = np.array([steps]) if records is None else require_records(records, steps, 1)
    require_progress(progress)
    max_steps = require_max_steps(max_steps)
    params = at_the_door(problem, params)
    require_one_dtype(params)
    require_symmetry(symmetry, problem, params)
    rtol = prediction_tolerance(params) if rtol is None else rtol
    rtol, atol = require_tolerances(rtol, atol, params)
    times = kept * float(flow.learning_rate)
    equation = on_device(ChargeEquation(flow, symmetry))
    dtype = jnp.result_type(*jax.tree.leaves(params))
    solver = classical_solver(rtol) if solver is None else require_solver(solver)
    integrator = Integrator(solver, rtol, atol, dtype, MEASURE)
    runner = FlowRunner(equation, equation.start(params), times, integrator, max_steps)
    found: list[tuple[np.ndarray, ...]] = []

    def keep(record: ChargeState) -> None:
        columns = _record(equation, params, record, times[len(found)])
        found.append(tuple(map(np.asarray, columns)))

    status, interruption = run_records(runner.advance, len(kept), keep, progress)
    units = symmetry.identity(params).shape
    columns = np.array(found).reshape(len(found), 6, *units)
    result = ChargePrediction(
        symmetry,
        float(flow.learning_rate),
        flow.order,
        kept[: len(found)],
        times[: len(found)],
        *(columns[:, column] for column in range(6)),
        status=status,
        statistics=runner.statistics(),
    )
    _tell_of_failure(result, params, rtol)
    if interruption is not None:
        raise RunInterrupted(f"{status}: {status.remedy}", result) from interruption
    return result


def _tell_of_failure(result: ChargePrediction, params: PyTree, rtol: float) -> None:
    """Warns where the law does not give the charge of the flow's own params.

    Invariance and the assumption of Theorem B.1 were checked at the start alone.
    """
    size = np.abs(result.flow_charge) + float(inner(params, params))
    off = np.max(np.abs(result.charge - result.flow_charge) / size, initial=0)
    if off > 10 * max(exactness(params), rtol):
        warnings.warn(
            f"along this flow the conservation law of {result.symmetry!r} is off by {off:.1g}: it "
            "is a symmetry, or meets the assumption of Theorem B.1, at the start only; use "
            "`flow_charge`, the charge of the flow's own params",
            stacklevel=3,
        )


def prediction_tolerance(params: PyTree) -> float:
    """The relative tolerance by default, for the dtype of the params."""
    return _RTOL if rounding_of(params) < 1e-10 else _RTOL_SINGLE


@eqx.filter_jit
def _record(
    equation: ChargeEquation, start: PyTree, state: ChargeState, time: Any
) -> tuple[Float[Array, "*units"], ...]:
    """The columns of a `ChargePrediction` at one record."""
    symmetry = equation.symmetry
    charge = symmetry.charge(start)
    rates = (equation.problem.weight_decay, equation.decay)
    initial, decayed = (jnp.exp(-rate * time).astype(charge.dtype) * charge for rate in rates)
    known = symmetry.charge_degree is not None
    return (
        initial,
        state.weight_decay,
        state.counter,
        decayed if known else jnp.full_like(charge, jnp.nan),
        state.gradient,
        symmetry.charge(state.params),
    )
