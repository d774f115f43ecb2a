"""What the experiments train: the paper's network on scikit-learn's digits."""

import jax.numpy as jnp
from jaxtyping import PyTree

from ..data.digits import digits
from ..networks.paper_network import cross_entropy, glorot_uniform
from ..problem.problem import Problem


def digits_network(
    hidden_widths: tuple[int, int] = (32, 32), weight_decay: float = 1e-2, seed: int = 7
) -> tuple[Problem, PyTree]:
    """The problem of the paper's network on the digits, and its initial weights.

    Args:
        hidden_widths: The widths of the two hidden layers.
        weight_decay: The weight decay λ.
        seed: The seed of the initial weights.
    """
    data = digits()
    widths = (data.inputs.shape[1], *hidden_widths, data.targets.shape[1])
    arrays = (jnp.asarray(data.inputs), jnp.asarray(data.targets))
    problem = Problem(cross_entropy, data=arrays, weight_decay=weight_decay)
    return problem, glorot_uniform(widths, seed)
