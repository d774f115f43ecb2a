"""The equation of the discretization error: a flow together with what is predicted of its error.

With the exact field `F` of gradient descent and the field `F_γ` of a flow, the discretization error
`e = θ(t) − θ_k` obeys `ė = F_γ(θ) − F(θ − e)`. Everything here is that equation, more or less
completely, driven by the same `θ(t)`:

    local        Ṡ = η^{γ+1} ξ̃_γ                  the paper's sum (Equation 12, Corollary 4.1)
    propagated   ė = −(H + λI) e + η^{γ+1} ξ̃_γ    the leading order, uniformly in time
    refined      ė = F_γ(θ) − F_{2γ+3}(θ − e)     the next order, all its terms included

The refined one costs `2γ + 5` gradients by the method `orbit`; its distance from the other two says
how far they are to be trusted. (Order γ + 2 would do to leading order; but at the orders of a flow
worth predicting, `orbit` needs more to be as accurate as the series.) Where the series diverges it
is wrong itself: the `doubt` adds up the sizes of what it drops.

Along gradient flow, without that estimate, one product with the Hessian is enough. There
`ξ̃_0 = Hg/2` is the rate at which `−g/2` changes, so that the local sum is a difference of
gradients, `η/2 (g(θ(0)) − g(θ(t)))`; and the propagated error has the velocity `H(ηg/2 − e)`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..counter_terms import orbit
from ..counter_terms.taylor_mode import TaylorMode
from ..dynamics.dynamics import Flow
from ..dynamics.equation_of_motion import EquationOfMotion
from ..problem.noun import noun, static
from ..problem.problem import Problem
from ..problem.tree import add_scaled, distance, inner, norm, rms, rounding_of, scaled, zeros_like
from ..solvers.measure import Measure

#: The predictions that users see; the refined one tells them how far to trust these.
KINDS = ("local", "propagated")


class ErrorState(NamedTuple):
    """The params of a flow and the predictions of its error, each shaped like the params."""

    params: PyTree
    local: PyTree
    propagated: PyTree
    refined: PyTree  # this and the next are None where no uncertainty is asked for
    doubt: Any  # a number: how large what the refined error leaves out may have become


@noun
class ErrorEquation(Flow):
    """A flow together with the equations of its discretization error; its state an `ErrorState`.

    Attributes:
        flow: The flow.
        estimate: Whether the predictions are to know their uncertainty, which is half the cost.
    """

    flow: EquationOfMotion
    estimate: bool = static(default=True)

    @property
    def problem(self) -> Problem:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The problem of the flow."""
        return self.flow.problem

    @property
    def gradient_evaluations(self) -> int:
        flow, hessian_product = self.flow, 2
        if self._one_product:
            return 1 + hessian_product
        further = EquationOfMotion(flow.problem, 1.0, flow.order + 1, flow.method)
        refined = self.estimate * (self._refined_order + 2)
        return further.gradient_evaluations + hessian_product + refined

    def velocity(self, params: ErrorState) -> ErrorState:
        flow, state = self.flow, params
        if self._one_product:
            return self._velocity_by_one_product(state)
        velocity, remainder = flow.velocity_and_remainder(state.params)
        returned = self.problem.hessian_vector_product(state.params, state.propagated)
        propagated = add_scaled(remainder, -1, returned)
        if not self.estimate:
            return ErrorState(velocity, remainder, propagated, None, None)
        descent = add_scaled(state.params, -1, state.refined)
        exact, tail = orbit.velocity_and_tail(
            self.problem.gradient, descent, flow.learning_rate, self._refined_order
        )
        # Doubt is carried along as the propagated error is: it shrinks or grows at the same rate.
        size = inner(state.propagated, state.propagated)
        rate = inner(state.propagated, returned) / jnp.where(size > 0, size, 1)
        return ErrorState(
            params=velocity,
            local=remainder,
            propagated=propagated,
            refined=add_scaled(velocity, -1, exact),
            doubt=tail - rate * state.doubt,
        )

    def _velocity_by_one_product(self, state: ErrorState) -> ErrorState:
        half = self.flow.learning_rate / 2
        if self.flow.method == "taylor":
            mode = TaylorMode(self.problem.gradient, state.params)
            gradient, product = mode.value, mode.begin().extend
        else:
            gradient = self.problem.gradient(state.params)
            product = partial(self.problem.hessian_vector_product, state.params)
        propagated = product(add_scaled(scaled(half, gradient), -1, state.propagated))
        # The local sum is known from the gradients at its ends; nothing is added up.
        return ErrorState(scaled(-1, gradient), zeros_like(gradient), propagated, None, None)

    @property
    def _one_product(self) -> bool:
        return self.flow.order == 0 and self.flow.method != "orbit" and not self.estimate

    @property
    def _refined_order(self) -> int:
        return 2 * self.flow.order + 3

    def start(self, params: PyTree, error: PyTree | None = None) -> ErrorState:
        """The state at params whose discretization error is known, by default zero."""
        error = zeros_like(params) if error is None else error
        if not self.estimate:
            return ErrorState(params, self._local(params, error, 1), error, None, None)
        return ErrorState(params, error, error, error, jnp.zeros_like(norm(params)))

    def read(self, state: ErrorState) -> ErrorState:
        """What is predicted at a state."""
        return state._replace(local=self._local(state.params, state.local, -1))

    @property
    def reading_costs(self) -> int:
        """The gradients that `read` takes."""
        return int(self._one_product)

    def _local(self, params: PyTree, local: PyTree, sign: int) -> PyTree:
        """Where the local sum is a difference of gradients, with one of them added."""
        if not self._one_product:
            return local
        return add_scaled(local, sign * self.flow.learning_rate / 2, self.problem.gradient(params))


