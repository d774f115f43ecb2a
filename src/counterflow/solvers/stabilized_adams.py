"""A stabilized explicit multistep solver: one evaluation of the velocity a step.

`fitted_adams` has the family of methods. After each step, every member says from the same history
how long the next step may be for its accuracy; its interval of stability, over an estimate of the
spectral radius, says how long it may be not to become unstable. The member that can go farthest
takes the next step.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .fitted_adams import LONGEST, ORDERS, WINDOWS, fits, reaches
from .hermite import TwoStepHermite, point_before
from .measure import EVERYTHING, Measure
from .spectral_radius import (
    Estimate,
    first_estimate,
    next_rough_estimate,
    velocity_of_part,
    whole_state,
)

# Steps are this much shorter than what would just be accurate enough; and so much of the interval
# of stability is used, which is known for equal steps and an exact radius.
_ACCURATE, _STABLE = 0.85, 0.95
# The factors by which a step may change.
_SHORTEST, _SHORTER, _LONGER = 0.2, 0.7, 2.0
# How many steps an estimate of the spectral radius serves; a rejected step counts as several.
_PATIENCE, _REJECTED = 40, 10


class AdamsState(NamedTuple):
    """What a step hands on to the next.

    Attributes:
        times: The times of past slopes, the latest first.
        slopes: Past velocities, stacked along a new first axis of every leaf.
        known: How many of them there are.
        before: The state where the last step started.
        member: Which member takes the next step.
        proposal: How long it is to be.
        direction: The vector of the power iteration, of length one.
        radius: The spectral radius, estimated.
        age: Steps since it was estimated.
        evaluations: How often the velocity was evaluated, in rejected steps too.
    """

    times: Float[Array, " history"]
    slopes: PyTree
    known: Int[Array, ""]
    before: PyTree
    member: Int[Array, ""]
    proposal: Float[Array, ""]
    direction: PyTree
    radius: Float[Array, ""]
    age: Int[Array, ""]
    evaluations: Int[Array, ""]


class StabilizedAdams(diffrax.AbstractAdaptiveSolver):
    """A stabilized explicit Adams method of variable order and step, one evaluation a step.

    For smooth equations whose Jacobian has eigenvalues near the negative real axis, as gradient
    flow and the equation of motion have. Polynomials are fitted to longer histories than they have
    coefficients, which makes intervals of stability several times as long as those of Adams'
    methods. It keeps the last 15 velocities.

    Args:
        part: The part of a state whose Jacobian has the spectrum of the whole, as of `ROCK4`.
        measure: How errors are judged.
        rtol: The relative tolerance by which orders and steps are chosen. `cf.solve` and
            everything on top of it put their own here; for `diffrax.diffeqsolve` it must be that
            of the step-size controller, and `atol` likewise.
        atol: The absolute tolerance.
        share: The part of the tolerance that one step may take: there are many, and their errors
            add up.
        leaping: Whether a step from `t0` to `t1` is to be that of as many steps of length one of
            Euler's method, instead of one of the flow: see `fast_forward`.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(jnp.array([1.0, 20.0]) * theta**2) / 2)
        >>> solver = cf.StabilizedAdams()
        >>> run = cf.solve(cf.GradientFlow(problem), jnp.ones(2), [1.0], rtol=1e-6, solver=solver)
        >>> print(f"{run.at(0)[0]:.5f}")
        0.36788
    """

    part: Callable[[PyTree], PyTree] = eqx.field(static=True, default=whole_state)
    measure: Measure = eqx.field(static=True, default=EVERYTHING)
    rtol: Any = 1e-6
    atol: Any = 1e-8
    share: float = eqx.field(static=True, default=0.05)
    leaping: bool = eqx.field(static=True, default=False)

    term_structure: ClassVar = diffrax.ODETerm
    interpolation_cls: ClassVar = TwoStepHermite

    def judged(self, measure: Measure, rtol: Any, atol: Any) -> "StabilizedAdams":
        """The same solver with another judge of errors and other tolerances."""
        return StabilizedAdams(self.part, measure, rtol, atol, self.share, self.leaping)

    def order(self, terms: Any) -> int:
        """The order that is usual; it varies."""
        del terms
        return 5

    def func(self, terms: Any, t0: Any, y0: PyTree, args: Any) -> PyTree:
        """The velocity."""
        return terms.vf(t0, y0, args)

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> AdamsState:
        """The state before the first step, with a rough estimate of the spectral radius."""
        state = self.begin(terms, t0, y0, args, terms.vf(t0, y0, args))
        return state._replace(proposal=t1 - t0, evaluations=state.evaluations + 1)

    def begin(
        self,
        terms: Any,
        t0: Any,
        y0: PyTree,
        args: Any,
        velocity: PyTree,
        known: Estimate | None = None,
    ) -> AdamsState:
        """As `init`, where the velocity is at hand, and perhaps a first estimate of the radius."""
        none = jnp.zeros((), jnp.int32)
        if known is None:
            of_part = velocity_of_part(self.part, terms, t0, y0, args)
            found = first_estimate(of_part, self.part(y0), self.part(velocity))
        else:
            found = known._replace(evaluations=none)

        def history(leaf: Any) -> Any:
            return jnp.zeros((LONGEST, *leaf.shape), leaf.dtype).at[0].set(leaf)

        return AdamsState(
            times=jnp.full(LONGEST, t0),
            slopes=jax.tree.map(history, velocity),
            known=none + 1,
            before=y0,
            member=none,
            proposal=jnp.zeros_like(t0),
            direction=found.direction,
            radius=found.radius,
            age=none,
            evaluations=found.evaluations,
        )

    def step(
        self,
        terms: Any,
        t0: Any,
        t1: Any,
        y0: PyTree,
        args: Any,
        solver_state: AdamsState,
        made_jump: Any,
    ) -> tuple[PyTree, PyTree, dict[str, PyTree], AdamsState, Any]:
        """One step by the member whose turn it is; the state says whose turn is next."""
        del made_jump
        step = t1 - t0
        state = self._renewed(terms, t0, y0, args, solver_state)
        weights = fits((state.times - t0) / step, state.known, jnp, step if self.leaping else None)
        own = step * weights.steps[state.member]
        y1 = jax.tree.map(
            lambda leaf, slopes: leaf + jnp.tensordot(own.astype(leaf.dtype), slopes, 1),
            y0,
            state.slopes,
        )
        end = terms.vf(t1, y1, args)
        slopes = jax.tree.map(lambda new, old: jnp.concatenate([new[None], old]), end, state.slopes)

        def error_of(weights: Any) -> PyTree:
            return jax.tree.map(
                lambda leaf: jnp.tensordot((step * weights).astype(leaf.dtype), leaf, 1), slopes
            )

        def size(weights: Any) -> Any:
            error = error_of(weights)
            return self.measure.size(args, self.rtol, self.atol, y0, y1, error) / self.share

        sizes = jax.vmap(size)(weights.errors)
        kept = self.share * sizes[state.member] < 1
        if self.leaping:
            # Through as many slopes as coefficients, one step of Euler's method is exact, which
            # says nothing of two.
            sizes = jnp.where((step > 1) | (WINDOWS > ORDERS), sizes, jnp.inf)
        member, longest = _farthest(state, sizes, step)
        again = step * jnp.clip(_ACCURATE * _powers(sizes)[state.member], _SHORTEST, _SHORTER)
        latest = jax.tree.map(lambda leaf: leaf[:-1], slopes)
        new_state = state._replace(
            times=jnp.concatenate([t1[None], state.times[:-1]]),
            slopes=latest,
            known=jnp.minimum(state.known + 1, LONGEST),
            before=y0,
            member=member,
            proposal=jnp.where(kept, longest, again).astype(step.dtype),
            age=state.age + 1,
            evaluations=state.evaluations + 1,
        )
        now, last = _slope(state, 0), _slope(state, 1)
        time_before, y_before, velocity_before = point_before(
            (state.times[1], state.before, last), (t0, y0, now), (t1, y1, end)
        )
        dense = {
            "before": time_before,
            "values": (y_before, y0, y1),
            "slopes": (velocity_before, now, end),
        }
        error = error_of(weights.errors[state.member])
        return y1, error, dense, new_state, diffrax.RESULTS.successful

    def _renewed(self, terms: Any, t0: Any, y0: PyTree, args: Any, state: AdamsState) -> AdamsState:
        """The state with its spectral radius estimated anew, if that is due."""

        def estimate(state: AdamsState) -> AdamsState:
            of_part = velocity_of_part(self.part, terms, t0, y0, args)
            velocity = self.part(_slope(state, 0))
            found = next_rough_estimate(of_part, self.part(y0), velocity, state.direction)
            return state._replace(
                direction=found.direction,
                radius=found.radius,
                age=jnp.zeros_like(state.age),
                evaluations=state.evaluations + found.evaluations,
            )

        return jax.lax.cond(state.age >= _PATIENCE, estimate, lambda state: state, state)


def _slope(state: AdamsState, index: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], state.slopes)


def _powers(sizes: Any) -> Any:
    """By which factor a step would have the error of one tolerance, for each member."""
    return jnp.maximum(sizes, 1e-12) ** (-1 / (jnp.asarray(ORDERS) + 1))


def _farthest(state: AdamsState, sizes: Any, step: Any) -> tuple[Any, Any]:
    """The member that can take the longest next step, and that step."""
    accurate = step * jnp.minimum(_ACCURATE * _powers(sizes), _LONGER)
    stable = _STABLE * jnp.asarray(reaches()) / jnp.where(state.radius > 0, state.radius, 1)
    longest = jnp.where(state.radius > 0, jnp.minimum(accurate, stable), accurate)
    longest = jnp.where(state.known >= WINDOWS, longest, 0)
    member = jnp.argmax(longest)
    return member.astype(state.member.dtype), longest[member]


def adams_after_rejection(kept: AdamsState, attempted: AdamsState) -> AdamsState:
    """The state to try again from: what was learned of the radius, and what it cost, stay."""
    # The radius may have grown beyond its estimate: it is looked at again soon.
    return kept._replace(
        direction=attempted.direction,
        radius=attempted.radius,
        age=attempted.age + _REJECTED,
        proposal=attempted.proposal,
        evaluations=attempted.evaluations,
    )
