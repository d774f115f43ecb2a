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
from ..dynamics.gradient_descent import GradientDescent
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import is_finite, on_device
from ..solvers.requirements import (
    require_orders,
    require_progress,
    require_records,
    require_steps,
)
from ..solvers.trajectory import Status
from .charge_velocity import decay_per_time, law_of_step, require_degree
from .predict_charge import predict_charge, prediction_tolerance
from .symmetry import Symmetry, require_symmetry


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
                name: (dims, values, {"description": text, "units": "squared parameter units"})
                if self.symmetry.charge_degree == 2
                else (dims, values, {"description": text, "units": "parameter units"})
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
        progress: Called with the number of runs done and to do, descent and two for each order.

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
    require_progress(progress)
    params = at_the_door(problem, params)
    require_symmetry(symmetry, problem, params)
    require_degree(symmetry)
    rtol = prediction_tolerance(params) if rtol is None else rtol
    done, total = 0, 1 + 2 * len(orders)

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    columns, status = _descent_charges(on_device(descent), symmetry, params, kept)
    kept = kept[: len(columns)]
    tick()
    measured, law, recorded = np.moveaxis(columns, 1, 0)
    predicted, solver_error = [], []
    for order in orders if len(kept) else ():
        found = []
        for solver, tolerance in ((None, rtol), (diffrax.Tsit5(), 10 * rtol)):
            run = predict_charge(
                problem,
                symmetry,
                params,
                learning_rate,
                max(int(kept[-1]), 1),
                order,
                method=method,
                records=kept,
                solver=solver,
                rtol=tolerance,
            )
            if run.status is not Status.COMPLETED and status is Status.COMPLETED:
                status = run.status
            missing = np.full((len(kept) - len(run.steps), *run.charge.shape[1:]), np.nan)
            found.append(np.concatenate([run.charge, missing]))
            tick()
        predicted.append(found[0])
        solver_error.append(np.abs(found[0] - found[1]))
    by_order = (len(orders), *measured.shape)
    return ChargeComparison(
        symmetry=symmetry,
        learning_rate=float(descent.learning_rate),
        weight_decay=float(problem.weight_decay),
        orders=orders,
        steps=kept,
        measured=measured,
        exact_law=law,
        recorded_gradients=recorded,
        predicted=np.reshape(predicted, by_order),
        solver_error=np.reshape(solver_error, by_order),
        status=status,
    )


class _State(eqx.Module):
    """Descent, and the charges that follow from the gradients it meets."""

    params: PyTree
    law: Float[Array, "*units"]
    recorded: Float[Array, "*units"]


def _descent_charges(
    descent: GradientDescent, symmetry: Symmetry, params: PyTree, steps: np.ndarray
) -> tuple[np.ndarray, Status]:
    """The measured charge, by its exact law and by recorded gradients, at every record reached."""
    charge = symmetry.charge(params)
    state, done, found = _State(params, charge, charge), 0, []
    status = Status.COMPLETED
    for step in steps:
        state = _descend(descent, symmetry, state, jnp.asarray(int(step) - done, jnp.int32))
        done = int(step)
        if not bool(is_finite(state.params)):
            status = Status.NON_FINITE
            break
        found.append([np.asarray(symmetry.charge(state.params)), state.law, state.recorded])
    return np.reshape(found, (len(found), 3, *charge.shape)), status


@eqx.filter_jit
def _descend(
    descent: GradientDescent, symmetry: Symmetry, state: _State, count: Int[Array, ""]
) -> _State:
    problem, rate = descent.problem, descent.learning_rate
    degree = require_degree(symmetry)
    decay = jnp.exp(-degree * decay_per_time(rate, problem.weight_decay, 1) * rate)

    def body(_: Any, state: _State) -> _State:
        gradient = problem.gradient(state.params)
        bare = jax.tree.map(lambda g, p: g - problem.weight_decay * p, gradient, state.params)
        source = rate**2 * symmetry.charge(bare) if degree == 2 else 0.0
        return _State(
            params=descend(state.params, gradient, rate),
            law=law_of_step(symmetry, state.law, problem, bare, rate),
            recorded=decay * (state.recorded + source),
        )

    return jax.lax.fori_loop(0, count, body, state)