# The share of the solver's tolerance for params that is spent on an error's own relative accuracy.
_WEIGHT = 0.1
# How many rounding errors of the params a difference of velocities may be off by.
_ROUNDING = 10


def _view(
    flow: Flow, rtol: Any, old: ErrorState, new: ErrorState, error: ErrorState
) -> tuple[ErrorState, ErrorState, ErrorState]:
    """The params entry by entry; the propagated errors each as a whole, relative as they decay.

    On the local sum and the doubt nothing depends, and they are as accurate as the rest.
    """
    assert isinstance(flow, ErrorEquation)
    # Below rounding there is nothing to be accurate about. The refined error is a difference of
    # velocities; the propagated one has a source that is itself of the size η^{γ+1}.
    rounding = _ROUNDING * rounding_of(old.params) * rms(old.params) * _WEIGHT / rtol
    unit = flow.flow.learning_rate ** (flow.flow.order + 1)

    def relative(error: PyTree, old: PyTree, new: PyTree, least: Array) -> Array:
        size = jnp.maximum(jnp.maximum(rms(old), rms(new)), least)
        return jnp.where(size > 0, _WEIGHT * rms(error) / jnp.where(size > 0, size, 1), 0)

    propagated = relative(
        error.propagated, old.propagated, new.propagated, (unit * rounding).astype(rounding.dtype)
    )
    one = jnp.ones_like(propagated)
    if not flow.estimate:
        return (
            ErrorState(old.params, None, one, None, None),
            ErrorState(new.params, None, one, None, None),
            ErrorState(error.params, None, propagated, None, None),
        )
    refined = relative(error.refined, old.refined, new.refined, rounding)
    return (
        ErrorState(old.params, None, one, one, None),
        ErrorState(new.params, None, one, one, None),
        ErrorState(error.params, None, propagated, refined, None),
    )


def _norm(seen: ErrorState) -> Float[Array, ""]:
    errors = [error for error in (seen.propagated, seen.refined) if error is not None]
    return jnp.max(jnp.stack([rms(seen.params), *errors]))


#: How the steps of an error equation are judged. A norm over the params alone would let the errors
#: go wrong where they are stiff; a norm over everything alike would cost the params their accuracy.
MEASURE = Measure(_view, _norm, lambda state: state.params)


def gap(predicted: PyTree, errors: ErrorState) -> Float[Array, ""]:
    """The estimated error of a prediction: its distance from the refined one, and the doubt."""
    return distance(predicted, errors.refined) + errors.doubt


def uncertainty(predicted: PyTree, errors: ErrorState) -> Float[Array, ""]:
    """The estimated relative error of a prediction; not a number where it was not asked for."""
    if errors.refined is None:
        return jnp.full_like(norm(predicted), jnp.nan)
    size, off = norm(errors.refined), gap(predicted, errors)
    return jnp.where(size > 0, off / jnp.where(size > 0, size, 1), jnp.where(off > 0, jnp.inf, 0))
