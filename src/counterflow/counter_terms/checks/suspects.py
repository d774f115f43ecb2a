"""The operations inside a function that are not smooth: names for what a measurement has found."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jaxtyping import PyTree

# Functions that are built from `max`, `abs` or `where` and are smooth all the same.
_SMOOTH = frozenset(
    "log_softmax softmax logsumexp softplus logaddexp log_sigmoid gelu silu swish logistic _var "
    "_std norm standardize".split()
)

# What jumps, by what is most telling: a function's name says more than the primitives it is made
# of, and `where` is in almost everything.
_JUMP_IN_LOSS = ("round floor ceil sign argmax argmin".split(), ["where", "cond"])
_JUMP_IN_GRADIENT = (
    "relu relu6 leaky_relu hard_tanh hard_sigmoid hard_silu hard_swish selu clip "
    "sparse_plus median quantile".split(),
    "max-pooling min-pooling clamp maximum minimum max min sort cummax cummin".split(),
    ["elu", "celu", "abs"],
    ["where", "cond"],
)
_JUMP_IN_DERIVATIVE = (
    ["elu", "celu"],
    "huber_loss relu relu6 leaky_relu hard_silu hard_swish clip".split(),
    "max-pooling min-pooling clamp maximum minimum max min".split(),
    ["abs", "where", "cond"],
)
_NAMED = frozenset(
    name
    for tiers in (_JUMP_IN_LOSS, _JUMP_IN_GRADIENT, _JUMP_IN_DERIVATIVE)
    for tier in tiers
    for name in tier
)
_PRIMITIVES = {
    "reduce_window_max": "max-pooling",
    "reduce_window_min": "min-pooling",
    "max": "maximum",
    "min": "minimum",
    "reduce_max": "max",
    "reduce_min": "min",
    "select_n": "where",
}


def suspects(function: Callable[[PyTree], Any], params: PyTree, order: int) -> tuple[str, ...]:
    """The operations that may be why a loss is smooth to `order` only, the likely ones alone.

    An order of −1 means that the loss itself jumps, 0 that its gradient does, and so on.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> suspects(lambda theta: jnp.sum(jax.nn.relu(theta)), jnp.ones(3), 0)
        ('relu',)
    """
    found = list(dict.fromkeys(_operations(jax.make_jaxpr(function)(params).jaxpr)))
    tiers = {-1: _JUMP_IN_LOSS, 0: _JUMP_IN_GRADIENT}.get(order, _JUMP_IN_DERIVATIVE)
    for tier in tiers:
        names = [name for name in found if name in tier]
        if names:
            return tuple(names)
    return ()


def _operations(jaxpr: Any, named_only: bool = False) -> Iterator[str]:
    """The names of all operations that the result depends on, other than through constants."""
    for equation in _live(jaxpr):
        kind, name = str(equation.primitive.name), str(equation.params.get("name", ""))
        if name in _SMOOTH:
            continue
        if name in _NAMED:
            yield name
            continue
        if not named_only:
            yield _PRIMITIVES.get(kind, kind)
        # The body of a function with its own derivative says little: softplus contains `max`.
        inside = named_only or kind.startswith("custom_")
        for body in jax.tree.leaves(tuple(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(body):
                yield from _operations(getattr(body, "jaxpr", body), inside)


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


def _live(jaxpr: Any) -> list[Any]:
    """The equations that reach the result without passing through `stop_gradient`.

    So the maximum that a softmax subtracts is not among them.
    """
    needed, live = set(map(id, jaxpr.outvars)), []
    for equation in reversed(jaxpr.eqns):
        if not needed.intersection(map(id, equation.outvars)):
            continue
        live.append(equation)
        if equation.primitive.name != "stop_gradient":
            needed.update(map(id, equation.invars))
    return live[::-1]
