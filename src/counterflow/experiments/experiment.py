"""An experiment: which trainings and results it needs, and what it makes of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from ..data.dataset import DataError, Dataset
from ..networks.paper_network import cross_entropy, glorot_uniform
from ..problem.problem import Problem
from ..runs.configuration import Configuration
from ..runs.run import Run
from ..runs.training import Training
from .finding import Finding

# From so many numbers on, data are kept transposed too.
_MANY = 1_000_000


@dataclass(frozen=True, eq=False)
class Setting:
    """The paper's network on data: what is trained, for every weight decay and seed.

    Attributes:
        configuration: The configuration.
        dataset: Its data.

    Raises:
        DataError: If there are fewer images than the configuration asks for.
    """

    configuration: Configuration
    dataset: Dataset
    _on_device: dict[int | None, tuple[Any, ...]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        wanted, there = self.configuration.samples, len(self.dataset.inputs)
        if wanted is not None and wanted > there:
            raise DataError(
                f"`samples` must be at most {there}, as many images as {self.configuration.data} "
                f"has, got {wanted}"
            )

    def problem(
        self, weight_decay: float, seed: int, samples: int | None = None
    ) -> tuple[Problem, PyTree]:
        """The problem and its initial weights.

        Args:
            weight_decay: The weight decay λ.
            seed: The seed of the initial weights.
            samples: How many of the images to take, if not as many as the configuration says.
        """
        arrays = self._arrays(samples or self.configuration.samples)
        inputs, targets = arrays[:2]
        widths = (inputs.shape[1], *self.configuration.hidden_widths, targets.shape[1])
        problem = Problem(cross_entropy, data=arrays, weight_decay=weight_decay)
        return problem, glorot_uniform(widths, seed)

    def _arrays(self, samples: int | None) -> tuple[Any, ...]:
        if samples not in self._on_device:
            inputs, targets = self.dataset.inputs[:samples], self.dataset.targets[:samples]
            # Of many images also the transpose, with which a gradient takes a fifth less.
            more = (jnp.asarray(inputs.T.copy()),) if inputs.size > _MANY else ()
            self._on_device[samples] = (jnp.asarray(inputs), jnp.asarray(targets), *more)
        return self._on_device[samples]


def no_trainings(configuration: Configuration) -> tuple[Training, ...]:
    """For an experiment that needs none."""
    del configuration
    return ()


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper, or in its manner.

    Attributes:
        name: The name to ask for it by.
        finding: What it finds in a run that has what it needs.
        trainings: The trainings it needs.
        results: By name, the results it needs besides; functions that compute them as JSON values.
    """

    name: str
    finding: Callable[[Run], Finding]
    trainings: Callable[[Configuration], tuple[Training, ...]] = no_trainings
    results: Mapping[str, Callable[[Setting], Any]] | None = None
