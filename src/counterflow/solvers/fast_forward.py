"""Where many steps of gradient descent lead, without taking most of them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..dynamics.gradient_descent import GradientDescent
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import add_scaled, distance, is_finite, norm, on_device, rounding_of
from .multirevolution import STAGES, leap
from .requirements import require_one_dtype, require_steps
from .runners import DescentRunner
from .trajectory import Status, divergence_bound

# Fewer steps of descent at once than this are not worth their gradients, nor well conditioned.
_SHORTEST = 10
# Where leaps are not worth it, so many plain steps are taken before another one is tried.
_PLAIN = 60
# From one tolerance to the next; the error falls by as much or more.
_FINER = 10
# The tolerance of the first run's leaps over that of the whole, for errors partly die out. With a
# coarser one stability would decide, and the difference would tell nothing of the error.
_FIRST, _COARSEST = 10, 1e-4
# Gradients that a run may spend before leaps are found not worth theirs: at the start, and for
# every step made, in the first run and in later ones.
_ALLOWANCE, _PER_STEP = 100, (0.35, 0.6)
# A finer run costs about so much more; all of them together are to stay below a share of the steps.
_DEARER, _IN_ALL = 1.6, 0.8
# Where stability and not the tolerance decides how long leaps are, a finer run takes shorter ones
# all the same, by what the tolerance would ask for: two runs that leap alike agree, whatever their
# error. How long they were is kept for so many parts of the run.
_SHORTER, _PARTS = _FINER ** (-1 / 5), 64
_MOST_RUNS = 8
# The order of a leap's estimate of its error.
_ORDER = 5


@dataclass(frozen=True, eq=False)
class FastForward:
    """Where gradient descent is after many steps.

    Attributes:
        params: The params.
        relative_error: The estimated distance from descent's own params, relative to their norm;
            zero where descent itself was run.
        steps: The number of steps.
        leaps: How often many steps were taken at once.
        plain_steps: How many of the steps were taken one by one.
        gradient_evaluations: The gradients computed for all of it, the error estimate included.
        reason: What was done, and why.
        status: `Status.COMPLETED`, or how descent ended before the last step.
    """

    params: PyTree
    relative_error: float
    steps: int
    leaps: int
    plain_steps: int
    gradient_evaluations: int
    reason: str
    status: Status

    @property
    def speedup(self) -> float:
        """The gradients of descent over those computed."""
        return self.steps / self.gradient_evaluations

    def __repr__(self) -> str:
        return (
            f"FastForward({self.steps} steps, {self.gradient_evaluations} gradient evaluations, "
            f"relative error {self.relative_error:.1g}; {self.status}; {self.reason})"
        )


class _Run(NamedTuple):
    """Where a run stands."""

    step: Int[Array, ""]
    params: PyTree
    gradient: PyTree
    size: Float[Array, ""]  # of the next leap, in steps
    before: Float[Array, ""]  # the error of the last one, over the tolerance
    leaps: Int[Array, ""]
    longest: Int[Array, " parts"]  # of the leaps made, in steps, by where they start
    plain: Int[Array, ""]
    evaluations: Int[Array, ""]
    sound: Bool[Array, ""]  # whether the params are numbers, and not beyond all bounds


def fast_forward(
    problem: Problem, params: PyTree, learning_rate: Any, steps: int, tolerance: float = 1e-6
) -> FastForward:
    """The params that `steps` steps of gradient descent reach, without taking most of them.

    A Runge–Kutta method for the difference equation `θ_{k+1} = θ_k − ηg(θ_k)` itself leaps over
    many steps with six gradients, with an error that is controlled and estimated. It is run at two
    tolerances or more; half the difference of the last two is the estimate, usually several times
    the error of the finer one, which is returned. (Near a saddle, where a direction grows from next
    to nothing, the estimate may be too small by a factor of a few.) Where the learning rate is so
    large beside the curvature that a leap would not be worth its gradients, plain steps are taken;
    where that is everywhere, plain descent is run, and said to be.

    Args:
        problem: The problem, with its weight decay.
        params: The params at step 0: any pytree of float arrays.
        learning_rate: The learning rate η.
        steps: The number of steps.
        tolerance: The relative error to stay below.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4)
        >>> ahead = cf.fast_forward(problem, jnp.array([1.0, 0.5]), 1e-3, steps=50_000)
        >>> descent = cf.solve(cf.GradientDescent(problem, 1e-3), jnp.array([1.0, 0.5]), [50.0])
        >>> bool(jnp.linalg.norm(ahead.params - descent.at(0)) < 1e-6)
        True
        >>> ahead.speedup > 100
        True
    """
    descent = GradientDescent(problem, learning_rate)
    steps = require_steps(steps)
    params = at_the_door(problem, params)
    require_one_dtype(params)
    finest = 8 * rounding_of(params)
    if not (isinstance(tolerance, int | float | np.number) and finest <= tolerance <= 0.1):
        raise ValueError(
            f"`tolerance` must be a relative error from {finest:.1e}, what the dtype of the params "
            f"can resolve, to 0.1, got {tolerance!r}"
        )
    descent = on_device(descent)
    if steps <= 2 * _ALLOWANCE:
        return _plain_descent(descent, params, steps, 0, "the steps are few")
    spent, local = 0, min(_FIRST * float(tolerance), _COARSEST)
    coarse: PyTree = None
    longest = np.full(_PARTS, steps / 2)
    reason = "no two runs agreed to the tolerance"
    for attempt in range(_MOST_RUNS):
        if local < finest:
            break
        run = _run(
            descent,
            params,
            jnp.asarray(steps),
            jnp.asarray(local),
            jnp.asarray(longest),
            jnp.asarray(_SHORTER**attempt),
            jnp.asarray(_PER_STEP[attempt > 0]),
        )
        spent += int(run.evaluations)
        if not bool(run.sound):
            reason = "it diverges"
            break
        if int(run.step) < steps:
            reason = "the learning rate is too large beside the curvature for leaps to be worth it"
            break
        if coarse is not None:
            # The difference is the coarser run's error; that of the finer one should be a tenth.
            found = float(distance(run.params, coarse) / norm(run.params)) / 2
            if found <= tolerance:
                return FastForward(
                    params=run.params,
                    relative_error=found,
                    steps=steps,
                    leaps=int(run.leaps),
                    plain_steps=int(run.plain),
                    gradient_evaluations=spent,
                    reason=f"leaps of {_mean_leap(run, steps):.0f} steps on average",
                    status=Status.COMPLETED,
                )
        coarse, local = run.params, local / _FINER
        longest = _SHORTER * _filled(np.asarray(run.longest))
        if spent + _DEARER * int(run.evaluations) > _IN_ALL * steps:
            reason = "leaps to this tolerance would cost as much"
            break
    return _plain_descent(descent, params, steps, spent, reason)


def _mean_leap(run: _Run, steps: int) -> float:
    return (steps - int(run.plain)) / max(int(run.leaps), 1)


def _part(step: Any, steps: Any) -> Any:
    """The part of the run that a step lies in."""
    return jnp.minimum((step * (_PARTS / steps)).astype(jnp.int32), _PARTS - 1)


def _filled(longest: np.ndarray) -> np.ndarray:
    """The longest leap over every part, also where none starts: there the one before goes on."""
    starts = np.maximum.accumulate(np.where(longest > 0, np.arange(len(longest)), 0))
    return np.maximum(longest[starts], _SHORTEST / _SHORTER)


def _plain_descent(
    descent: GradientDescent, params: PyTree, steps: int, spent: int, reason: str
) -> FastForward:
    runner = DescentRunner(descent, params, np.array([steps], np.int32), None)
    status, _ = runner.advance(0)
    taken = int(runner.state.step)
    return FastForward(
        params=runner.state.params,
        relative_error=0.0,
        steps=taken,
        leaps=0,
        plain_steps=taken,
        gradient_evaluations=spent + taken,
        reason=f"plain descent: {reason}",
        status=status,
    )


@eqx.filter_jit
def _run(
    descent: GradientDescent,
    params: PyTree,
    steps: Array,
    tolerance: Array,
    longest: Array,
    shorter: Array,
    per_step: Array,
) -> _Run:
    """Leaps and plain steps to the last step, or to where they are found not to be worth it."""
    gradient, rate = descent.problem.gradient, descent.learning_rate
    dtype = norm(params).dtype
    tolerance = tolerance.astype(dtype)

    def unfinished(run: _Run) -> Any:
        worth_it = run.evaluations <= _ALLOWANCE + per_step * run.step
        return (run.step < steps) & worth_it & run.sound

    def attempt(run: _Run, count: Any) -> _Run:
        end, slope, error = leap(
            gradient, run.params, run.gradient, jnp.asarray(rate, dtype), count.astype(dtype)
        )
        off = norm(error) / (tolerance * norm(run.params))
        good = is_finite(end) & (off <= 1)
        # Proportional and integral control, as of the flows.
        factor = 0.9 * off ** (-0.7 / _ORDER) * run.before ** (0.4 / _ORDER)
        factor = jnp.where(good, jnp.clip(factor, 0.2, 5), jnp.clip(factor, 0.1, 0.7))
        factor = jnp.where(jnp.isfinite(factor), factor, jnp.where(off == 0, 5.0, 0.1))

        def chosen(new: PyTree, old: PyTree) -> PyTree:
            return jax.tree.map(lambda a, b: jnp.where(good, a, b), new, old)

        return run._replace(
            step=run.step + jnp.where(good, count, 0),
            params=chosen(end, run.params),
            gradient=chosen(slope, run.gradient),
            size=factor * count,
            before=jnp.where(good, jnp.maximum(off, 1e-4), 1.0).astype(dtype),
            leaps=run.leaps + good,
            longest=run.longest.at[_part(run.step, steps)].max(jnp.where(good, count, 0)),
            evaluations=run.evaluations + STAGES,
            sound=run.sound & (~good | (norm(end) <= bound)),
        )

    def plainly(run: _Run, count: Any) -> _Run:
        def step(_: Any, state: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            params, slope = state
            params = add_scaled(params, -rate, slope)
            return params, gradient(params)

        params, slope = jax.lax.fori_loop(0, count, step, (run.params, run.gradient))
        return run._replace(
            step=run.step + count,
            params=params,
            gradient=slope,
            size=jnp.full_like(run.size, _SHORTEST),
            plain=run.plain + count,
            evaluations=run.evaluations + count,
            sound=norm(params) <= bound,  # false if not a number
        )

    def body(run: _Run) -> _Run:
        left = steps - run.step
        most = longest[_part(run.step, steps)]
        wanted = jnp.minimum(jnp.floor(jnp.minimum(run.size, most)), left).astype(steps.dtype)
        return jax.lax.cond(
            wanted >= _SHORTEST,
            lambda: attempt(run, wanted),
            lambda: plainly(run, jnp.minimum(left, _PLAIN)),
        )

    slope = gradient(params)
    bound = divergence_bound(params)
    # A first leap in which the params change by a thousandth.
    first = 1e-3 * shorter * norm(params) / (rate * norm(slope))
    zero = jnp.zeros((), steps.dtype)
    start = _Run(
        step=zero,
        params=params,
        gradient=slope,
        size=jnp.clip(jnp.nan_to_num(first, nan=1.0), _SHORTEST, 1e9).astype(dtype),
        before=jnp.ones((), dtype),
        leaps=zero,
        longest=jnp.zeros(_PARTS, steps.dtype),
        plain=zero,
        evaluations=zero + 1,
        sound=is_finite(slope),
    )
    return jax.lax.while_loop(unfinished, body, start)
