"""What the three dynamics share."""

import abc

import equinox as eqx
from jaxtyping import PyTree

from ..problem.problem import Problem


class Dynamics(eqx.Module):
    """A way in which params move: in steps (`GradientDescent`) or along a flow (`Flow`)."""

    problem: eqx.AbstractVar[Problem]

    @property
    @abc.abstractmethod
    def gradient_evaluations(self) -> int:
        """The cost of one step or one velocity, in gradients.

        A directional derivative of the gradient counts as two gradients.
        """


class Flow(Dynamics):
    """A differential equation `dθ/dt = velocity(θ)`."""

    @abc.abstractmethod
    def velocity(self, params: PyTree) -> PyTree:
        """The velocity `dθ/dt` at `params`, shaped like `params`."""
