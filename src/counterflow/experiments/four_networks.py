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


def four_networks(smooth: bool = True) -> dict[str, tuple[Callable[..., Any], PyTree]]:
    """The loss and the initial params of each network, by name.

    Args:
        smooth: Whether the last two have SiLU as their activation, which is smooth, or ReLU.
    """
    silu = "silu" if smooth else "relu"
    networks = {
        "deep linear": Perceptron((_PIXELS, 16, 16, 16, _CLASSES), "linear"),
        "softplus": Perceptron((_PIXELS, 16, 16, _CLASSES), "softplus", bias=True),
        "convolutional": ConvolutionalNetwork(_SIDE, (4, 6), _CLASSES, silu),
        "transformer": TransformerBlock(_SIDE, 8, 4, 12, _CLASSES, silu),
    }
    return {name: (network, network.initial_params()) for name, network in networks.items()}


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
        bending: The networks to be looked at with ReLU too.
        bending_steps: For how many steps of descent,
        bending_rtol: and with what relative tolerance of gradient flow's solver.
    """

    learning_rates: tuple[tuple[str, float, float], ...] = (
        ("deep linear", 0.02, 0.2),
        ("softplus", 0.05, 0.5),
        ("convolutional", 0.1, 0.5),
        ("transformer", 0.02, 0.2),
    )
    images: int = 100
    steps: int = 300
    records: int = 20
    looks: int = 6
    orders: tuple[int, ...] = (0, 1, 2)
    weight_decay: float = 1e-3
    method: str = "orbit"
    rtol: float = 1e-7
    max_steps: int = 1500
    bending: tuple[str, ...] = ("convolutional", "transformer")
    bending_steps: int = 50
    bending_rtol: float = 1e-5


@dataclass(frozen=True)
class Row:
    """One network at one learning rate.

    Attributes:
        network: Which network.
        learning_rate: The learning rate η.
        suits: Whether it is the smaller of its two.
        smooth: Whether the loss is found to have the derivatives that the orders need.
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
class Bend:
    """Gradient flow of a network with one activation or another, at the learning rate that suits.

    Attributes:
        network: Which network.
        activation: Its activation.
        smooth: Whether the loss is found to have the derivatives that the orders need.
        solver_steps: How many steps the solver tried.
        relative_error: The relative error of gradient flow at the end.
        solver_error: How much of it may be the solver's.
    """

    network: str
    activation: str
    smooth: bool
    solver_steps: int
    relative_error: float
    solver_error: float


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold."""

    settings: FourNetworks
    rows: tuple[Row, ...]
    bends: tuple[Bend, ...]

    def row(self, network: str, *, suits: bool) -> Row:
        """What was found of one network."""
        (row,) = [row for row in self.rows if row.network == network and row.suits == suits]
        return row

    @property
    def claims(self) -> dict[str, bool]:
        good = [row for row in self.rows if row.suits]
        bad = [row for row in self.rows if not row.suits]
        return {
            "none of the four bends, and with ReLU they would": (
                all(row.smooth for row in self.rows)
                and all(bend.smooth == (bend.activation != "relu") for bend in self.bends)
            ),
            "where the learning rate suits, one counter term makes the error five times smaller": (
                all(row.last[1] < row.last[0] / 5 for row in good)
            ),
            "and a second halves it again": all(row.last[2] < row.last[1] / 2 for row in good),
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
    suiting = {name: rate for name, rate, _ in settings.learning_rates}
    cases |= {
        f"{name} with {activation}": partial(_bend, settings, name, suiting[name], activation)
        for name in settings.bending
        for activation in ("silu", "relu")
    }
    found = results_of(folder / "four_networks.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: FourNetworks, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    rows, bends = (
        [with_tuples(case) for case in found.values() if ("activation" in case) == bending]
        for bending in (False, True)
    )
    return Result(
        settings, tuple(Row(**row) for row in rows), tuple(Bend(**bend) for bend in bends)
    )


def _row(settings: FourNetworks, name: str, learning_rate: float, suits: bool) -> dict[str, Any]:
    problem, params = _problem(settings, name)
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
    size = compared.error[:, -1] / compared.relative_error[:, -1]
    row = Row(
        network=name,
        learning_rate=learning_rate,
        suits=suits,
        smooth=_is_smooth(settings, problem, params),
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


def _bend(
    settings: FourNetworks, name: str, learning_rate: float, activation: str
) -> dict[str, Any]:
    problem, params = _problem(settings, name, smooth=activation != "relu")
    compared = compare(
        problem,
        params,
        learning_rate,
        settings.bending_steps,
        (0,),
        records=1,
        predict=False,
        rtol=settings.bending_rtol,
        solver=diffrax.Tsit5(),
        max_steps=settings.max_steps,
    )
    cost = compared.statistics["flow 0"]
    size = compared.error[0, -1] / compared.relative_error[0, -1]
    bend = Bend(
        network=name,
        activation=activation,
        smooth=_is_smooth(settings, problem, params),
        solver_steps=cost.accepted_steps + cost.rejected_steps,
        relative_error=float(compared.relative_error[0, -1]),
        solver_error=float(compared.solver_error[0, -1] / size),
    )
    return asdict(bend)


def _problem(settings: FourNetworks, name: str, smooth: bool = True) -> tuple[Problem, PyTree]:
    loss, params = four_networks(smooth)[name]
    data = digits()
    arrays = tuple(jnp.asarray(part[: settings.images]) for part in (data.inputs, data.targets))
    return Problem(loss, data=arrays, weight_decay=settings.weight_decay), params


def _is_smooth(settings: FourNetworks, problem: Problem, params: PyTree) -> bool:
    gradient = problem.gradient(params)
    return check_smoothness(problem, params, gradient, max(settings.orders)).level == "ok"
