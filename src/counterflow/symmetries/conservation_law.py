"""The broken conservation law: what becomes of a charge under weight decay and finite steps.

Theorem B.1 of the paper, in the form of its proof (the printed statement has a misprint):

    d/dt (θ·G) = −λ θ·G − λ θ·((θ·∇)G) − η ξ·G − η θ·((ξ·∇)G)
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..dynamics.equation_of_motion import EquationOfMotion
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from .requirements import require_symmetry
from .symmetry import Symmetry


class ConservationLaw(NamedTuple):
    """The terms of the rate of change of a charge, each an array over the units.

    Attributes:
        decay: `−λ θ·G`.
        generator_decay: `−λ θ·((θ·∇)G)`, from the change of the generator under weight decay.
        counter: `−η ξ·G`.
        generator_counter: `−η θ·((ξ·∇)G)`.
        rate: Their sum.
    """

    decay: Float[Array, "*units"]
    generator_decay: Float[Array, "*units"]
    counter: Float[Array, "*units"]
    generator_counter: Float[Array, "*units"]

    @property
    def rate(self) -> Float[Array, "*units"]:
        """The rate of change of the charge, the sum of all terms."""
        return self.decay + self.generator_decay + self.counter + self.generator_counter


def conservation_law(
    problem: Problem,
    symmetry: Symmetry,
    params: PyTree,
    learning_rate: Any,
    order: int = 1,
    method: str = "taylor",
) -> ConservationLaw:
    """The rate of change of a charge along a flow, term by term (Theorem B.1).

    Args:
        problem: The problem, with its weight decay.
        symmetry: A symmetry of its loss; that it is one is checked.
        params: Where along the flow.
        learning_rate: The η of gradient descent.
        order: The order γ of the flow; without counter terms, at 0, the last two terms vanish.
        method: How the counter terms are computed, as for `EquationOfMotion`.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)
        >>> law = cf.conservation_law(problem, cf.Scale(""), jnp.array([0.6, 0.8]), 0.5)
        >>> print(f"{law.decay:.3f} {law.generator_decay:.3f} {law.rate:.3f}")
        -0.100 -0.100 0.115
    """
    flow = EquationOfMotion(problem, learning_rate, order, method)
    params = at_the_door(problem, params)
    require_symmetry(symmetry, problem, params)
    return _law(flow, symmetry, params)


@eqx.filter_jit
def _law(flow: EquationOfMotion, symmetry: Symmetry, params: PyTree) -> ConservationLaw:
    _, counter = flow.velocity_and_counter(params)
    return law_with(flow, symmetry, params, counter)


def law_with(
    flow: EquationOfMotion, symmetry: Symmetry, params: PyTree, counter: PyTree
) -> ConservationLaw:
    """The terms of the law where `ηξ` is known."""
    charge = symmetry.charge(params)
    weight_decay = jnp.asarray(flow.problem.weight_decay, charge.dtype)
    return ConservationLaw(
        decay=-weight_decay * charge,
        generator_decay=-weight_decay * symmetry.generator_change(params, params),
        counter=-symmetry.along_generator(params, counter),
        generator_counter=-symmetry.generator_change(params, counter),
    )
