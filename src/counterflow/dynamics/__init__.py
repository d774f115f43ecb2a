"""The three dynamics: gradient descent, gradient flow and the equation of motion."""

from .convergence import Convergence as Convergence
from .dynamics import (
    Dynamics as Dynamics,
    Flow as Flow,
)
from .equation_of_motion import EquationOfMotion as EquationOfMotion
from .gradient_descent import GradientDescent as GradientDescent
from .gradient_flow import GradientFlow as GradientFlow
