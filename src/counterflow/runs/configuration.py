"""The configuration of a run: everything its numbers depend on, and nothing else."""

import json
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from math import isfinite
from typing import Any, Literal, get_args

from ..data.dataset import Name as Data
from ..solvers.requirements import MOST_STEPS
from .fields import Settings, from_fields

# Orders beyond this are of no use: rounding and the series' own divergence come before.
_MOST_ORDERS = 9

Size = Literal["quick", "standard", "full"]


@dataclass(frozen=True)
class Configuration:
    """The settings of the paper's experiments, on one data set.

    Attributes:
        size: How much is computed; the further settings then have other defaults. quick: some
            hundred steps. standard: some thousand. full: all learning rates to t = 50.
        data: The images to train on: all of the training set, as one batch.
        samples: How many of the images to take, the first ones; by default all.
        hidden_widths: The widths of the network's two hidden layers.
        seed: The seed of the initial weights (Glorot uniform).
        learning_rates: The learning rates η.
        weight_decays: The weight decays λ; errors are predicted at the first of them.
        steps: The steps of gradient descent, a number for each learning rate.
        large_learning_rate: A learning rate beyond what descent is stable at, at the last of the
            weight decays.
        large_steps: The steps of gradient descent at that learning rate.
        orders: The orders γ of the flows: 0 is gradient flow, 1 the paper's equation of motion.
        records: At how many steps of each run it is compared and saved.
        restart: The step from which the error is predicted once more (Figures 2 and 12).
        rtol: The relative tolerance of the flows; by default far below the error of each.
        seeds: Further seeds for the spread over initial weights, at the middle learning rate.
        long_steps: The steps of the long run to the equilibrium of the scale-invariant layer.
        long_samples: How many of the images the long run takes.
    """

    size: Size = "quick"
    data: Data = "digits"
    samples: int | None = None
    hidden_widths: tuple[int, int] = (32, 32)
    seed: int = 7
    learning_rates: tuple[float, ...] = (1e-1, 1e-2, 1e-3)
    weight_decays: tuple[float, ...] = (1e-2, 1e-3)
    steps: tuple[int, ...] = (200, 500, 500)
    large_learning_rate: float = 1.0
    large_steps: int = 10
    orders: tuple[int, ...] = (0, 1, 2)
    records: int = 40
    restart: int = 100
    rtol: float | None = None
    seeds: tuple[int, ...] = (8, 9, 10, 11)
    long_steps: int = 6_000
    long_samples: int = 2_000

    def require_valid(self) -> None:
        """Raises unless every setting makes sense, naming the one that does not."""
        for name, allowed in (("size", Size), ("data", Data)):
            if getattr(self, name) not in get_args(allowed):
                given = getattr(self, name)
                raise ValueError(f"`{name}` must be one of {get_args(allowed)}, got {given!r}")
        require_counts("hidden_widths", self.hidden_widths, 2)
        for name in ("learning_rates", "weight_decays"):
            _require_distinct(name, getattr(self, name))
            for value in getattr(self, name):
                require_positive(name, value)
        require_counts("steps", self.steps, len(self.learning_rates))
        if list(self.learning_rates) != sorted(self.learning_rates, reverse=True):
            raise ValueError(
                f"`learning_rates` must be given from the largest on, got {self.learning_rates}"
            )
        require_positive("large_learning_rate", self.large_learning_rate)
        if self.large_learning_rate <= self.learning_rates[0]:
            raise ValueError(
                f"`large_learning_rate` must be larger than all of `learning_rates`, got "
                f"{self.large_learning_rate:g}: it is one beyond them"
            )
        product = max(*self.learning_rates, self.large_learning_rate) * max(self.weight_decays)
        if product >= 1:
            raise ValueError(
                f"`learning_rates` times `weight_decays` must be below 1, got {product:g}: from "
                "there on the weights that the loss does not see alternate instead of decaying"
            )
        require_rtol(self.rtol)
        require_orders(self.orders, {0, 1})
        for name in ("large_steps", "records", "restart", "long_steps", "long_samples"):
            require_counts(name, (getattr(self, name),), 1)
        if self.restart >= min(self.steps):
            raise ValueError(
                f"`restart` must be a step before the end of every run, got {self.restart} with "
                f"steps {self.steps}"
            )
        for name in ("samples", "long_samples"):
            if getattr(self, name) is not None and getattr(self, name) < 2:
                raise ValueError(
                    f"`{name}` must be at least 2, got {getattr(self, name)}: the network "
                    "normalizes over the images"
                )
        seeds = (self.seed, *self.seeds)
        if min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise ValueError(
                f"`seed` and `seeds` must be different numbers that are not negative, got "
                f"{self.seed} and {self.seeds}"
            )

    @property
    def name(self) -> str:
        """A name that no other configuration has, for the folder of its run."""
        digest = sha256(self.to_json().encode()).hexdigest()
        return f"{self.data}-{self.size}-{digest[:8]}"

    def to_json(self) -> str:
        """The configuration as JSON, which `from_json` reads."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> "Configuration":
        """The configuration that `to_json` wrote.

        >>> Configuration.from_json(Configuration(seed=3).to_json()) == Configuration(seed=3)
        True
        """
        return from_json(Configuration, text)


_STEPS = {"quick": (200, 500, 500), "standard": (500, 2000, 2000), "full": (500, 5000, 50_000)}


def default_configuration(size: Size = "quick", data: Data = "digits") -> Configuration:
    """The settings of a size for a data set.

    >>> default_configuration("standard", "mnist").steps
    (500, 2000, 2000)
    """
    chosen = Configuration(size=size, data=data, steps=_STEPS[size])
    if size != "quick":
        chosen = replace(chosen, records=100, long_steps=50_000)
    if data != "digits":
        # A seed more costs as much as the rest of a figure; the paper has one.
        chosen = replace(chosen, hidden_widths=(100, 100), orders=(0, 1), seeds=())
    return chosen


def from_json(kind: type[Settings], text: str) -> Settings:
    """The settings of a kind, a frozen dataclass, that were written as JSON.

    Raises:
        ValueError: If the text is not the JSON of such settings.
    """
    try:
        stored = json.loads(text)
    except RecursionError as error:
        raise ValueError("a configuration must be plain JSON, got one nested too deeply") from error
    return from_fields(kind, stored)


def require_positive(name: str, value: float) -> None:
    """Raises unless a setting is a positive number."""
    if not (isfinite(value) and value > 0):
        raise ValueError(f"`{name}` must be positive, got {value:g}")


def _require_distinct(name: str, values: tuple[Any, ...]) -> None:
    if not values or len(set(values)) < len(values):
        raise ValueError(f"`{name}` must be one or more different values, got {values}")


def require_counts(name: str, values: tuple[int, ...], count: int) -> None:
    """Raises unless a setting is so many whole numbers that can be counted to."""
    if len(values) != count or not all(1 <= value <= MOST_STEPS for value in values):
        raise ValueError(
            f"`{name}` must be {count} whole number{'s'[: count != 1]} from 1 to {MOST_STEPS}, got "
            f"{values if count != 1 or len(values) != 1 else values[0]}"
        )


def require_rtol(rtol: float | None) -> None:
    """Raises unless flows can be solved to a tolerance."""
    if rtol is not None and not 1e-14 <= rtol <= 1e-2:
        raise ValueError(
            f"`rtol` must be from 1e-14, which double precision allows, to 0.01, got {rtol:g}"
        )


def require_orders(orders: tuple[int, ...], needed: set[int]) -> None:
    """Raises unless orders are different, contain those that are compared, and are not too many."""
    _require_distinct("orders", orders)
    if not needed <= set(orders) <= set(range(_MOST_ORDERS)):
        names = {0: "0 (gradient flow)", 1: "1 (the paper's equation of motion)"}
        said = " and ".join(names[order] for order in sorted(needed))
        raise ValueError(
            f"`orders` must contain {said}, which others are compared with, and none below 0 or "
            f"beyond {_MOST_ORDERS - 1}, got {orders}"
        )
