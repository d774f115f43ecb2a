"""The front door to the counter terms ξ̃_α of Theorem 3.3."""

from collections.abc import Callable, Mapping

import equinox as eqx
from jaxtyping import PyTree

from ..problem.numbers import require_order
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from . import lie, taylor

SeriesMethod = Callable[[Callable[[PyTree], PyTree], PyTree, int], tuple[PyTree, ...]]

#: The methods that give single counter terms: `(g, ξ̃_0, …, ξ̃_{n−1})` of a gradient at params.
SERIES_METHODS: Mapping[str, SeriesMethod] = {
    "taylor": taylor.counter_terms,
    "lie": lie.counter_terms,
}


def counter_terms(
    problem: Problem, params: PyTree, count: int, *, method: str = "taylor"
) -> tuple[PyTree, ...]:
    """The first `count` counter terms, `(ξ̃_0, …, ξ̃_{count−1})`, each shaped like `params`.

    They make the equation of motion `dθ/dt = −g − η Σ η^α ξ̃_α` follow gradient descent order by
    order (Equation 8 and Theorem 3.3 of the paper); `ξ̃_0 = ½(g·∇)g`. The work is shared between
    them: all together cost little more than the last alone.

    Args:
        problem: The problem, with its weight decay.
        params: Where to evaluate them: any pytree of float arrays.
        count: How many, at least 0.
        method: `"taylor"` (exact, cost polynomial in `count`) or `"lie"` (Theorem 3.3 word for
            word, cost exponential in `count`; the reference).

    Example:
        For `f(θ) = θ⁴/4` they are `3/2 θ⁵, 7/2 θ⁷, 39/4 θ⁹, …`:

        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: theta**4 / 4)
        >>> [round(float(term), 9) for term in cf.counter_terms(problem, jnp.array(1.0), 4)]
        [1.5, 3.5, 9.75, 29.5]
    """
    count = require_order(count, "count", "the number of counter terms")
    if method not in SERIES_METHODS:
        hint = (
            "'orbit' gives the velocity of an `EquationOfMotion`, not single counter terms"
            if method == "orbit"
            else "both give the same numbers"
        )
        raise ValueError(f"`method` must be 'taylor' or 'lie', got {method!r}: {hint}")
    params = at_the_door(problem, params)
    return _series(problem, params, count, method)[1:]


def counter_term(problem: Problem, params: PyTree, alpha: int, *, method: str = "taylor") -> PyTree:
    """The counter term ξ̃_α, shaped like `params`; see `counter_terms`.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: theta**4 / 4)
        >>> cf.counter_term(problem, jnp.array(2.0), 0)
        Array(48., dtype=float64)
    """
    alpha = require_order(alpha, "alpha", "0 is the paper's ξ̃_0")
    return counter_terms(problem, params, alpha + 1, method=method)[alpha]


@eqx.filter_jit
def _series(problem: Problem, params: PyTree, count: int, method: str) -> tuple[PyTree, ...]:
    return SERIES_METHODS[method](problem.gradient, params, count)
