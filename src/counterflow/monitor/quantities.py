"""What is measured at a record of a training loop: names, and the programs that compute them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..errors.error_equation import ErrorState
from ..problem.problem import Problem
from ..problem.tree import add_scaled, distance, norm
from ..symmetries.rescale import Rescale
from ..symmetries.scale import Scale
from ..symmetries.scale_motion import angular_update
from ..symmetries.symmetry import Symmetry
from ..symmetries.translation import Translation

#: What every name means; those of a symmetric layer follow its path, as in `hidden/norm`.
DESCRIPTIONS = {
    "loss": "the loss f(θ), without weight decay",
    "learning_rate": "the learning rate η of the next step",
    "params_norm": "‖θ‖",
    "gradient_norm": "‖g‖, with weight decay",
    "counter_term_ratio": "η‖ξ̃_0‖ / ‖g‖, what gradient flow leaves out against what it keeps",
    "sharpness": "the largest eigenvalue of H + λI",
    "learning_rate_times_sharpness": "η times the sharpness; descent is unstable above 2",
    "local_error": "the paper's sum since the last record, ‖η/2 (g − g_last)‖",
    "relative_local_error": "the same over ‖θ‖",
    "propagated_error": "‖e‖ of gradient flow started at the last record, predicted",
    "relative_propagated_error": "the same over ‖θ‖",
    "measured_error": "‖e‖ of gradient flow started at the last record, measured",
    "relative_measured_error": "the same over ‖θ‖",
    "mismatch": "‖predicted − measured‖ / ‖measured‖ of the propagated error, of the vectors",
    "norm": "the norm of a scale-invariant layer",
    "effective_learning_rate": "η / r², the learning rate of a direction; the mean over units",
    "angular_update": "the angle that a direction turns by in the next step; the mean over units",
    "angle": "the angle that a direction turned by since the last record; the mean over units",
    "charge": "the charge of a symmetric layer; the root mean square over units",
}

#: For the monitor itself: how much the gradient changed since the last record, of which the local
#: error is made, and the curvature along the gradient, `‖(H + λI)g‖ / ‖g‖`.
GRADIENT_CHANGE, CURVATURE = "gradient_change", "curvature"

#: The gradients that `look` takes: one, and a product with the Hessian, which counts as two.
LOOK_COSTS = 3

Values = dict[str, Float[Array, ""]]


class Sight(NamedTuple):
    """Params and the gradient there."""

    params: PyTree
    gradient: PyTree


@eqx.filter_jit
def look(
    problem: Problem,
    layers: tuple[tuple[str, Symmetry], ...],
    params: PyTree,
    before: Sight,
    learning_rate: Float[Array, ""],
) -> tuple[Values, PyTree]:
    """What one gradient and one product with the Hessian tell, and the gradient."""
    gradient = problem.gradient(params)
    product = problem.hessian_vector_product(params, gradient)
    curvature = _ratio(norm(product), norm(gradient))
    values = {
        "params_norm": norm(params),
        "gradient_norm": norm(gradient),
        "counter_term_ratio": learning_rate / 2 * curvature,
        CURVATURE: curvature,
        GRADIENT_CHANGE: distance(before.gradient, gradient),
    }
    if problem.has_loss:
        values["loss"] = problem.loss(params)
    after = add_scaled(params, -learning_rate, gradient)
    for name, symmetry in layers:
        of_layer = _of_layer(symmetry, before.params, params, after, learning_rate)
        values |= {f"{name}/{quantity}": value for quantity, value in of_layer.items()}
    return values, gradient


def _of_layer(
    symmetry: Symmetry, before: PyTree, params: PyTree, after: PyTree, learning_rate: Any
) -> Values:
    if not isinstance(symmetry, Scale):
        charge = symmetry.charge(params)
        return {"charge": norm(charge) / charge.size**0.5}
    radius = symmetry.radius(params)
    return {
        "norm": norm(radius),
        "effective_learning_rate": learning_rate * jnp.mean(radius**-2),
        "angular_update": jnp.mean(angular_update(symmetry, params, after)),
        "angle": jnp.mean(angular_update(symmetry, before, params)),
    }


@eqx.filter_jit
def errors_of(predicted: ErrorState, params: PyTree) -> Values:
    """The propagated error of a flow, its distance from the params, and how well these agree."""
    measured = add_scaled(predicted.params, -1, params)
    return {
        "propagated_error": norm(predicted.propagated),
        "measured_error": norm(measured),
        "mismatch": _ratio(distance(predicted.propagated, measured), norm(measured)),
    }


def _ratio(part: Array, whole: Array) -> Array:
    """The ratio; zero where both are, as at rest."""
    return jnp.where(part == 0, 0, part / jnp.where(part == 0, 1, whole))


def named(symmetries: Iterable[Symmetry]) -> tuple[tuple[str, Symmetry], ...]:
    """The symmetries with the names of their layers; raises unless these differ by kind."""
    layers = [(_name(symmetry), symmetry) for symmetry in symmetries]
    seen: dict[tuple[str, bool], Symmetry] = {}
    for name, symmetry in layers:
        other = seen.setdefault((name, isinstance(symmetry, Scale)), symmetry)
        if other is not symmetry:
            raise ValueError(
                f"two symmetries must not share the name {name!r}, got {other!r} and "
                f"{symmetry!r}: give one of them, or watch them with a monitor each"
            )
    return tuple(layers)


def of_different_names(symmetries: Iterable[Symmetry]) -> tuple[Symmetry, ...]:
    """The symmetries, of those that share a name and a kind the first."""
    first: dict[tuple[str, bool], Symmetry] = {}
    for symmetry in symmetries:
        first.setdefault((_name(symmetry), isinstance(symmetry, Scale)), symmetry)
    return tuple(first.values())


def _name(symmetry: Symmetry) -> str:
    if isinstance(symmetry, Scale | Translation):
        selections = (symmetry.selection,)
    elif isinstance(symmetry, Rescale):
        selections = (symmetry.first, symmetry.second)
    else:
        return repr(symmetry)
    return ":".join("+".join(path or "params" for path in one.paths) for one in selections)
