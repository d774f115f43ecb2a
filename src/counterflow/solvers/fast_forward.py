"""Where many steps of gradient descent lead, without taking most of them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..dynamics.gradient_descent import GradientDescent
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import distance, is_finite, norm, on_device, rounding_of, scaled
from .measure import Measure
from .requirements import require_one_dtype, require_steps
from .runners import DescentRunner
from .spectral_radius import Estimate, first_estimate
from .stabilized_adams import AdamsState, StabilizedAdams, adams_after_rejection
from .trajectory import Status, divergence_bound

# So many steps are taken one by one before the first leap: the history that it continues.
_AT_FIRST = 8
# From one tolerance to the next; the error falls by as much or more.
_FINER = 5
# The tolerance of the first run's leaps over that of the whole. Its error is about once or twice as
# large, less where errors die out; a third run would cost nearly as much as the first two. With a
# coarser one stability would decide, and the difference would tell nothing of the error.
_FIRST, _COARSEST = 0.6, 1e-4
# What is left in the end of the errors of all leaps is taken to be at least this part of them.
_LEFT = 1 / 3
# Gradients that a run may spend before leaps are found not worth theirs: at the start, and for
# every step made, in the first run and in later ones.
_ALLOWANCE, _PER_STEP = 100, (0.35, 0.6)
# A finer run costs about so much more; all of them together are to stay below a share of the steps.
_DEARER, _IN_ALL = 1.4, 0.8
# Where stability and not the tolerance decides how long leaps are, a finer run takes shorter ones
# all the same, by what the tolerance would ask for: two runs that leap alike agree, whatever their
# error. How long they were is kept for so many parts of the run.
_SHORTER, _PARTS = _FINER ** (-1 / 5), 64
_MOST_RUNS = 8
# What is small may be growing: a leap over less than this part of the params is to be as accurate,
# compared with its own length, as one over this part of them; unless rounding is all that is left.
_SHORT = 1e-4


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
    adams: AdamsState  # with times in steps of descent, from where it stands
    leaps: Int[Array, ""]
    longest: Int[Array, " parts"]  # of the leaps made, in steps, by where they start
    plain: Int[Array, ""]
    errors: Float[Array, ""]  # those of its leaps, relative and added up
    sound: Bool[Array, ""]  # whether the params are numbers, and not beyond all bounds

    @property
    def evaluations(self) -> Int[Array, ""]:
        """The gradients computed after those of the start."""
        return self.adams.evaluations


def fast_forward(
    problem: Problem, params: PyTree, learning_rate: Any, steps: int, tolerance: float = 1e-6
) -> FastForward:
    """The params that `steps` steps of gradient descent reach, without taking most of them.

    A polynomial is fitted to the last gradients. The sum of its values over the next N steps is a
    leap over all of them, for one gradient: a multistep method for the difference equation
    `θ_{k+1} = θ_k − ηg(θ_k)` itself, whose error is controlled. It is run at two tolerances or
    more; the difference of the last two, or a part of the errors of the leaps if that is more, is
    the estimate of the error, usually several times that of the finer one, which is returned.
    (Where descent leaves a saddle along a direction in which it starts with less than about 1e-11
    of the params, the estimate may be too small; and descent's own rounding is not in it.) Where
    the learning rate is so large beside the curvature that leaps would not be worth their
    gradients, plain descent is run, and said to be.

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
    slope, estimate = _start(descent, params)
    spent, local = 1 + int(estimate.evaluations), min(_FIRST * float(tolerance), _COARSEST)
    coarse: _Run | None = None
    longest = np.full(_PARTS, steps / 2)
    reason = "no two runs agreed to the tolerance"
    for attempt in range(_MOST_RUNS):
        if local < finest:
            break
        run = _run(
            descent,
            params,
            slope,
            estimate,
            jnp.asarray(steps),
            jnp.asarray(local),
            jnp.asarray(longest),
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
            found = _error(coarse, run)
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
        coarse, local = run, local / _FINER
        longest = _SHORTER * _filled(np.asarray(run.longest))
        if spent + _DEARER * int(run.evaluations) > _IN_ALL * steps:
            reason = "leaps to this tolerance would cost as much"
            break
    return _plain_descent(descent, params, steps, spent, reason)


def _error(coarse: _Run, fine: _Run) -> float:
    """An estimate of the finer run's error, relative to its params; usually several times as large.

    The difference of the runs is the coarser one's error, unless two errors happen to be alike; of
    that the errors of the leaps tell.
    """
    difference = float(distance(fine.params, coarse.params) / norm(fine.params))
    return max(difference, _LEFT * float(fine.errors))


def _mean_leap(run: _Run, steps: int) -> float:
    return (steps - int(run.plain)) / max(int(run.leaps), 1)


def _part(step: Any, steps: Any) -> Any:
    """The part of the run that a step lies in."""
    return jnp.minimum((step * (_PARTS / steps)).astype(jnp.int32), _PARTS - 1)


def _filled(longest: np.ndarray) -> np.ndarray:
    """The longest leap over every part, also where none starts: there the one before goes on."""
    starts = np.maximum.accumulate(np.where(longest > 0, np.arange(len(longest)), 0))
    return np.maximum(longest[starts], 2 / _SHORTER)


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


def _as_a_whole(
    flow: Any, rtol: Any, old: PyTree, new: PyTree, error: PyTree
) -> tuple[Array, Array, Array]:
    """An error is compared with the params, as the one that is returned is, or with the leap."""
    del flow, rtol
    size, length, rounding = norm(new), distance(new, old), rounding_of(new) * norm(new)
    compared = jnp.where(length > 1e3 * rounding, jnp.minimum(size, length / _SHORT), size)
    return compared, compared, jnp.maximum(norm(error) - rounding, 0)


_MEASURE = Measure(_as_a_whole, lambda size: size)


def _change(time: Any, params: PyTree, descent: GradientDescent) -> PyTree:
    """What one step of descent adds."""
    del time
    return scaled(-descent.learning_rate, descent.problem.gradient(params))


_TERM = diffrax.ODETerm(_change)


@eqx.filter_jit
def _start(descent: GradientDescent, params: PyTree) -> tuple[PyTree, Estimate]:
    """What the first step adds, and the largest part that a step takes of an error."""
    slope = _change(0, params, descent)
    return slope, first_estimate(lambda params: _change(0, params, descent), params, slope)


@eqx.filter_jit
def _run(
    descent: GradientDescent,
    params: PyTree,
    slope: PyTree,
    estimate: Estimate,
    steps: Array,
    tolerance: Array,
    longest: Array,
    per_step: Array,
) -> _Run:
    """Leaps and plain steps to the last step, or to where they are found not to be worth it."""
    dtype = norm(params).dtype
    now = jnp.zeros((), dtype)
    solver = StabilizedAdams(measure=_MEASURE, rtol=tolerance.astype(dtype), atol=now, leaping=True)
    bound = divergence_bound(params)

    def unfinished(run: _Run) -> Any:
        worth_it = run.evaluations <= _ALLOWANCE + per_step * run.step
        return (run.step < steps) & worth_it & run.sound

    def body(run: _Run) -> _Run:
        most = jnp.minimum(run.adams.proposal, longest[_part(run.step, steps)])
        most = jnp.where(run.adams.known > _AT_FIRST, jnp.floor(jnp.nan_to_num(most)), 1)
        count = jnp.clip(most, 1, steps - run.step).astype(steps.dtype)
        plain = count == 1
        # The first member takes no step but that of the gradient at hand.
        adams = run.adams._replace(member=jnp.where(plain, 0, run.adams.member))
        length = count.astype(dtype)
        end, error, _, after, _ = solver.step(
            _TERM, now, length, run.params, descent, adams, jnp.array(False)
        )
        finite = is_finite(end)
        size = _MEASURE.size(descent, solver.rtol, solver.atol, run.params, end, error)
        good = plain | (finite & (size < 1))
        usable = jnp.isfinite(after.proposal)
        after = after._replace(proposal=jnp.where(usable, after.proposal, 0.2 * length))

        def chosen(new: PyTree, old: PyTree) -> PyTree:
            return jax.tree.map(lambda a, b: jnp.where(good, a, b), new, old)

        return _Run(
            step=run.step + jnp.where(good, count, 0),
            params=chosen(end, run.params),
            adams=chosen(
                after._replace(times=after.times - length), adams_after_rejection(adams, after)
            ),
            leaps=run.leaps + (good & ~plain),
            longest=run.longest.at[_part(run.step, steps)].max(jnp.where(good, count, 0)),
            plain=run.plain + plain,
            errors=run.errors + jnp.where(good & ~plain, size * solver.rtol, 0),
            sound=run.sound & (~good | (finite & (norm(end) <= bound))),
        )

    zero = jnp.zeros((), steps.dtype)
    start = _Run(
        step=zero,
        params=params,
        adams=solver.begin(_TERM, now, params, descent, slope, estimate),
        leaps=zero,
        longest=jnp.zeros(_PARTS, steps.dtype),
        plain=zero,
        errors=jnp.zeros((), dtype),
        sound=is_finite(slope),
    )
    return jax.lax.while_loop(unfinished, body, start)
