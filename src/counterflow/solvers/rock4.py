"""ROCK4 as a diffrax solver: for flows that are mildly stiff, where stability limits the step.

An explicit method of `s` stages that is stable up to `0.35 s²` over the spectral radius, so that a
step grows with the square of its cost. The number of stages is chosen for every step; the spectral
radius is estimated along the way, by power iterations on differences of the velocity.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..problem.tree import add_scaled, weighted_sum
from .hermite import TwoStepHermite, point_before
from .rock4_coefficients import STAGES, coefficients
from .spectral_radius import (
    Estimate,
    first_estimate,
    next_estimate,
    velocity_of_part,
    whole_state,
)

# How many accepted steps an estimate of the spectral radius serves; longer where the fewest stages
# would do for a radius so much larger, but not after a step that was rejected.
_REFRESH, _WARY, _OVERDUE = 10, 1.5, 1_000_000
# An estimate from below is raised by so much; one that was cut off as it grew, by so much more.
_SAFETY, _CUT_OFF = 1.1, 1.1


class Rock4State(NamedTuple):
    """What a step hands on to the next.

    Attributes:
        velocity: The velocity where the step ended.
        before: Time, params and velocity where it started.
        direction: The vector of the power iteration, of length one.
        radius: The spectral radius, estimated.
        age: Accepted steps since it was estimated; more where it is to be looked at again.
        evaluations: How often the velocity was evaluated, in rejected steps too.
    """

    velocity: PyTree
    before: tuple[Float[Array, ""], PyTree, PyTree]
    direction: PyTree
    radius: Float[Array, ""]
    age: Int[Array, ""]
    evaluations: Int[Array, ""]


class _Table(NamedTuple):
    """The coefficients of all methods, padded to one length."""

    stages: np.ndarray
    reach: np.ndarray
    recurrence: np.ndarray
    matrix: np.ndarray
    weights: np.ndarray
    error: np.ndarray


@cache
def _table() -> _Table:
    methods = [coefficients(stages) for stages in STAGES]
    longest = max(len(method.recurrence) for method in methods)
    padded = [
        np.pad(method.recurrence, ((0, longest - len(method.recurrence)), (0, 0)))
        for method in methods
    ]
    return _Table(
        np.array([method.stages for method in methods]),
        np.array([method.reach for method in methods]),
        np.array(padded),
        *(np.array([getattr(m, name) for m in methods]) for name in ("matrix", "weights", "error")),
    )


class ROCK4(diffrax.AbstractAdaptiveSolver):
    """A stabilized explicit Runge–Kutta method of order 4, after Abdulle (2002).

    For equations whose Jacobian has eigenvalues near the negative real axis, as gradient flow and
    the equation of motion have. Where stability and not accuracy limits the step, at tolerances of
    about 1e-5 or more, it needs fewer evaluations than the classical methods.

    Args:
        part: The part of a state whose Jacobian has the spectrum of the whole, by default all of
            it. What is driven by the rest of the state and drives nothing itself makes the
            Jacobian non-normal, and power iterations on it too large.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> rates = jnp.array([1.0, 2000.0])
        >>> problem = cf.Problem(lambda theta: jnp.sum(rates * theta**2) / 2)
        >>> run = cf.solve(
        ...     cf.GradientFlow(problem), jnp.ones(2), [1.0], rtol=1e-4, solver=cf.ROCK4()
        ... )
        >>> print(f"{run.at(0)[0]:.4f}")
        0.3679
    """

    part: Callable[[PyTree], PyTree] = eqx.field(static=True, default=whole_state)

    term_structure: ClassVar = diffrax.ODETerm
    interpolation_cls: ClassVar = TwoStepHermite

    def order(self, terms: Any) -> int:
        """The order of the method; that of its error estimate is one less."""
        del terms
        return 4

    def func(self, terms: Any, t0: Any, y0: PyTree, args: Any) -> PyTree:
        """The velocity."""
        return terms.vf(t0, y0, args)

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> Rock4State:
        """The state before the first step, with a rough estimate of the spectral radius."""
        del t1
        return self.begin(terms, t0, y0, args, terms.vf(t0, y0, args))

    def begin(
        self,
        terms: Any,
        t0: Any,
        y0: PyTree,
        args: Any,
        velocity: PyTree,
        known: Estimate | None = None,
    ) -> Rock4State:
        """As `init`, where the velocity is at hand, and perhaps a first estimate of the radius."""
        if known is None:
            of_part = velocity_of_part(self.part, terms, t0, y0, args)
            found = first_estimate(of_part, self.part(y0), self.part(velocity))
        else:
            found = known._replace(evaluations=jnp.zeros((), jnp.int32))
        # A rough estimate does until steps become so long that it matters. There is no step before
        # the first.
        return Rock4State(
            velocity=velocity,
            before=(t0, y0, velocity),
            direction=found.direction,
            radius=found.radius,
            age=jnp.asarray(_REFRESH, jnp.int32),
            evaluations=found.evaluations,
        )

    def step(
        self,
        terms: Any,
        t0: Any,
        t1: Any,
        y0: PyTree,
        args: Any,
        solver_state: Rock4State,
        made_jump: Any,
    ) -> tuple[PyTree, PyTree, dict[str, PyTree], Rock4State, Any]:
        """One step, with as many stages as stability asks for."""
        del made_jump
        step = t1 - t0
        table = _table()

        def estimate(state: Rock4State) -> Rock4State:
            of_part = velocity_of_part(self.part, terms, t0, y0, args)
            found = next_estimate(
                of_part, self.part(y0), self.part(state.velocity), state.direction
            )
            # One that was cut off is gone on with at the next step.
            return state._replace(
                direction=found.direction,
                radius=jnp.where(found.settled, found.radius, _CUT_OFF * found.radius),
                age=jnp.where(found.settled, 0, _REFRESH).astype(state.age.dtype),
                evaluations=state.evaluations + found.evaluations,
            )

        matters = _WARY * solver_state.radius * step > table.reach[0]
        due = (solver_state.age >= _OVERDUE) | ((solver_state.age >= _REFRESH) & matters)
        state = jax.lax.cond(due, estimate, lambda state: state, solver_state)
        needed = _SAFETY * state.radius * step
        index = jnp.searchsorted(jnp.asarray(table.reach), needed)
        reached = index < len(STAGES)
        index = jnp.minimum(index, len(STAGES) - 1)
        stages = jnp.asarray(table.stages, jnp.int32)[index]
        recurrence = jnp.asarray(table.recurrence, step.dtype)[index]
        a21, a31, a32, a41, a42, a43 = jnp.asarray(table.matrix, step.dtype)[index]
        weights = jnp.asarray(table.weights, step.dtype)[index]
        error_weights = jnp.asarray(table.error, step.dtype)[index]

        def velocity(y: PyTree, time: Any) -> PyTree:
            return terms.vf(t0 + time * step, y, args)

        def stage(j: Any, carry: Any) -> Any:
            before, here, slope, back, now = carry
            scale, keep, further = recurrence[j]
            new = weighted_sum((scale * step, keep, further), (slope, here, before))
            time = scale + keep * now + further * back
            return here, new, velocity(new, time), now, time

        zero = jnp.zeros((), step.dtype)
        start = (y0, y0, state.velocity, zero, zero)
        _, begun, k1, _, time = jax.lax.fori_loop(0, stages - 4, stage, start)
        k2 = velocity(add_scaled(begun, step * a21, k1), time + a21)
        k3 = velocity(weighted_sum((1, step * a31, step * a32), (begun, k1, k2)), time + a31 + a32)
        y4 = weighted_sum((1, step * a41, step * a42, step * a43), (begun, k1, k2, k3))
        k4 = velocity(y4, time + a41 + a42 + a43)
        y1 = weighted_sum((1, *(step * weights)), (begun, k1, k2, k3, k4))
        end = terms.vf(t1, y1, args)
        error = weighted_sum(tuple(step * error_weights), (k1, k2, k3, k4, end))
        # A step that is too long for all methods is refused, whatever its error.
        error = jax.tree.map(lambda leaf: jnp.where(reached, leaf, jnp.inf), error)
        new_state = state._replace(
            velocity=end,
            before=(t0, y0, state.velocity),
            age=state.age + 1,
            evaluations=state.evaluations + stages,
        )
        time_before, y_before, velocity_before = point_before(
            state.before, (t0, y0, state.velocity), (t1, y1, end)
        )
        dense = {
            "before": time_before,
            "values": (y_before, y0, y1),
            "slopes": (velocity_before, state.velocity, end),
        }
        return y1, error, dense, new_state, diffrax.RESULTS.successful


def longest_step(state: Rock4State) -> Float[Array, ""]:
    """The longest step that is stable with the most stages there are."""
    return _table().reach[-1] / (1.001 * _SAFETY * state.radius)


def after_rejection(kept: Rock4State, attempted: Rock4State) -> Rock4State:
    """The state to try again from: what was learned of the radius, and what it cost, stay."""
    # The radius may have grown beyond its estimate: it is looked at again, however old it is.
    return kept._replace(
        direction=attempted.direction,
        radius=attempted.radius,
        age=jnp.full_like(kept.age, _OVERDUE),
        evaluations=attempted.evaluations,
    )
