"""Four networks that the paper does not have: what the flows say of them, and where they fail."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import diffrax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..counter_terms.checks.questions import check_smoothness
from ..data.digits import digits
from ..dynamics.convergence import measure_convergence
from ..dynamics.gradient_descent import GradientDescent
from ..errors.compare import compare
from ..errors.curvature import sharpness
from ..networks.convolutional import ConvolutionalNetwork
from ..networks.perceptron import Perceptron
from ..networks.transformer import TransformerBlock
from ..problem.problem import Problem
from ..solvers.solve import solve
from ..symmetries.find_symmetries import find_symmetries
from .cases import Progress, Verdict, results_of, silent, with_tuples

_PIXELS, _SIDE, _CLASSES = 64, 8, 10


def four_networks() -> dict[str, tuple[Callable[..., Any], PyTree]]:
    """The loss and the initial params of each network, by name."""
    networks = {
        "deep linear": Perceptron((_PIXELS, 16, 16, 16, _CLASSES), "linear"),
        "softplus": Perceptron((_PIXELS, 16, 16, _CLASSES), "softplus", bias=True),
        "convolutional": ConvolutionalNetwork(_SIDE, filters=(4, 6), classes=_CLASSES),
        "transformer": TransformerBlock(_SIDE, width=8, head=4, hidden=12, classes=_CLASSES),
    }
    return {name: (network, network.initial_params()) for name, network in networks.items()}


# The networks whose loss bends, at the kinks of ReLU.
BENDING = ("convolutional", "transformer")


@dataclass(frozen=True)
class FourNetworks:
    """The settings.

    Attributes:
        learning_rates: Of each network, a learning rate η that suits and one that is too large.
        images: How many of scikit-learn's digits the losses are means over.
        steps: The number of steps of gradient descent.
        records: At how many of them the flows are compared with it.
        looks: At how many of those the series and the sharpness are measured.
        orders: The orders γ of the flows.
        weight_decay: The weight decay λ.
        method: How counter terms are computed; by default from gradients alone.
        rtol: The relative tolerance of the flows' solver.
        max_steps: How many steps it may try.
    """

    learning_rates: tuple[tuple[str, float, float], ...] = (
        ("deep linear", 0.02, 0.2),
        ("softplus", 0.05, 0.5),
        ("convolutional", 0.2, 0.5),
        ("transformer", 0.02, 0.2),
    )
    images: int = 200
    steps: int = 300
    records: int = 20
    looks: int = 6
    orders: tuple[int, ...] = (0, 1, 2)
    weight_decay: float = 1e-3
    method: str = "orbit"
    rtol: float = 1e-7
    max_steps: int = 10_000


@dataclass(frozen=True)
class Row:
    """One network at one learning rate.

    Attributes:
        network: Which network.
        learning_rate: The learning rate η.
        suits: Whether it is the smaller of its two.
        smooth: Whether the loss is found to have the derivatives that order 2 needs.
        symmetries: The symmetries found at the start, as they are written.
        descent: How descent ended.
        loss: The loss at the start and at the end of descent.
        steps: The records, as steps.
        relative_errors: Of every order at every record; NaN where the flow failed.
        solver_errors: How much of the last of these may be the solver's.
        flows: How every flow ended.
        stability: `η/2` times the sharpness at some points of descent: above 1 it is not stable.
        best_orders: The best order at these points, by the series.
        verdict: What the series says at the start.
    """

    network: str
    learning_rate: float
    suits: bool
    smooth: bool
    symmetries: tuple[str, ...]
    descent: str
    loss: tuple[float, float]
    steps: tuple[int, ...]
    relative_errors: tuple[tuple[float, ...], ...]
    solver_errors: tuple[float, ...]
    flows: tuple[str, ...]
    stability: tuple[float, ...]
    best_orders: tuple[int, ...]
    verdict: str

    @property
    def last(self) -> tuple[float, ...]:
        """The relative error of every order at the last record."""
        return tuple(errors[-1] for errors in self.relative_errors)


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold."""

    settings: FourNetworks
    rows: tuple[Row, ...]

    def row(self, network: str, *, suits: bool) -> Row:
        """What was found of one network."""
        (row,) = [row for row in self.rows if row.network == network and row.suits == suits]
        return row

    @property
    def claims(self) -> dict[str, bool]:
        good = [row for row in self.rows if row.suits]
        bad = [row for row in self.rows if not row.suits]
        return {
            "only the networks with ReLU bend": all(
                row.smooth != (row.network in BENDING) for row in self.rows
            ),
            "where the learning rate suits, one counter term makes the error five times smaller": (
                all(row.last[1] < row.last[0] / 5 for row in good)
            ),
            "and a second halves it again, where the loss is smooth": all(
                row.last[2] < row.last[1] / 2 for row in good if row.smooth
            ),
            "where it is too large, some verdict along the run says so": all(
                min(row.best_orders) < max(self.settings.orders) for row in bad
            ),
        }


def run(settings: FourNetworks, folder: Path, progress: Progress = silent) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `four_networks.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many runs are done and to do.
    """
    cases = {
        f"{name}, learning rate {rate:g}": partial(_row, settings, name, rate, suits)
        for name, *rates in settings.learning_rates
        for rate, suits in zip(rates, (True, False), strict=True)
    }
    found = results_of(folder / "four_networks.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: FourNetworks, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    return Result(settings, tuple(Row(**with_tuples(row)) for row in found.values()))


def _row(settings: FourNetworks, name: str, learning_rate: float, suits: bool) -> dict[str, Any]:
    loss, params = four_networks()[name]
    data = digits()
    arrays = tuple(jnp.asarray(part[: settings.images]) for part in (data.inputs, data.targets))
    problem = Problem(loss, data=arrays, weight_decay=settings.weight_decay)
    compared = compare(
        problem,
        params,
        learning_rate,
        settings.steps,
        settings.orders,
        records=settings.records,
        predict=False,
        method=settings.method,
        rtol=settings.rtol,
        solver=diffrax.Tsit5(),
        max_steps=settings.max_steps,
    )
    looks = np.unique(np.rint(np.linspace(0, settings.steps, settings.looks)).astype(int))
    descent = solve(
        GradientDescent(problem, learning_rate), params, looks * learning_rate, throw=False
    )
    points = [descent.at(record) for record in range(len(descent.times))]
    terms = max(settings.orders) + 2
    series = [
        measure_convergence(problem, point, learning_rate, terms, settings.method)
        for point in points
    ]
    gradient = problem.gradient(params)
    smoothness = check_smoothness(problem, params, gradient, max(settings.orders))
    size = compared.error[:, -1] / compared.relative_error[:, -1]
    row = Row(
        network=name,
        learning_rate=learning_rate,
        suits=suits,
        smooth=smoothness.level == "ok",
        symmetries=tuple(map(repr, find_symmetries(problem, params))),
        descent=str(descent.status),
        loss=(float(problem.loss(points[0])), float(problem.loss(points[-1]))),
        steps=tuple(int(step) for step in compared.steps),
        relative_errors=tuple(tuple(map(float, errors)) for errors in compared.relative_error),
        solver_errors=tuple(map(float, compared.solver_error[:, -1] / size)),
        flows=tuple(str(status) for status in compared.flow_status.values()),
        stability=tuple(learning_rate * sharpness(problem, point).value / 2 for point in points),
        best_orders=tuple(found.best_order for found in series),
        verdict=series[0].verdict,
    )
    return asdict(row)
