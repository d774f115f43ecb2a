"""How large the learning rate may be for a flow to follow gradient descent within a tolerance."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..counter_terms.counter_terms import counter_term
from ..dynamics.equation_of_motion import EquationOfMotion
from ..problem.numbers import require_order
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import norm, on_device
from ..solvers.choice import choose_solver
from ..solvers.flow import Integrator
from ..solvers.requirements import MOST_STEPS, require_one_dtype, require_progress
from ..solvers.runners import FlowRunner
from ..solvers.trajectory import Status
from .compare import compare
from .error_equation import KINDS, ErrorState, gap
from .percent import percent
from .predict_error import PredictionRunner, prediction_tolerances
from .requirements import require_horizon, require_tolerance

# Along the flow the maximum is taken over this many times, denser near the start, where networks
# change fast.
_TIMES = 200
# A learning rate at which the error equation, or the flow, takes more steps is out of the question.
_MOST_ATTEMPTS, _MOST_FLOW_STEPS = 5_000, 100_000
# The equation for the learning rate is solved to this relative accuracy.
_ACCURACY = 1e-3


@dataclass(frozen=True, repr=False)
class LearningRateBound:
    """The learning rate up to which a flow follows gradient descent within a tolerance.

    `float(bound)` is the learning rate.

    Attributes:
        learning_rate: The bound.
        kind: `local` or `propagated`.
        order: The order γ of the flow.
        tolerance: The discretization error `‖e_k‖` tolerated.
        time: The horizon `kη` at the bound.
        steps: The number of steps k there, or the number that was given.
        worst: What the bound is made of, where it is the largest along the flow: `‖ξ̃_γ‖` (local)
            or `‖e‖` as predicted (propagated).
        worst_time: Where along the flow the maximum lies.
        uncertainty: Of a propagated bound, the estimated relative error of the prediction at
            `worst_time`: above some tenths, the bound is outside of the theory's reach.
        evaluated: What was evaluated along which flow, in words.
        slack: The largest error of a real run at the bound over the tolerance, if `verify` asked
            for it: above one, the bound is broken.
    """

    learning_rate: float
    kind: str
    order: int
    tolerance: float
    time: float
    steps: int
    worst: float
    worst_time: float
    uncertainty: float | None
    evaluated: str
    slack: float | None = None

    def __float__(self) -> float:
        return self.learning_rate

    def __repr__(self) -> str:
        doubt = "" if self.uncertainty is None else f", predicted to ± {percent(self.uncertainty)}"
        slack = (
            "" if self.slack is None else f"; a real run reaches {self.slack:.3g} of the tolerance"
        )
        return (
            f"LearningRateBound({self.learning_rate:.4g}: {self.kind}, order {self.order}, "
            f"‖e_k‖ ≤ {self.tolerance:g} for {self.steps} steps, t = {self.time:.4g}{doubt}{slack})"
        )


def learning_rate_bound(
    problem: Problem,
    params: PyTree,
    *,
    steps: int | None = None,
    time: float | None = None,
    tolerance: float,
    order: int = 0,
    kind: str = "local",
    method: str = "taylor",
    verify: bool = False,
    progress: Callable[[int, float], None] | None = None,
) -> LearningRateBound:
    """The learning rate up to which the flow of an order follows gradient descent.

    `local` is the paper's bound, Corollary 4.2 for γ = 0, Corollary A.1 for γ = 1, and the same for
    every γ: `k η^{γ+2} max ‖ξ̃_γ‖ ≤ tolerance`. It bounds the sum of the local errors and knows
    nothing of how errors grow: where the flow spreads, a real run may break it. `propagated`
    requires that the error predicted by `ė = −(H + λI)e + η^{γ+1} ξ̃_γ`, with twice its estimated
    own error on top, stays below the tolerance. Both hold to leading order in η.

    The maximum is taken along the flow of order γ from `params` to the horizon, at 200 times. Only
    gradient flow does not depend on η; for γ > 0 the flow is that of the learning rate returned.
    With `steps` the horizon `kη` depends on η too. The bound is an η at which the condition holds
    with equality, found by solving for it; where the error does not grow with η, as it may for
    γ > 0, there can be a smaller one.

    Args:
        problem: The problem, with its weight decay.
        params: The params at step 0.
        steps: The number of steps k for which the bound is to hold; or
        time: the time kη. Give one of the two.
        tolerance: The discretization error `‖e_k‖` tolerated.
        order: The order γ of the flow: 0 is gradient flow.
        kind: `"local"` or `"propagated"`.
        method: How the flow computes its velocity, as for `EquationOfMotion`; with `"orbit"`, the
            first difference left out stands for `η^{γ+1} ξ̃_γ`.
        verify: Whether to run descent and the flow at the bound and report the `slack`.
        progress: Called after each learning rate tried, with how many have been and which it was;
            how many it will take is not known before.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(theta**2) / 2)
        >>> bound = cf.learning_rate_bound(problem, jnp.ones(1), time=2.0, tolerance=0.01)
        >>> print(f"{float(bound):.4f}")  # 2 · tolerance / (time · ‖Hg‖)
        0.0100
        >>> options = dict(time=2.0, tolerance=0.01, kind="propagated", verify=True)
        >>> bound = cf.learning_rate_bound(problem, jnp.ones(1), **options)
        >>> print(f"{float(bound):.3f}, a real run reaches {bound.slack:.2f} of the tolerance")
        0.052, a real run reaches 0.98 of the tolerance
    """
    steps, time = require_horizon(steps, time)
    tolerance = require_tolerance(tolerance)
    order = require_order(order, "order", "0 is gradient flow")
    if kind not in KINDS:
        raise ValueError(
            f"`kind` must be 'local' or 'propagated', got {kind!r}: 'local' is the paper's bound, "
            "'propagated' accounts for how errors grow along the flow"
        )
    require_progress(progress, "learning rates tried and the last of them")
    params = at_the_door(problem, params)
    require_one_dtype(params)
    problem = on_device(problem)
    worst_along = {"local": _worst_source, "propagated": _worst_error}[kind]

    def horizon(learning_rate: float) -> float:
        return time if time is not None else learning_rate * cast(int, steps)

    tried = itertools.count(1)

    def worst(learning_rate: float) -> _Worst:
        flow = EquationOfMotion(problem, learning_rate, order, method)
        found = worst_along(flow, params, horizon(learning_rate))
        if progress is not None:
            progress(next(tried), learning_rate)
        return found

    speed = float(norm(problem.gradient(params)))
    if speed == 0:
        raise ValueError(
            "the gradient vanishes at `params`, so there is nothing to bound: at a point at rest "
            "every flow is exact"
        )
    if method == "orbit":
        # One step as long as the tolerance: so small, gradients differ by more than rounding.
        first = _dropped_difference(problem, params, order, tolerance / speed) or speed
    else:
        first = float(norm(counter_term(problem, params, order, method=method))) or speed
    # A first guess from the start alone: `first · horizon(η) · η^{γ+1} = tolerance`.
    power = order + (1 if steps is None else 2)
    guess = (tolerance / (first * horizon(1.0))) ** (1 / power)
    learning_rate, found = _solve(worst, guess, tolerance, power)
    flow = EquationOfMotion(problem, learning_rate, order, method)
    count = steps or max(math.floor(horizon(learning_rate) / learning_rate), 1)
    if count > MOST_STEPS:
        raise ValueError(
            f"a tolerance of {tolerance:g} would take a learning rate of {learning_rate:.1e} and "
            f"{count:.1e} steps, more than can be run: give a larger tolerance"
        )
    return LearningRateBound(
        learning_rate=learning_rate,
        kind=kind,
        order=order,
        tolerance=tolerance,
        time=horizon(learning_rate),
        steps=count,
        worst=found.value,
        worst_time=found.time,
        uncertainty=found.uncertainty,
        evaluated=_in_words(kind, order, learning_rate, horizon(learning_rate)),
        slack=_slack(flow, params, count, tolerance) if verify else None,
    )


def _dropped_difference(
    problem: Problem, params: PyTree, order: int, learning_rate: float
) -> float:
    """About `‖ξ̃_γ‖` at the params, from gradients alone; 0 where it is not to be had."""
    flow = on_device(EquationOfMotion(problem, learning_rate, order, "orbit"))
    size = float(_remainder_size(flow, params)) / learning_rate ** (order + 1)
    return size if math.isfinite(size) else 0.0


@dataclass(frozen=True)
class _Worst:
    """The largest predicted error along a flow, and what it is made of."""

    error: float
    value: float
    time: float
    uncertainty: float | None = None


_FAILED = _Worst(math.inf, math.inf, math.nan)
# A flow that cannot be run at so many learning rates in a row, each smaller, never can.
_MOST_FAILURES = 8


def _solve(
    worst: Callable[[float], _Worst], guess: float, tolerance: float, power: int
) -> tuple[float, _Worst]:
    """The learning rate at which the worst error equals the tolerance, and what it is there.

    The error is nearly a power of the learning rate: a secant in logarithms, kept inside a bracket
    once there is one. A flow that cannot be run counts as an infinite error.
    """
    low, high = 0.0, math.inf
    slope, previous, failures = float(power), None, 0
    for _ in range(60):
        found = worst(guess)
        ratio = found.error / tolerance
        failures = failures + 1 if found is _FAILED else 0
        if low == 0 and failures == _MOST_FAILURES:
            raise RuntimeError(
                f"the flow could not be run to the horizon, at learning rates down to {guess:.1e}: "
                "it may blow up before; give a shorter `time` or fewer `steps`"
            )
        if abs(ratio - 1) < _ACCURACY:
            return guess, found
        low, high = (guess, high) if ratio < 1 else (low, guess)
        if math.isfinite(ratio) and previous is not None and ratio > 0:
            change = math.log(guess / previous[0])
            if change != 0:
                measured = math.log(ratio / previous[1]) / change
                slope = measured if 0.2 <= measured <= 20 * power else slope
        if math.isfinite(ratio) and ratio > 0:
            previous = (guess, ratio)
            proposal = guess * ratio ** (-1 / slope)
        else:
            proposal = guess / 10 if ratio > 1 else guess * 10
        if not low < proposal < high:
            proposal = math.sqrt(low * high) if low > 0 and high < math.inf else proposal
        if low > 0 and high / low < 1 + _ACCURACY:
            # The error jumps over the tolerance: the largest learning rate on the safe side.
            return low, worst(low)
        guess = min(max(proposal, guess / 100), guess * 100)
    raise RuntimeError(
        f"no learning rate was found at which the error equals the tolerance {tolerance:g}; the "
        f"last one tried was {guess:g}: try another tolerance or horizon"
    )


def _worst_source(flow: EquationOfMotion, params: PyTree, horizon: float) -> _Worst:
    """`t η^{γ+1} max ‖ξ̃_γ‖` along the flow."""
    times = _times(horizon)
    rtol, atol = prediction_tolerances(params)
    dtype = jnp.result_type(*jax.tree.leaves(params))
    flow = on_device(flow)
    chosen = choose_solver(None, flow, params, rtol, horizon)
    integrator = Integrator(chosen.solver, rtol, atol, dtype)
    runner = FlowRunner(flow, params, times, integrator, _MOST_FLOW_STEPS, chosen.evaluations)
    sizes = []
    for index in range(len(times)):
        status, point = runner.advance(index)
        if status != Status.COMPLETED:
            return _FAILED
        sizes.append(float(_remainder_size(flow, point)))
    if not np.all(np.isfinite(sizes)):
        return _FAILED
    unit = float(flow.learning_rate) ** (flow.order + 1)
    worst = int(np.argmax(sizes))
    return _Worst(horizon * sizes[worst], sizes[worst] / unit, float(times[worst]))


@eqx.filter_jit
def _remainder_size(flow: EquationOfMotion, params: PyTree) -> Float[Array, ""]:
    return norm(flow.velocity_and_remainder(params)[1])


def _worst_error(flow: EquationOfMotion, params: PyTree, horizon: float) -> _Worst:
    """The largest `‖e‖` along the flow, with twice its estimated error on top."""
    times = _times(horizon)
    runner = PredictionRunner(flow, params, times, max_steps=_MOST_ATTEMPTS)
    sizes, doubts = [], []
    for index in range(len(times)):
        _, record = runner.advance(index)
        if record is None:
            return _FAILED
        size, doubt = _size_and_doubt(record)
        sizes.append(float(size))
        doubts.append(float(doubt))
    if not np.all(np.isfinite([sizes, doubts])):
        return _FAILED
    safe = (1 + _ACCURACY) * np.array(sizes) + 2 * np.array(doubts)
    worst = int(np.argmax(safe))
    relative = doubts[worst] / sizes[worst] if sizes[worst] else 0.0
    return _Worst(float(safe[worst]), sizes[worst], float(times[worst]), relative)


@eqx.filter_jit
def _size_and_doubt(errors: ErrorState) -> tuple[Float[Array, ""], Float[Array, ""]]:
    return norm(errors.propagated), gap(errors.propagated, errors)


def _times(horizon: float) -> np.ndarray:
    return horizon * np.linspace(0, 1, _TIMES) ** 2


def _slack(flow: EquationOfMotion, params: PyTree, steps: int, tolerance: float) -> float:
    """The largest error of a real run over the tolerance; infinite if descent diverges."""
    run = compare(
        flow.problem,
        params,
        flow.learning_rate,
        steps,
        (flow.order,),
        records=np.unique(np.rint(_times(float(steps))).astype(int)),
        predict=False,
        method=flow.method,
    )
    if run.status != Status.COMPLETED or run.flow_status[flow.order] != Status.COMPLETED:
        return math.inf
    return float(np.max(run.error)) / tolerance


def _in_words(kind: str, order: int, learning_rate: float, horizon: float) -> str:
    flow = "gradient flow"
    if order > 0:
        flow = f"the equation of motion of order {order} at η = {learning_rate:.4g}"
    quantity = {
        "local": f"‖ξ̃_{order}‖",
        "propagated": (
            f"‖e‖ of ė = −(H + λI)e + η^{order + 1} ξ̃_{order}, plus twice its estimated error,"
        ),
    }[kind]
    return f"the maximum of {quantity} along {flow} from 0 to t = {horizon:.4g}, at {_TIMES} times"
