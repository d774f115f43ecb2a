"""What the laws ask of a symmetry, before anything is computed."""

import warnings
from typing import Any

from jaxtyping import PyTree

from ..problem.problem import Problem
from ..problem.tree import distance, inside_transformation, is_concrete, norm, rounding_of
from .scale import Scale
from .symmetry import Symmetry
from .translation import Translation

# Above this residual a transformation is no symmetry, not even an approximate one.
REFUSED = 1e-2


def require_symmetry(symmetry: Any, problem: Problem, params: PyTree) -> None:
    """Raises unless it is a symmetry of the problem, with a generator as Theorem B.1 needs it.

    Where it holds only approximately, as before a normalization with an ε, it warns. Inside a JAX
    transformation, where there may be no values to look at, nothing is checked.
    """
    if not isinstance(symmetry, Symmetry):
        raise TypeError(
            f"`symmetry` must be a symmetry, got {type(symmetry).__name__}: "
            "for example `Scale('hidden')`"
        )
    if not is_concrete((problem, params)) or inside_transformation():
        return
    same = symmetry.transform(params, symmetry.identity(params))
    off = float(distance(same, params) / (norm(params) or 1))
    if not off <= 1e3 * rounding_of(params):
        raise ValueError(
            f"{symmetry!r} must leave the params as they are at its identity, but changes them by "
            f"{off:.2g} relatively: give the α that changes nothing"
        )
    residual = symmetry.residual(problem, params)
    if not residual <= REFUSED:
        raise ValueError(
            f"{symmetry!r} must leave the loss unchanged, but its residual is {residual:.2g}, "
            f"above {REFUSED:g}: `find_symmetries` lists what does"
        )
    if residual > exactness(params):
        warnings.warn(
            f"{symmetry!r} leaves the loss unchanged only approximately, its residual is "
            f"{residual:.2g}: what follows from the symmetry is off by about as much",
            stacklevel=3,
        )
    assumption = symmetry.assumption(problem, params)
    if not assumption <= REFUSED:
        raise ValueError(
            f"the generator of {symmetry!r} must satisfy θ·((∇f·∇)G) = 0, the assumption of "
            f"Theorem B.1, but relative to ‖θ‖‖∇f‖ it is {assumption:.2g}: the conservation law "
            "does not apply; follow the charge along `solve` instead"
        )


def exactness(params: PyTree) -> float:
    """The residual up to which a symmetry is taken for exact, in the dtype of the params."""
    return 1e-6 if rounding_of(params) < 1e-10 else 1e-3


def require_degree(symmetry: Symmetry) -> int:
    """The degree of the charge; raises if it is not known."""
    degree = symmetry.charge_degree
    if degree is None:
        raise TypeError(
            f"this law is for Translation, Scale and Rescale, got {symmetry!r}: "
            "`conservation_law` and `predict_charge` hold for any symmetry"
        )
    return degree


def require_scale(scale: Any) -> None:
    """Raises unless it is a `Scale`."""
    if not isinstance(scale, Scale):
        raise TypeError(
            f"`scale` must be a `Scale`, got {scale!r}: norm and direction are those of a "
            "scale-invariant layer"
        )


def require_translation(translation: Any) -> None:
    """Raises unless it is a `Translation`."""
    if not isinstance(translation, Translation):
        raise TypeError(
            f"`translation` must be a `Translation`, got {translation!r}: `θ_⊥` and `θ_∥` are "
            "those of a translation-invariant layer"
        )
