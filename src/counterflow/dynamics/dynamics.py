"""What the three dynamics share."""

import abc

from jaxtyping import PyTree

from ..problem.problem import Problem


class Dynamics(abc.ABC):
    """A way in which params move: in steps (`GradientDescent`) or along a flow (`Flow`).

    A dynamics is a pytree; its leaves pass through `jit` as arguments.
    """

    problem: Problem

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
