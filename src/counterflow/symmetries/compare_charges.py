"""A charge under gradient descent, beside what every order predicts for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PyTree

from ..counter_terms.update_rule import descend
from ..dynamics.equation_of_motion import EquationOfMotion
from ..dynamics.gradient_descent import GradientDescent
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import add_scaled, is_finite, on_device
from ..solvers.interruption import RunInterrupted
from ..solvers.requirements import (
    require_max_steps,
    require_one_dtype,
    require_orders,
    require_progress,
    require_records,
    require_steps,
    require_tolerances,
)
from ..solvers.trajectory import Status
from .charge_velocity import decay_per_time, law_of_step
from .predict_charge import predict_charge, prediction_tolerance
from .requirements import require_degree, require_symmetry
from .symmetry import Symmetry


@dataclass(frozen=True, eq=False)
class ChargeComparison:
    """A charge measured under gradient descent, and predicted.

    Arrays are over records and, of several, units; predictions over orders first.

    Attributes:
        symmetry: The symmetry.
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ.
        orders: The orders γ of the flows.
        steps: The step numbers of the records.
        measured: The charge of descent's params.
        exact_law: The charge by its exact law under descent, step by step from the first charge and
            the gradients of descent.
        recorded_gradients: The charge as Kunin et al. (2021) predict it: Theorem 5.1's solution at
            order 1, its integral a sum over the gradients recorded from descent.
        predicted: The charge along each flow, by `predict_charge`.
        solver_error: How far `predicted` is from a solution by Tsit5 with ten times the tolerance.
        status: How the run ended: of descent, or of the first flow that failed.
    """

    symmetry: Symmetry
    learning_rate: float
    weight_decay: float
    orders: tuple[int, ...]
    steps: np.ndarray
    measured: np.ndarray
    exact_law: np.ndarray
    recorded_gradients: np.ndarray
    predicted: np.ndarray
    solver_error: np.ndarray
    status: Status

    @property
    def times(self) -> np.ndarray:
        """The times `kη` of the records."""
        return self.steps * self.learning_rate

    @property
    def gap(self) -> np.ndarray:
        """`|predicted − measured|` for each order (the paper's Figures 8 and 10)."""
        return np.abs(self.predicted - self.measured)

    @property
    def recorded_gap(self) -> np.ndarray:
        """`|recorded_gradients − measured|`."""
        return np.abs(self.recorded_gradients - self.measured)

    def to_xarray(self) -> xarray.Dataset:
        """Everything as a labelled dataset over order, step and, of several, unit."""
        units = ("unit",) if self.measured.ndim > 1 else ()
        over, by_order = ("step", *units), ("order", "step", *units)
        unit = "squared parameter units" if self.symmetry.charge_degree == 2 else "parameter units"
        described = {
            "measured": (over, self.measured, "charge under gradient descent"),
            "exact_law": (over, self.exact_law, "charge by its exact law under descent"),
            "recorded_gradients": (
                over,
                self.recorded_gradients,
                "charge predicted from gradients recorded from descent (Kunin et al.)",
            ),
            "predicted": (by_order, self.predicted, "charge along the flow of this order"),
            "gap": (by_order, self.gap, "|predicted - measured|"),
            "solver_error": (by_order, self.solver_error, "error of the flow's solver"),
        }
        return xarray.Dataset(
            {
                name: (dims, values, {"description": text, "units": unit})
                for name, (dims, values, text) in described.items()
            },
            coords={
                "order": ("order", list(self.orders), {"description": "order γ of the flow"}),
                "step": ("step", self.steps, {"description": "step of gradient descent"}),
                "time": ("step", self.times, {"description": "time t = kη"}),
            },
            attrs={
                "symmetry": repr(self.symmetry),
                "learning_rate": self.learning_rate,
                "weight_decay": self.weight_decay,
                "status": str(self.status),
            },
        )

    def __repr__(self) -> str:
        head = (
            f"ChargeComparison of {self.symmetry!r} at η = {self.learning_rate:g}, "
            f"λ = {self.weight_decay:g}; {self.status}"
        )
        if not len(self.steps):
            return head
        rows = [head, f"at step {self.steps[-1]}, t = {self.times[-1]:g}:"]
        unit = "largest over units: " if self.measured.ndim > 1 else ""
        size = np.max(np.abs(self.measured[-1]))
        rows.append(f"{unit}charge {size:.6g}; by its exact law, off by {self._last_gap():.1e}")
        rows.append(f"{'order':>9}  {'gap':>8}  {'solver':>7}")
        for index, order in enumerate(self.orders):
            gap, solver = np.max(self.gap[index, -1]), np.max(self.solver_error[index, -1])
            rows.append(f"{order:>9}  {gap:>8.2e}  {solver:>7.0e}")
        rows.append(f"{'recorded':>9}  {np.max(self.recorded_gap[-1]):>8.2e}")
        return "\n".join(rows)

    def _last_gap(self) -> float:
        return float(np.max(np.abs(self.exact_law[-1] - self.measured[-1])))


def compare_charges(
    problem: Problem,
    symmetry: Symmetry,
    params: PyTree,
    learning_rate: Any,
    steps: int,
    orders: Any = (0, 1),
    *,
    records: Any = None,
    method: str = "taylor",
    rtol: float | None = None,
    max_steps: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ChargeComparison:
    """A charge under gradient descent, beside the prediction of every order.

    Args:
        problem: The problem, with its weight decay.
        symmetry: A translation, scale or rescale under which its loss is invariant.
        params: The params at step 0.
        learning_rate: The learning rate η.
        steps: The number of steps of gradient descent.
        orders: The orders γ of the flows.
        records: At which steps to compare: a list of step numbers, or how many evenly spaced ones
            after the start; by default 100.
        method: How the flows compute their velocities, as for `EquationOfMotion`.
        rtol: Relative tolerance of the flows, by default 1e-10.
        max_steps: How many steps each flow's solver may try, by default a million. At the kinks of
            a ReLU network it takes many small ones.
        progress: Called with the number of runs done and to do, descent and two for each order.

    Returns:
        A `ChargeComparison`. Descent that diverges ends it with a status, the records before are
        kept. An interruption from the keyboard raises `RunInterrupted`, whose `result` is the
        comparison so far, with NaN for what was not predicted yet.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)
        >>> cf.compare_charges(problem, cf.Scale(""), jnp.array([0.6, 0.8]), 0.1, steps=100)
        ChargeComparison of Scale('') at η = 0.1, λ = 0.1; completed
        at step 100, t = 10:
        charge 0.160526; by its exact law, off by 5.0e-16
            order       gap   solver
                0  2.52e-02    3e-11
                1  8.74e-04    4e-11
         recorded  5.18e-04
    """
    descent = GradientDescent(problem, learning_rate)
    steps = require_steps(steps)
    kept = require_records(records, steps, default=100)
    orders = require_orders(orders)
    for order in orders:
        EquationOfMotion(problem, learning_rate, order, method)
    require_progress(progress)
    max_steps = require_max_steps(max_steps)
    params = at_the_door(problem, params)
    require_one_dtype(params)
    require_symmetry(symmetry, problem, params)
    require_degree(symmetry)
    rtol = prediction_tolerance(params) if rtol is None else rtol
    rtol, _ = require_tolerances(rtol, None, params)
    done, total = 0, 1 + 2 * len(orders)

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    run = _ChargeRun(on_device(descent), symmetry, params, kept, len(orders))
    interruption = None
    try:
        run.descend()
        tick()
        for row, order in enumerate(orders):
            for solver, tolerance in ((None, rtol), (diffrax.Tsit5(), 10 * rtol)):
                run.predict(row, order, method, solver, tolerance, max_steps)
                tick()
    except KeyboardInterrupt as error:
        run.status, interruption = Status.INTERRUPTED, error
    reached = len(run.found)
    measured, law, recorded = np.moveaxis(run.columns(), 1, 0)
    result = ChargeComparison(
        symmetry=symmetry,
        learning_rate=float(descent.learning_rate),
        weight_decay=float(problem.weight_decay),
        orders=orders,
        steps=kept[:reached],
        measured=measured,
        exact_law=law,
        recorded_gradients=recorded,
        predicted=run.predicted[0, :, :reached],
        solver_error=np.abs(run.predicted[0] - run.predicted[1])[:, :reached],
        status=run.status,
    )
    if interruption is not None:
        raise RunInterrupted(f"{run.status}: {run.status.remedy}", result) from interruption
    return result


class _ChargeRun:
    """What was found so far: descent's charges at its records, and two solutions of every flow."""

    def __init__(
        self,
        descent: GradientDescent,
        symmetry: Symmetry,
        params: PyTree,
        steps: np.ndarray,
        orders: int,
    ):
        self.descent, self.symmetry, self.params, self.steps = descent, symmetry, params, steps
        self.charge = symmetry.charge(params)
        self.found: list[list[Any]] = []
        self.predicted = np.full((2, orders, len(steps), *self.charge.shape), np.nan)
        self.status = Status.COMPLETED

    def descend(self) -> None:
        """The measured charge, by its exact law and by recorded gradients, at every record."""
        state, done = _State(self.params, self.charge, self.charge), 0
        for step in self.steps:
            count = jnp.asarray(int(step) - done, jnp.int32)
            state, done = _descend(self.descent, self.symmetry, state, count), int(step)
            if not bool(is_finite(state.params)):
                self.status = Status.NON_FINITE
                return
            measured = self.symmetry.charge(state.params)
            self.found.append([np.asarray(measured), state.law, state.recorded])

    def columns(self) -> np.ndarray:
        return np.reshape(self.found, (len(self.found), 3, *self.charge.shape))

    def predict(
        self,
        row: int,
        order: int,
        method: str,
        solver: diffrax.AbstractSolver | None,
        rtol: float,
        max_steps: int | None,
    ) -> None:
        """One solution of a flow at the records that descent reached."""
        if not self.found:
            return
        steps = self.steps[: len(self.found)]
        run = predict_charge(
            self.descent.problem,
            self.symmetry,
            self.params,
            self.descent.learning_rate,
            max(int(steps[-1]), 1),
            order,
            method=method,
            records=steps,
            solver=solver,
            rtol=rtol,
            max_steps=max_steps,
        )
        self.predicted[int(solver is not None), row, : len(run.steps)] = run.charge
        if self.status is Status.COMPLETED:
            self.status = run.status


class _State(eqx.Module):
    """Descent, and the charges that follow from the gradients it meets."""

    params: PyTree
    law: Float[Array, "*units"]
    recorded: Float[Array, "*units"]


@eqx.filter_jit
def _descend(
    descent: GradientDescent, symmetry: Symmetry, state: _State, count: Int[Array, ""]
) -> _State:
    problem, rate = descent.problem, descent.learning_rate
    degree = require_degree(symmetry)
    decay = jnp.exp(-degree * decay_per_time(rate, problem.weight_decay, 1) * rate)
    decay = decay.astype(state.law.dtype)

    def body(_: Any, state: _State) -> _State:
        bare = problem.loss_gradient(state.params)
        gradient = add_scaled(bare, problem.weight_decay, state.params)
        source = jnp.asarray(rate**2, decay.dtype) * symmetry.charge(bare) if degree == 2 else 0
        return _State(
            params=descend(state.params, gradient, rate),
            law=law_of_step(symmetry, state.law, problem, bare, rate),
            recorded=decay * (state.recorded + source),
        )

    return jax.lax.fori_loop(0, count, body, state)
