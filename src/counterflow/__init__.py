"""Predicts what gradient descent does to a neural network, by differential equations."""

from .counter_terms.checks.check_problem import (
    ProblemReport as ProblemReport,
    check_problem as check_problem,
)
from .counter_terms.checks.questions import Check as Check
from .counter_terms.counter_terms import (
    counter_term as counter_term,
    counter_terms as counter_terms,
)
from .dynamics.convergence import Convergence as Convergence
from .dynamics.dynamics import Dynamics as Dynamics, Flow as Flow
from .dynamics.equation_of_motion import EquationOfMotion as EquationOfMotion
from .dynamics.gradient_descent import GradientDescent as GradientDescent
from .dynamics.gradient_flow import GradientFlow as GradientFlow
from .errors.compare import compare as compare
from .errors.comparison import (
    ComparedPrediction as ComparedPrediction,
    Comparison as Comparison,
)
from .errors.elkabetz_cohen import (
    ElkabetzCohenBound as ElkabetzCohenBound,
    elkabetz_cohen_bound as elkabetz_cohen_bound,
)
from .errors.learning_rate_bound import (
    LearningRateBound as LearningRateBound,
    learning_rate_bound as learning_rate_bound,
)
from .errors.predict_error import (
    ErrorPrediction as ErrorPrediction,
    PredictedError as PredictedError,
    predict_error as predict_error,
)
from .problem.problem import Problem as Problem
from .report.plot import plot as plot
from .solvers.interruption import RunInterrupted as RunInterrupted
from .solvers.solve import solve as solve
from .solvers.trajectory import (
    SolveError as SolveError,
    SolveInterrupted as SolveInterrupted,
    Statistics as Statistics,
    Status as Status,
    Trajectory as Trajectory,
)
