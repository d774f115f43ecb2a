"""Every experiment by name, in the order of the report."""

from collections.abc import Iterable

from ..runs.analysis import Analysis
from ..runs.run import Run
from .beyond import equilibrium, seeds, sharpness
from .experiment import Experiment
from .own import (
    charges,
    convergence,
    errors,
    learning_rates,
    predictions,
    problem_check,
    sharpness as own_sharpness,
    symmetries as own_symmetries,
)
from .paper import (
    figure1,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    figure7,
    figure8,
    figure9,
    figure10,
    figure11,
    figure12,
    symmetries,
    table1,
)

_MODULES = (
    figure1,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    table1,
    figure7,
    figure8,
    figure9,
    figure10,
    figure11,
    figure12,
    equilibrium,
    sharpness,
    seeds,
)

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES
}


#: What is asked about one's own problem, in the order of the report.
OWN = tuple(
    module.EXPERIMENT
    for module in (
        problem_check,
        own_symmetries,
        convergence,
        errors,
        predictions,
        learning_rates,
        charges,
        own_sharpness,
    )
)


def with_symmetries(experiments: Iterable[Experiment]) -> tuple[Experiment, ...]:
    """Experiments of the paper, after the look at its network's symmetries that all rest on."""
    return (symmetries.EXPERIMENT, *experiments)


def experiments_of(run: Run) -> tuple[Experiment, ...]:
    """All experiments that a run is about."""
    if isinstance(run.configuration, Analysis):
        return OWN
    return with_symmetries(EXPERIMENTS.values())
