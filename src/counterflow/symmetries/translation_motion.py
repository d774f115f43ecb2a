"""How a translation-invariant layer moves: its mean `θ_{A⊥}` and the rest, `θ_{A∥}`, apart.

Theorems 5.2 and D.1 of the paper, the latter with its misprints corrected: the general form needs
`∇_A`, `ξ_A` and `θ_{A^c}`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..dynamics.equation_of_motion import EquationOfMotion
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import add_scaled, scaled
from .charge_velocity import decay_per_time
from .requirements import require_symmetry, require_translation
from .translation import Translation


def perpendicular_velocity(
    problem: Problem, translation: Translation, params: PyTree, learning_rate: Any, order: int = 1
) -> PyTree:
    """The velocity of `θ_{A⊥}` along a flow of any order: `−Γ θ_{A⊥}` (Theorem 5.2).

    `Γ = λ Σ_{m ≤ γ} (ηλ)^m / (m + 1)`, so that `θ_{A⊥}` decays by `decay_rate` per step whatever
    the loss. Zero outside of A.

    Args:
        problem: The problem, with its weight decay.
        translation: The translation-invariant layer A, or its units.
        params: Where along the flow.
        learning_rate: The η of gradient descent.
        order: The order γ of the flow.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda p: jnp.cos(p[1] - p[0]), weight_decay=0.1)
        >>> cf.perpendicular_velocity(problem, cf.Translation(""), jnp.array([1.0, 3.0]), 0.5)
        Array([-0.205, -0.205], dtype=float64)
    """
    flow = EquationOfMotion(problem, learning_rate, order)
    params = at_the_door(problem, params)
    require_translation(translation)
    require_symmetry(translation, problem, params)
    rate = decay_per_time(flow.learning_rate, problem.weight_decay, flow.order)
    return scaled(-rate, translation.perpendicular(params))


def parallel_velocity(
    problem: Problem,
    translation: Translation,
    params: PyTree,
    learning_rate: Any,
    order: int = 1,
    method: str = "taylor",
) -> PyTree:
    """The velocity of `θ_{A∥}` along a flow of any order (Theorem D.1).

    `−∇_A f(θ_{A∥} + θ_{A^c}) − λθ_{A∥} − η(I − P)ξ_A`, zero outside of A. It does not depend on
    `θ_{A⊥}`: everything is evaluated at `θ_{A∥} + θ_{A^c}`.

    Args:
        problem: The problem, with its weight decay.
        translation: The translation-invariant layer A, or its units.
        params: Where along the flow.
        learning_rate: The η of gradient descent.
        order: The order γ of the flow.
        method: How the counter terms are computed, as for `EquationOfMotion`.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda p: (p[1] - p[0]) ** 2, weight_decay=0.1)
        >>> cf.parallel_velocity(problem, cf.Translation(""), jnp.array([1.0, 3.0]), 0.02)
        Array([ 4.2681, -4.2681], dtype=float64)
    """
    flow = EquationOfMotion(problem, learning_rate, order, method)
    params = at_the_door(problem, params)
    require_translation(translation)
    require_symmetry(translation, problem, params)
    return _parallel_velocity(flow, translation, params)


@eqx.filter_jit
def _parallel_velocity(flow: EquationOfMotion, translation: Translation, params: PyTree) -> PyTree:
    centred = jax.tree.map(jnp.subtract, params, translation.perpendicular(params))
    parallel = translation.parallel(params)
    counter = translation.parallel(flow.velocity_and_counter(centred)[1])
    gradient = translation.selection.restrict(flow.problem.loss_gradient(centred))
    force = add_scaled(add_scaled(gradient, flow.problem.weight_decay, parallel), 1, counter)
    return scaled(-1, force)
