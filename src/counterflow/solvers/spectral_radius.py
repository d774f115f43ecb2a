"""The spectral radius of a flow's Jacobian, by power iterations on differences of the velocity."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..problem.tree import add_scaled, inner, norm, rounding_of, scaled

# The iterations of an estimate: from nothing, and when the vector of the last one is at hand.
_FIRST, _WARM = 10, 8
# To what two iterations have to agree: at first, well enough for a choice of the solver, and later.
_ROUGH, _FINE = 0.1, 0.02
# How much noise the vector of the last estimate is given. An eigenvector would remain one.
_STIRRED = 0.1


class Estimate(NamedTuple):
    """The spectral radius of a Jacobian, by power iterations.

    Attributes:
        radius: The radius.
        direction: The vector of the last iteration, of length one.
        evaluations: How often the velocity was evaluated.
        settled: Whether the iterations came to agree, or were cut off while the radius grew.
    """

    radius: Float[Array, ""]
    direction: PyTree
    evaluations: Int[Array, ""]
    settled: Bool[Array, ""]


def noise(like: PyTree) -> PyTree:
    """A fixed random vector of length one."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    found = [
        jax.random.normal(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    tree = jax.tree.unflatten(structure, found)
    return scaled(1 / norm(tree), tree)


def first_estimate(velocity: Any, params: PyTree, at_params: PyTree) -> Estimate:
    """The spectral radius from nothing: well enough for a choice, and to begin with."""
    # What is steep is large in the velocity, unless that has none of it, or vanishes: hence noise.
    # Where they nearly cancel, as they may for few params, the opposite direction does as well.
    random, size = noise(params), norm(at_params)
    cancelling = inner(random, at_params) < -size / 2
    length = jnp.where(cancelling, -1, 1) / jnp.where(size > 0, size, 1)
    mixed = add_scaled(random, length, at_params)
    start = scaled(1 / norm(mixed), mixed)
    return spectral_radius(velocity, params, at_params, start, _FIRST, _ROUGH)


def next_estimate(
    velocity: Any,
    params: PyTree,
    at_params: PyTree,
    direction: PyTree,
    agreement: float = _FINE,
    near: bool = False,
) -> Estimate:
    """The spectral radius near where another estimate found the direction."""
    mixed = add_scaled(direction, _STIRRED, noise(direction))
    start = scaled(1 / norm(mixed), mixed)
    return spectral_radius(velocity, params, at_params, start, _WARM, agreement, near)


def next_rough_estimate(
    velocity: Any, params: PyTree, at_params: PyTree, direction: PyTree
) -> Estimate:
    """As `next_estimate`, in one iteration where the direction has hardly changed."""
    return next_estimate(velocity, params, at_params, direction, _ROUGH, near=True)


def spectral_radius(
    velocity: Any,
    params: PyTree,
    at_params: PyTree,
    direction: PyTree,
    iterations: int,
    agreement: float = _FINE,
    near: bool = False,
) -> Estimate:
    """The spectral radius of the Jacobian, by power iterations until two of them agree.

    Where the direction is expected to be `near` that of the largest eigenvalue, one that finds it
    so is enough: with an angle `φ` between a vector and its image, two agree to about `sin² φ`.
    """
    length = rounding_of(params) ** 0.5 * (1 + norm(params))

    def agree(radius: Any, before: Any) -> Any:
        return jnp.abs(radius - before) <= agreement * radius

    def unfinished(carry: Any) -> Any:
        count, radius, before, _ = carry
        return (count < iterations) & ~agree(radius, before)

    def iterate(carry: Any) -> Any:
        count, radius, _, vector = carry
        there = velocity(add_scaled(params, length, vector))
        image = scaled(1 / length, add_scaled(there, -1, at_params))
        size = norm(image)
        turned = scaled(1 / jnp.where(size > 0, size, 1), image)
        straight = near & (1 - inner(turned, vector) ** 2 <= agreement)
        return count + 1, size, jnp.where(straight, size, radius), turned

    zero = jnp.zeros_like(norm(params))
    start = (jnp.zeros((), jnp.int32), zero, zero - 1, direction)
    count, radius, before, vector = jax.lax.while_loop(unfinished, iterate, start)
    # Of a symmetric Jacobian the sizes grow to the radius. Of a pair of complex eigenvalues they
    # swing, and never agree: the larger of two is taken, and where they fall it is large enough.
    settled = agree(radius, before) | (radius < before)
    return Estimate(jnp.maximum(radius, before), vector, count, settled)


def whole_state(state: PyTree) -> PyTree:
    """All of a state: the part whose Jacobian has the spectrum of the whole, unless it is said."""
    return state


def velocity_of_part(
    part: Callable[[PyTree], PyTree], terms: Any, time: Any, state: PyTree, args: Any
) -> Callable[[PyTree], PyTree]:
    """The velocity of the part of a state that has the spectrum, as a function of that part."""

    def of_part(values: PyTree) -> PyTree:
        whole = values if part is whole_state else eqx.tree_at(part, state, values)
        return part(terms.vf(time, whole, args))

    return of_part
