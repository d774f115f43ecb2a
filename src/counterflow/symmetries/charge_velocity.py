"""The rate of change of a charge, its decay apart from what the gradient does to it.

One step of descent takes a charge of degree 1 (translation) to `(1 − ηλ) q`, and one of degree 2
(scale, rescale) to `(1 − ηλ)² q + η² p`, where p is the charge with the gradient ∇f in place of θ.
The exact field F of descent is the logarithm of a step, so that with its derivative `L = F·∇`

    q̇ = (d/η) log(1 − ηλ) q + η (1 − ηλ)^{−2} B(ηL − 2 log(1 − ηλ)) p,    B(z) = z/(e^z − 1),

the second term for degree d = 2 only. At order γ = 1 it is `η p`, the `(η/r²)‖∇_A f(θ̂)‖²` of
Theorem 5.1; at γ = 2 follows `η² (½(g·∇)p + λp)`, which the paper leaves out, and so on. For a
scale that is `½η² ((∇f + λθ_{A^c})·∇) p`, since p then falls like `1/r²`.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..counter_terms.counter_terms import SERIES_METHODS
from ..problem.numbers import require_learning_rate, require_order
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from .requirements import require_degree, require_symmetry
from .symmetry import Symmetry


class ChargeVelocity(NamedTuple):
    """The rate of change of a charge along a flow of order γ.

    Attributes:
        decay: `−d Γ q`, with the degree d of the charge q and the flow's decay rate
            `Γ = λ Σ_{m ≤ γ} (ηλ)^m / (m + 1)` per unit of time.
        gradient_terms: The rest, by powers `η, …, η^γ`, along a first axis of length γ.
        rate: The sum of all.
    """

    decay: Float[Array, "*units"]
    gradient_terms: Float[Array, "order *units"]

    @property
    def rate(self) -> Float[Array, "*units"]:
        """The rate of change of the charge, the sum of all terms."""
        return self.decay + jnp.sum(self.gradient_terms, axis=0)


def charge_velocity(
    problem: Problem, symmetry: Symmetry, params: PyTree, learning_rate: Any, order: int = 1
) -> ChargeVelocity:
    """The rate of change of a charge: decay, and what the gradient adds at every order.

    For `Scale` it is the equation of motion of `r_A²` (Theorem 5.1), for `Translation` that of the
    sum of weights (Theorem 5.2), whose gradient terms vanish; for `Rescale` that of the difference
    of squared norms.

    Args:
        problem: The problem, with its weight decay.
        symmetry: A translation, scale or rescale under which the loss is invariant.
        params: Where along the flow.
        learning_rate: The η of gradient descent.
        order: The order γ of the flow.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)
        >>> velocity = cf.charge_velocity(problem, cf.Scale(""), jnp.array([0.6, 0.8]), 0.5)
        >>> print(f"{velocity.decay:.3f} {velocity.gradient_terms[0]:.3f} {velocity.rate:.3f}")
        -0.205 0.320 0.115
    """
    learning_rate = require_learning_rate(learning_rate)
    order = require_order(order, "order", "0 is gradient flow, 1 the paper's equation of motion")
    params = at_the_door(problem, params)
    require_symmetry(symmetry, problem, params)
    require_degree(symmetry)
    return _charge_velocity(problem, symmetry, params, learning_rate, order)


@eqx.filter_jit
def _charge_velocity(
    problem: Problem, symmetry: Symmetry, params: PyTree, learning_rate: Any, order: int
) -> ChargeVelocity:
    degree = require_degree(symmetry)
    charge = symmetry.charge(params)
    learning_rate, weight_decay = (
        jnp.asarray(value, charge.dtype) for value in (learning_rate, problem.weight_decay)
    )
    series = SERIES_METHODS["taylor"](problem.gradient, params, order)
    terms = []
    for power, term in enumerate(series[1:], start=1):
        pulled = symmetry.along_generator(params, term) + symmetry.generator_change(params, term)
        decayed = degree * weight_decay ** (power + 1) / (power + 1) * charge
        terms.append(learning_rate**power * (decayed - pulled))
    stacked = jnp.stack(terms) if terms else jnp.zeros((0, *charge.shape), charge.dtype)
    rate = decay_per_time(learning_rate, weight_decay, order)
    return ChargeVelocity(-degree * rate * charge, stacked)


def decay_per_time(learning_rate: Any, weight_decay: Any, order: int) -> Any:
    """`Γ = λ Σ_{m ≤ γ} (ηλ)^m / (m + 1)`, the decay rate of a flow of order γ."""
    product = learning_rate * weight_decay
    return weight_decay * sum(product**power / (power + 1) for power in range(order, -1, -1))


def charge_after_step(
    problem: Problem, symmetry: Symmetry, params: PyTree, learning_rate: Any
) -> Float[Array, "*units"]:
    """The charge after one step of gradient descent, by its exact law.

    `(1 − ηλ) q` for a translation; `(1 − ηλ)² q + η² p` for a scale or a rescale, where p is the
    charge of the gradient ∇f: `‖∇_A f‖²`, or `‖∇_{A1} f‖² − ‖∇_{A2} f‖²`.

    Args:
        problem: The problem, with its weight decay.
        symmetry: A translation, scale or rescale under which the loss is invariant.
        params: The params before the step.
        learning_rate: The learning rate η.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)
        >>> params = jnp.array([0.6, 0.8])
        >>> print(f"{cf.charge_after_step(problem, cf.Scale(''), params, 0.5):.4f}")
        1.0625
        >>> step = cf.GradientDescent(problem, 0.5).step(params)
        >>> print(f"{cf.Scale('').charge(step):.4f}")
        1.0625
    """
    learning_rate = require_learning_rate(learning_rate)
    params = at_the_door(problem, params)
    require_symmetry(symmetry, problem, params)
    require_degree(symmetry)
    return law_of_step(
        symmetry, symmetry.charge(params), problem, problem.loss_gradient(params), learning_rate
    )


def law_of_step(
    symmetry: Symmetry, charge: Array, problem: Problem, gradient: PyTree, learning_rate: Any
) -> Float[Array, "*units"]:
    """The charge after a step from the charge before it and the gradient `∇f` there."""
    learning_rate = jnp.asarray(learning_rate, charge.dtype)
    kept = 1 - learning_rate * jnp.asarray(problem.weight_decay, charge.dtype)
    if require_degree(symmetry) == 1:
        return kept * charge
    return kept**2 * charge + learning_rate**2 * symmetry.charge(gradient)
