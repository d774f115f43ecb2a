"""What the paper trains: its network on images, for every weight decay and seed."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...data.dataset import DataError, Dataset
from ...networks.blocks import in_blocks
from ...networks.paper_network import cross_entropy, glorot_uniform
from ...problem.problem import Problem
from ...problem.sharding import everywhere
from ...runs.configuration import Configuration
from ...runs.training import Training
from ..experiment import Setting

#: The layers of the paper's network whose charges are followed.
SCALE_INVARIANT, TRANSLATION_INVARIANT = "hidden", "readout"
# From so many numbers on, data are arranged for fast gradients.
_MANY = 1_000_000


@dataclass(frozen=True, eq=False)
class PaperSetting(Setting):
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
        wanted, there = self.configuration.samples, len(self.dataset.targets)
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
        pixels, classes = self.dataset.pixels.shape[1], self.dataset.targets.shape[1]
        widths = (pixels, *self.configuration.hidden_widths, classes)
        problem = Problem(cross_entropy, data=arrays, weight_decay=weight_decay)
        return problem, glorot_uniform(widths, seed)

    def _arrays(self, samples: int | None) -> tuple[Any, ...]:
        if samples not in self._on_device:
            inputs, targets = self.dataset.inputs[:samples], self.dataset.targets[:samples]
            self._on_device[samples] = _arranged(inputs, targets)
        return self._on_device[samples]

    def start(self, training: Training) -> tuple[Problem, PyTree]:
        """The problem of a training and its initial weights."""
        seed = self.configuration.seed if training.seed is None else training.seed
        return self.problem(training.weight_decay, seed)

    def observables(self, params: PyTree) -> dict[str, float]:
        """The charges of the symmetric layers: squared norm, and sum of weights with its length."""
        return {name: float(value) for name, value in _observables(params).items()}


def _arranged(inputs: np.ndarray, targets: np.ndarray) -> tuple[Any, ...]:
    """The data of a problem, as gradients of it are fastest."""
    if inputs.size > _MANY and jax.device_count() == 1 and jax.default_backend() == "cpu":
        blocks, order = in_blocks(inputs)
        return blocks, jnp.asarray(targets[order])
    arrays = everywhere((inputs, targets))
    # Blocks cannot be cut evenly for many devices, and are a processor's; the transpose saves a
    # fifth.
    return (*arrays, _transpose(arrays[0])) if inputs.size > _MANY else arrays


_transpose = jax.jit(jnp.transpose)


@eqx.filter_jit
def _observables(params: PyTree) -> dict[str, Any]:
    readout = params[TRANSLATION_INVARIANT]
    total = jnp.sum(readout)
    return {
        "squared_norm": jnp.sum(params[SCALE_INVARIANT] ** 2),
        "sum_of_weights": total,
        "perpendicular": jnp.abs(total) / jnp.sqrt(readout.size),
    }
