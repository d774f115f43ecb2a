"""Predicts what gradient descent does to a neural network, by differential equations."""

from . import equinox as equinox
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
from .monitor.monitor import Monitor as Monitor
from .problem.problem import Problem as Problem
from .problem.sharding import shard as shard
from .report.charge_plot import plot_charges as plot_charges
from .report.plot import plot as plot
from .runs.database import StoreError as StoreError
from .runs.run import Run as Run, TrainingSeries as TrainingSeries, open_run as open_run
from .solvers.fast_forward import FastForward as FastForward, fast_forward as fast_forward
from .solvers.interruption import RunInterrupted as RunInterrupted
from .solvers.rock4 import ROCK4 as ROCK4
from .solvers.solve import solve as solve
from .solvers.stabilized_adams import StabilizedAdams as StabilizedAdams
from .solvers.trajectory import (
    SolveError as SolveError,
    SolveInterrupted as SolveInterrupted,
    Statistics as Statistics,
    Status as Status,
    Trajectory as Trajectory,
)
from .sweeps.sweep import Sweep as Sweep, open_sweep as open_sweep
from .symmetries.charge_velocity import (
    ChargeVelocity as ChargeVelocity,
    charge_after_step as charge_after_step,
    charge_velocity as charge_velocity,
)
from .symmetries.compare_charges import (
    ChargeComparison as ChargeComparison,
    compare_charges as compare_charges,
)
from .symmetries.conservation_law import (
    ConservationLaw as ConservationLaw,
    conservation_law as conservation_law,
)
from .symmetries.custom import CustomSymmetry as CustomSymmetry
from .symmetries.decay_rate import decay_rate as decay_rate
from .symmetries.equilibrium import Equilibrium as Equilibrium, equilibrium as equilibrium
from .symmetries.find_symmetries import (
    FoundSymmetries as FoundSymmetries,
    FoundSymmetry as FoundSymmetry,
    find_symmetries as find_symmetries,
)
from .symmetries.fixed_point import (
    FixedPoint as FixedPoint,
    equilibrium_angle as equilibrium_angle,
    equilibrium_radius as equilibrium_radius,
)
from .symmetries.predict_charge import (
    ChargePrediction as ChargePrediction,
    predict_charge as predict_charge,
)
from .symmetries.rescale import Rescale as Rescale
from .symmetries.scale import Scale as Scale
from .symmetries.scale_motion import (
    EffectiveLearningRate as EffectiveLearningRate,
    angular_update as angular_update,
    direction_velocity as direction_velocity,
    effective_learning_rate as effective_learning_rate,
)
from .symmetries.symmetry import Symmetry as Symmetry
from .symmetries.translation import Translation as Translation
from .symmetries.translation_motion import (
    parallel_velocity as parallel_velocity,
    perpendicular_velocity as perpendicular_velocity,
)
