"""Gradient descent from record to record, compiled once, without a trace of the steps between."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..dynamics.gradient_descent import GradientDescent
from ..problem.tree import norm
from .trajectory import divergence_bound


class DescentState(eqx.Module):
    """Where descent stands: everything needed to go on."""

    params: PyTree
    step: Int[Array, ""]
    size: Float[Array, ""]
    bound: Float[Array, ""]


def start_descent(params: PyTree) -> DescentState:
    """The state before the first step."""
    return DescentState(params, jnp.zeros((), jnp.int32), norm(params), divergence_bound(params))


# The state is not donated: its params are the user's own or a record that was handed out. From step
# to step XLA writes into the loop's own buffers; donated, they would be one copy fewer a record.
@eqx.filter_jit
def descend_to(descent: GradientDescent, state: DescentState, step: Int[Array, ""]) -> DescentState:
    """The state at a step number, or at the first step beyond the bound."""

    def unfinished(state):
        return (state.step < step) & (state.size <= state.bound)  # false if not a number

    def body(state):
        params = descent.step(state.params)
        return DescentState(params, state.step + 1, norm(params), state.bound)

    return jax.lax.while_loop(unfinished, body, state)


def steps_at(times: np.ndarray, learning_rate: Any) -> np.ndarray:
    """The step numbers of times; raises unless each is a multiple of the learning rate."""
    ratios = times / float(learning_rate)
    steps = np.rint(ratios)
    # As exact as a learning rate in single precision allows.
    off = np.abs(ratios - steps) > np.clip(2e-7 * steps, 1e-6, 0.1)
    if np.any(off):
        bad = times[off][0]
        nearest = float(steps[off][0] * learning_rate)
        raise ValueError(
            f"`times` must be multiples of the learning rate {float(learning_rate):g} for gradient "
            f"descent, which is at time kη after k steps, got {bad:g}: the nearest multiple is "
            f"{nearest:g}; write times as `learning_rate * np.arange(…)`"
        )
    if steps[-1] >= np.iinfo(np.int32).max:
        raise ValueError(f"at most 2³¹ − 2 steps can be run, got {int(steps[-1])}")
    return steps.astype(np.int32)
