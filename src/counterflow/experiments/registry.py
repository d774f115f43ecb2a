"""Every experiment by name, in the order of the report."""

from .beyond import equilibrium, seeds, sharpness
from .experiment import Experiment
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
