"""A flow together with the integrals of its conservation law.

Along a flow, a charge q of a problem with weight decay λ is (Theorem B.1, solved)

    q(t) = e^{−λt} q(0) − λ ∫ e^{−λ(t−τ)} θ·((θ·∇)G) dτ − η ∫ e^{−λ(t−τ)} (ξ·G + θ·((ξ·∇)G)) dτ

and, where the charge has a degree d, with the decay rate Γ of the flow's order (Theorem 5.1)

    q(t) = e^{−dΓt} q(0) + ∫ e^{−dΓ(t−τ)} (gradient terms) dτ.

The integrals are extra state, driven by the same θ(t).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..dynamics.dynamics import Flow
from ..dynamics.equation_of_motion import EquationOfMotion
from ..problem.noun import noun, static
from ..problem.problem import Problem
from ..problem.tree import rms
from ..solvers.measure import Measure
from .charge_velocity import decay_per_time
from .conservation_law import law_with
from .symmetry import Symmetry


class ChargeState(NamedTuple):
    """The params of a flow and the integrals of its conservation law, one number per unit."""

    params: PyTree
    weight_decay: Float[Array, "*units"]
    counter: Float[Array, "*units"]
    gradient: Float[Array, "*units"]


@noun
class ChargeEquation(Flow):
    """A flow together with the integrals of its conservation law; its state a `ChargeState`."""

    flow: EquationOfMotion
    symmetry: Symmetry = static()

    @property
    def problem(self) -> Problem:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The problem of the flow."""
        return self.flow.problem

    @property
    def gradient_evaluations(self) -> int:
        again = self.flow.method == "orbit" and self.flow.order > 0
        return self.flow.gradient_evaluations + again

    @property
    def decay(self) -> Any:
        """`dΓ`, the rate of the exponential in Theorem 5.1; λ where the charge has no degree."""
        flow, degree = self.flow, self.symmetry.charge_degree
        if degree is None:
            return flow.problem.weight_decay
        return degree * decay_per_time(flow.learning_rate, flow.problem.weight_decay, flow.order)

    def velocity(self, params: ChargeState) -> ChargeState:
        flow, state = self.flow, params
        velocity, counter = flow.velocity_and_counter(state.params)
        law = law_with(flow, self.symmetry, state.params, counter)
        dtype = law.decay.dtype
        decay = jnp.asarray(self.decay, dtype)
        gradient_terms = law.rate + decay * self.symmetry.charge(state.params)
        weight_decay = jnp.asarray(flow.problem.weight_decay, dtype)
        return ChargeState(
            params=velocity,
            weight_decay=law.generator_decay - weight_decay * state.weight_decay,
            counter=law.counter + law.generator_counter - weight_decay * state.counter,
            gradient=gradient_terms - decay * state.gradient,
        )

    def start(self, params: PyTree) -> ChargeState:
        """The state at the start, where all integrals vanish."""
        zero = jnp.zeros_like(self.symmetry.charge(params))
        return ChargeState(params, zero, zero, zero)


def _view(
    flow: Flow, rtol: Any, old: ChargeState, new: ChargeState, error: ChargeState
) -> tuple[ChargeState, ChargeState, ChargeState]:
    """The integrals against the size of the charge, from which they are to be told apart."""
    assert isinstance(flow, ChargeEquation)
    del rtol
    # Sums of many weights may cancel; what they are sums of does not.
    size = rms(flow.symmetry.charge(old.params)) + rms(old.params)
    whole = ChargeState(old.params, *(jnp.full_like(part, size) for part in old[1:]))
    return whole, whole._replace(params=new.params), error


def _norm(seen: ChargeState) -> Float[Array, ""]:
    return jnp.maximum(rms(seen.params), rms(seen[1:]))


#: How the steps of a charge equation are judged: a few integrals must not drown in many params.
MEASURE = Measure(_view, _norm, lambda state: state.params)
