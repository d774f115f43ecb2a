"""What `compare` returns: how far each flow is from gradient descent, record by record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ..solvers.trajectory import Statistics, Status
from .percent import percent

if TYPE_CHECKING:
    import xarray

Series = Float[np.ndarray, "orders records"]


@dataclass(frozen=True, eq=False)
class ComparedPrediction:
    """A prediction of the discretization error beside the measured one.

    Attributes:
        prediction: `‖e_k‖` as predicted.
        mismatch: `‖predicted − measured‖ / ‖measured‖`, of the vectors.
        uncertainty: The mismatch that the prediction expects of itself, from the next order.
    """

    prediction: Series
    mismatch: Series
    uncertainty: Series


@dataclass(frozen=True, eq=False)
class Comparison:
    """Gradient descent against the flows that are to predict it; arrays over (order, record).

    Where a flow could not be run to a record, its entries are NaN there; a mismatch is NaN where
    there is no error, as at step 0.

    Attributes:
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ.
        method: How the flows compute their velocities.
        orders: The orders γ, increasing.
        steps: The step numbers k of the records.
        error: The discretization error `‖e_k‖ = ‖θ(kη) − θ_k‖`.
        relative_error: `‖e_k‖ / ‖θ_k‖`.
        solver_error: How much of `error` may be the solver's own: the distance from the same flow
            solved to ten times the tolerance.
        solver_limited: Flags records where `error` is less than ten times `solver_error` or than
            rounding: there it says nothing about discretization.
        descent_loss: The loss `f(θ_k)` of descent at each record, NaN for a problem without one.
        flow_loss: The loss `f(θ(kη))` of each flow.
        predictions: By name: `local` and `propagated`, and `restarted_local` and
            `restarted_propagated`, which start from the error measured at the step `restart`.
        restart: The step at which the latter start, if any.
        status: How descent ended; `Status.COMPLETED` if every record was reached.
        flow_status: How the flow of each order ended.
        prediction_status: How the predictions for each order ended; after a failure they are NaN.
        rtol: The relative tolerance with which the flow of each order was solved.
        statistics: What every part cost, by name.
    """

    learning_rate: float
    weight_decay: float
    method: str
    orders: tuple[int, ...]
    steps: Int[np.ndarray, " records"]
    error: Series
    relative_error: Series
    solver_error: Series
    solver_limited: Bool[np.ndarray, "orders records"]
    descent_loss: Float[np.ndarray, " records"]
    flow_loss: Series
    predictions: Mapping[str, ComparedPrediction]
    restart: int | None
    status: Status
    flow_status: Mapping[int, Status]
    prediction_status: Mapping[int, Status]
    rtol: Mapping[int, float]
    statistics: Mapping[str, Statistics]

    @property
    def times(self) -> Float[np.ndarray, " records"]:
        """The times `kη` of the records."""
        return self.steps * self.learning_rate

    @property
    def best_order(self) -> int:
        """The order whose flow is the closest to descent at the last record."""
        return self.orders[int(np.nanargmin(self._last_errors()))]

    @property
    def useful_order(self) -> int:
        """The order at which more counter terms stop helping, at the last record.

        The first of the orders compared whose successor improves the error by less than a factor
        of 1.5. Along directions that contract, a series that diverges may go on to improve a flow
        a little: `best_order` counts that too.
        """
        return self.orders[useful_index(self._last_errors())]

    def _last_errors(self) -> np.ndarray:
        if not len(self.steps) or not np.isfinite(self.error[:, -1]).any():
            raise ValueError(
                "there is no best order: no flow was compared with gradient descent at a last "
                f"record; gradient descent {self.status}, flows {list(self.flow_status.values())}"
            )
        return self.error[:, -1]

    def to_xarray(self) -> "xarray.Dataset":
        """The comparison as an `xarray.Dataset` over (order, step), with descriptions and units."""
        import xarray  # takes a second to import

        both, steps = ("order", "step"), ("step",)
        variables: dict[str, tuple[Any, Any]] = {
            "error": (both, self.error),
            "relative_error": (both, self.relative_error),
            "solver_error": (both, self.solver_error),
            "solver_limited": (both, self.solver_limited),
            "flow_loss": (both, self.flow_loss),
            "descent_loss": (steps, self.descent_loss),
        }
        for name, predicted in self.predictions.items():
            for part in _PARTS:
                variables[f"{name}_{part}"] = (both, getattr(predicted, part))
        described = {
            name: (dims, values, {"units": "1", **_describe(name, self.restart)})
            for name, (dims, values) in variables.items()
        }
        coordinates = {
            "order": (
                "order",
                list(self.orders),
                _attributes("order γ of the flow", "how many counter terms it has"),
            ),
            "step": ("step", self.steps, _attributes("step k", "steps of gradient descent taken")),
            "time": ("step", self.times, _attributes("time t = kη", "step times learning rate")),
        }
        attributes = {
            "title": "Gradient descent compared with its equations of motion",
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "method": self.method,
            "status": str(self.status),
            "flow_status": [f"order {o}: {s}" for o, s in self.flow_status.items()],
            "prediction_status": [f"order {o}: {s}" for o, s in self.prediction_status.items()],
            "rtol": [self.rtol[order] for order in self.orders],
        }
        if self.restart is not None:
            attributes["restart"] = self.restart
        return xarray.Dataset(described, coordinates, attributes)

    def __repr__(self) -> str:
        heading, rows = self._table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join([heading, *lines, *self._notes()])

    def _repr_html_(self) -> str:
        heading, rows = self._table()
        body = "".join(
            "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"
            for tag, row in zip(["th", *["td"] * len(rows)], rows, strict=False)
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes())
        return f"<div><p>{escape(heading)}</p><table>{body}</table>{notes}</div>"

    def _table(self) -> tuple[str, list[list[str]]]:
        """What was compared, and the figures at the last record as rows of cells."""
        heading = (
            f"Comparison at η = {self.learning_rate:g}, λ = {self.weight_decay:g}, "
            f"{len(self.steps)} record{'s'[: len(self.steps) != 1]}; gradient descent {self.status}"
        )
        if not len(self.steps):
            return heading, []
        heading += f"\nat step {self.steps[-1]}, t = {self.times[-1]:g}:"
        columns = ["order", "error", "relative", "solver"]
        for name in self.predictions:
            columns += [name.replace("_", " "), "off by"]
        rows = [columns]
        for i, order in enumerate(self.orders):
            flag = "*" if self.solver_limited[i, -1] else ""
            row = [str(order), f"{self.error[i, -1]:.3g}{flag}"]
            row += [f"{self.relative_error[i, -1]:.2g}", f"{self.solver_error[i, -1]:.1g}"]
            for predicted in self.predictions.values():
                row += [f"{predicted.prediction[i, -1]:.3g}", _percent(predicted.mismatch[i, -1])]
            rows.append(row)
        return heading, rows

    def _notes(self) -> list[str]:
        notes = [
            f"{what}, order {order}: {status}: {status.remedy}"
            for what, ended in (
                ("flow", self.flow_status),
                ("predictions", self.prediction_status),
            )
            for order, status in ended.items()
            if status != Status.COMPLETED
        ]
        if self.status != Status.COMPLETED:
            notes.append(f"gradient descent {self.status}: {self.status.remedy}")
        if len(self.steps) and self.solver_limited[:, -1].any():
            notes.append("* limited by the solver or by rounding: pass a smaller `rtol`")
        return notes


def useful_index(errors: Sequence[float] | np.ndarray) -> int:
    """The index of the first error that the next one does not improve by a factor of 1.5.

    >>> useful_index([1.0, 0.1, 0.05, 0.04, 0.01])
    2
    """
    for index, (here, further) in enumerate(pairwise(errors)):
        # A flow that failed is no use; one that another follows it with is.
        if np.isfinite(here) and not here >= 1.5 * further:
            return index
    return len(errors) - 1


def _percent(value: float) -> str:
    return "" if np.isnan(value) else percent(value)


_DESCRIPTIONS = {
    "error": ("discretization error ‖e_k‖", "‖θ(kη) − θ_k‖ of the flow of each order"),
    "relative_error": ("relative discretization error", "‖θ(kη) − θ_k‖ / ‖θ_k‖"),
    "solver_error": (
        "solver error",
        "distance from the same flow solved to ten times the tolerance",
    ),
    "solver_limited": (
        "limited by the solver",
        "true where the error is less than ten times the solver's or than rounding",
    ),
    "flow_loss": ("loss of the flow", "f(θ(kη)), without weight decay"),
    "descent_loss": ("loss of gradient descent", "f(θ_k), without weight decay"),
    "local": ("local prediction", "the paper's sum: ∫ η^{γ+1} ξ̃_γ dt along the flow"),
    "propagated": ("propagated prediction", "ė = −(H + λI)e + η^{γ+1} ξ̃_γ along the flow"),
}
_PARTS = {
    "prediction": "predicted ‖e_k‖",
    "mismatch": "‖predicted − measured‖ / ‖measured‖, of the vectors",
    "uncertainty": "the mismatch that the prediction expects, from the next order",
}


def _attributes(long_name: str, description: str = "") -> dict[str, str]:
    described = {"description": description} if description else {}
    return {"long_name": long_name, "units": "1", **described}


def _describe(name: str, restart: int | None) -> dict[str, str]:
    if name in _DESCRIPTIONS:
        return _attributes(*_DESCRIPTIONS[name])
    kind, part = name.rsplit("_", 1)
    long_name, description = _DESCRIPTIONS[kind.removeprefix("restarted_")]
    if kind.startswith("restarted_"):
        long_name = f"{long_name} from step {restart}"
        description += f", from the error measured at step {restart}"
    return _attributes(f"{long_name}: {part}", f"{_PARTS[part]}; {description}")
