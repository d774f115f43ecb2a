"""A monitor inside a training loop: how far it is from gradient flow, every so many steps."""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..dynamics.equation_of_motion import EquationOfMotion
from ..errors.curvature import sharpness
from ..errors.predict_error import PredictionRunner
from ..problem.numbers import require_learning_rate
from ..problem.problem import Problem
from ..problem.requirements import as_params, require_problem
from ..problem.tree import on_device, rounding_of
from ..solvers.choice import suitable_solver
from ..solvers.requirements import require_steps
from ..solvers.trajectory import Status
from ..symmetries.find_symmetries import find_symmetries
from ..symmetries.requirements import require_symmetry
from ..symmetries.symmetry import Symmetry
from .quantities import (
    CURVATURE,
    DESCRIPTIONS,
    GRADIENT_CHANGE,
    LOOK_COSTS,
    Sight,
    errors_of,
    look,
    named,
    of_different_names,
)
from .requirements import require_budget, require_log, require_step, require_symmetries

if TYPE_CHECKING:
    import xarray

# The flow is solved to a few percent of the error that is to be measured: with a tolerance rtol it
# is off by a hundredth of that at most (the paper's network on digits, η from 1e-4 to 1e-2).
_RTOL_PER_ERROR, _RTOL_MOST, _RTOL_LEAST = 10.0, 3e-4, 1e-7
# The first search for the sharpness takes some twenty products with the Hessian.
_FIRST_PRODUCTS = 20
# The gradients of one step of a classical solver for the error equation.
_STEP_COSTS = 18


class Monitor:
    """Watches a training loop that is run as always, and says how far it is from gradient flow.

    Called at every step, it does nothing but at every n-th, where it records a flat dictionary of
    floats: loss, norms, `counter_term_ratio`, and, as far as its budget goes, the sharpness and the
    error of gradient flow since the last record, predicted and measured (docs/monitor.md lists
    all). What is not in a record was not measured, and `notes` says why if something failed or
    waits: a monitor never ends a training, except by errors in how it is called.

    A record takes three gradients. The sharpness, some 5 to 20 products with the Hessian, and the
    prediction are made as often as the budget pays for them.

    Args:
        problem: The problem that the loop solves, with its weight decay.
        learning_rate: The η of the loop.
        every: Records are made at steps that this divides.
        log: Called with the step and the dictionary of every record.
        symmetries: The layers to watch, such as `Scale("hidden", axis=1)`; or `"find"`, to have
            `find_symmetries` look for them at the first record, also for those that hold nearly.
        budget: How many gradients the monitor may spend for each step of the loop, on average.
            Sharpness and prediction wait until they can be paid for; `math.inf` has both at every
            record, 0 at none.
        predict: Whether to predict and to measure the error of gradient flow.

    Attributes:
        records: What was recorded, by step.
        notes: Why something was not measured, and what is only nearly symmetric, by step. What
            waits for its budget is told once.
        gradient_evaluations: What it cost so far, a product with the Hessian counted as two.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4)
        >>> monitor = cf.Monitor(problem, 0.01, every=100, budget=1.0)
        >>> theta = jnp.array([1.0, 0.5])
        >>> for step in range(201):
        ...     monitor(step, theta)
        ...     theta = theta - 0.01 * problem.gradient(theta)
        >>> for step, record in monitor.records.items():
        ...     print(f"{step:3}: {record['counter_term_ratio']:.4f}")
          0: 0.0149
        100: 0.0048
        200: 0.0028
        >>> last = monitor.records[200]
        >>> print(f"{last['measured_error']:.2e}, predicted {last['propagated_error']:.2e}")
        3.54e-04, predicted 3.53e-04
    """

    def __init__(
        self,
        problem: Problem,
        learning_rate: Any,
        *,
        every: int = 1000,
        log: Callable[[int, dict[str, float]], Any] | None = None,
        symmetries: Iterable[Symmetry] | str = (),
        budget: float | int = 0.08,
        predict: bool = True,
    ):
        self.every = require_steps(every, "every")
        self.budget = require_budget(budget)
        self.records: dict[int, dict[str, float]] = {}
        self.notes: dict[int, str] = {}
        self.gradient_evaluations = 0
        self._problem: Problem = on_device(require_problem(problem))
        self._log, self._predict = require_log(log), predict
        self._symmetries = require_symmetries(symmetries)
        self._layers: tuple[tuple[str, Symmetry], ...] = ()
        # Those given since the last record: one that changes has no prediction.
        self._learning_rates: list[Any] = [require_learning_rate(learning_rate)]
        # What may be spent, with the first record paid in advance.
        self._account = self.budget * self.every
        self._before: tuple[int, Sight] | None = None  # the last record, if it was finite
        self._structure: Any = None
        self._step: int | None = None
        self._direction: np.ndarray | None = None
        self._sharpness_costs: float | None = None
        self._prediction_costs: float | None = None  # per step of the loop
        self._waiting: set[str] = set()  # what was told to wait for its budget

    def __call__(self, step: Any, params: Any, learning_rate: Any = None) -> None:
        """Records where the loop stands if `step` is one to record, and does nothing else.

        Args:
            step: The number of steps taken so far; increasing from call to call.
            params: The params at this step, or a function without arguments that returns them,
                which is called only if they are to be recorded.
            learning_rate: The η of the next step, if it is not the one before. Errors since the
                last record are left out where it changed in between.
        """
        step = require_step(step)
        if self._step is not None and step <= self._step:
            raise ValueError(
                f"`step` must increase from call to call, got {step} after {self._step}: another "
                "training needs a monitor of its own"
            )
        self._step = step
        if step % self.every == 0:
            self._record(step, params, learning_rate)
        elif learning_rate is not None:
            self._learning_rates.append(learning_rate)

    def _record(self, step: int, params: Any, learning_rate: Any) -> None:
        params = self._read(params)
        used = {float(rate) for rate in self._learning_rates}
        rate = float(self._learning_rates[-1] if learning_rate is None else learning_rate)
        self._learning_rates = [rate]
        if self.records:
            self._account += self.budget * (step - next(reversed(self.records)))
        reasons: list[str] = []
        if not self.records:
            # Here errors are raised: they tell that problem, params or symmetries do not fit.
            self._layers = self._watched(params, reasons)
            values = self._measure(step, params, rate, used, reasons)
        else:
            values = _attempt(
                "the record", lambda: self._measure(step, params, rate, used, reasons), reasons
            )
        self.records[step] = {name: values[name] for name in sorted(values, key=_place)}
        if reasons:
            self.notes[step] = "; ".join(reasons)
        if self._log is not None:
            self._log(step, dict(self.records[step]))

    def _measure(
        self, step: int, params: PyTree, rate: float, used: set[float], reasons: list[str]
    ) -> dict[str, float]:
        """Everything that is to be recorded; what cannot be measured is left out."""
        before, self._before = self._before, None
        start = Sight(params, params) if before is None else before[1]
        found, gradient = look(
            self._problem, self._layers, params, start, jnp.asarray(np.float64(rate))
        )
        self._spend(LOOK_COSTS)
        values = {name: float(value) for name, value in jax.device_get(found).items()}
        values["learning_rate"] = rate
        change, curvature = values.pop(GRADIENT_CHANGE), values.pop(CURVATURE)
        if before is None:
            values = {name: value for name, value in values.items() if not name.endswith("/angle")}
        if not (math.isfinite(values["gradient_norm"]) and math.isfinite(values["params_norm"])):
            reasons.append("the params or the gradient are not finite: the loop has diverged")
            return values
        self._before = step, Sight(params, gradient)
        values |= _attempt("the sharpness", lambda: self._sharpness(params, rate, reasons), reasons)
        if before is None:
            return values
        if len(used) > 1:
            reasons.append("the learning rate changed since the last record: errors are left out")
            return values
        (rate,) = used
        errors = {"local_error": rate / 2 * change}
        if self._predict:
            size = errors["local_error"] / (values["params_norm"] or 1)
            curvature = max(values.get("sharpness", 0), curvature)
            steps = step - before[0]
            errors |= _attempt(
                "the prediction",
                lambda: self._errors(before[1], params, steps, rate, curvature, size, reasons),
                reasons,
            )
        relative = {
            f"relative_{name}": value / (values["params_norm"] or math.nan)
            for name, value in errors.items()
            if name.endswith("_error")
        }
        return values | errors | relative

    def _sharpness(self, params: PyTree, rate: float, reasons: list[str]) -> dict[str, float]:
        if not self._problem.has_loss:  # a vector field's Jacobian is not symmetric
            return {}
        if self._sharpness_costs is None:
            size = sum(leaf.size for leaf in jax.tree.leaves(params))
            self._sharpness_costs = 2 * min(size, _FIRST_PRODUCTS)
        if self._waits("the sharpness", self._sharpness_costs, reasons):
            return {}
        found = sharpness(self._problem, params, self._direction)
        self._sharpness_costs = 2 * found.products
        self._spend(2 * found.products)
        if not math.isfinite(found.value):
            raise RuntimeError("products with the Hessian are not finite")
        self._direction = found.direction
        return {"sharpness": found.value, "learning_rate_times_sharpness": rate * found.value}

    def _errors(
        self,
        start: Sight,
        params: PyTree,
        steps: int,
        rate: float,
        curvature: float,
        size: float,
        reasons: list[str],
    ) -> dict[str, float]:
        """The errors of gradient flow, if they can be paid for.

        Args:
            start: The last record.
            params: The params now.
            steps: The steps in between.
            rate: The learning rate of all of them.
            curvature: The sharpness, or less.
            size: The relative error to expect.
            reasons: Where to say that they wait.
        """
        if self._prediction_costs is None:
            expected = _guess(curvature * rate * steps)
        else:
            expected = self._prediction_costs * steps
        if self._waits("the prediction", expected, reasons):
            return {}
        least = max(_RTOL_LEAST, 100 * rounding_of(params))
        rtol = float(np.clip(_RTOL_PER_ERROR * size, least, max(least, _RTOL_MOST)))
        runner = PredictionRunner(
            EquationOfMotion(self._problem, rate, 0, "lie"),
            start.params,
            np.array([steps * rate]),
            rtol=rtol,
            # Chosen by the sharpness that is known, without a search of its own.
            solver=suitable_solver(curvature, rtol, steps * rate),
            max_steps=10 + math.ceil(2 * expected / _STEP_COSTS),
            estimate=False,
        )
        status, predicted = runner.advance(0)
        costs = runner.statistics().gradient_evaluations
        assert costs is not None
        self._spend(costs)
        self._prediction_costs = costs / steps
        if status != Status.COMPLETED or predicted is None:
            self._prediction_costs *= 2  # enough for twice the steps, the next time
            raise RuntimeError(f"gradient flow since the last record ended with {status!s}")
        found = jax.device_get(errors_of(predicted, params))
        return {name: float(value) for name, value in found.items()}

    def _read(self, params: Any) -> PyTree:
        """The params as they are now, a copy; raises unless they are like those before."""
        # A module that is a pytree may be callable, too.
        if callable(params) and jax.tree_util.all_leaves([params]):
            params = params()
        # What the loop does to its buffers, in place or by donation, must not touch ours.
        params = jax.tree.map(
            lambda leaf: jnp.array(leaf, copy=True), as_params(params, finite=False)
        )
        leaves, structure = jax.tree.flatten(params)
        shapes = [(leaf.shape, leaf.dtype.name) for leaf in leaves]
        if self._structure is None:
            self._structure = structure, shapes
        if self._structure != (structure, shapes):
            known = jax.tree.unflatten(*self._structure)
            raise ValueError(
                "`params` must be like those of the first record, with the shapes and dtypes "
                f"{known}, got {jax.tree.unflatten(structure, shapes)}: another network needs a "
                "monitor of its own"
            )
        return params

    def _watched(self, params: PyTree, reasons: list[str]) -> Any:
        """The layers to watch, by name."""
        if not isinstance(self._symmetries, str):
            for symmetry in self._symmetries:
                require_symmetry(symmetry, self._problem, params)
            return named(self._symmetries)

        def search() -> dict[str, Any]:
            found = find_symmetries(self._problem, params)
            self._spend(found.gradient_evaluations)
            for item in found.nearly:
                said = f"nearly a symmetry: {item.symmetry!r}, residual {item.residual:.0e}"
                reasons.append(said)
            every = [item.symmetry for item in found.found + found.nearly]
            watched = of_different_names(every)
            for symmetry in every:
                if symmetry not in watched:
                    reasons.append(f"not watched: {symmetry!r}, another has its name")
            return {"layers": named(watched)}

        return _attempt("the search for symmetries", search, reasons).get("layers", ())

    def _waits(self, what: str, gradients: float | int, reasons: list[str]) -> bool:
        """Whether something cannot be paid for yet; the first time, that is said."""
        if gradients <= self._account:
            return False
        # Without a budget, nothing is waited for.
        if self.budget and what not in self._waiting:
            self._waiting.add(what)
            reasons.append(
                f"{what} waits for its budget: it needs about {gradients:.0f} gradients, "
                f"{max(self._account, 0):.0f} are saved"
            )
        return True

    def _spend(self, gradients: int) -> None:
        self.gradient_evaluations += gradients
        self._account -= gradients

    @property
    def overhead(self) -> float:
        """The gradients that the monitor computed for each step of the loop so far."""
        first = next(iter(self.records), 0)
        return self.gradient_evaluations / max((self._step or 0) - first, 1)

    def to_xarray(self) -> "xarray.Dataset":
        """The records as an `xarray.Dataset` over steps; NaN where something was not measured."""
        import xarray  # takes a second to import

        names = {name: None for record in self.records.values() for name in record}
        variables = {
            name: (
                "step",
                [record.get(name, math.nan) for record in self.records.values()],
                {"long_name": DESCRIPTIONS[name.split("/")[-1]], "units": "1"},
            )
            for name in sorted(names, key=_place)
        }
        attributes = {
            "title": "A training loop against gradient flow",
            "weight_decay": float(self._problem.weight_decay),
            "gradient_evaluations": self.gradient_evaluations,
            "notes": [f"step {step}: {note}" for step, note in self.notes.items()],
        }
        return xarray.Dataset(variables, {"step": ("step", list(self.records))}, attributes)

    def __repr__(self) -> str:
        count = len(self.records)
        last = f", the last at step {next(reversed(self.records))}" if count else ""
        return (
            f"Monitor(every {self.every} steps: {count} record{'s'[: count != 1]}{last}; "
            f"{self.gradient_evaluations} gradient evaluations, {self.overhead:.1%} of the loop's)"
        )


def _attempt(
    what: str, measure: Callable[[], dict[str, Any]], reasons: list[str]
) -> dict[str, Any]:
    """What was measured; or nothing, and a reason more: a monitor must not end a training."""
    try:
        return measure()
    except Exception as error:
        reasons.append(f"{what} failed: {error}")
        return {}


def _guess(stiffness: float) -> float:
    """The gradients that a prediction takes, by the spectral radius times the time.

    Measured on the paper's network: classical solvers are limited by stability, and cost a few
    steps to begin with; the stabilized one costs more at first and grows like the root.
    """
    return min(_STEP_COSTS * (5 + stiffness / 2.5), 60 * math.sqrt(max(stiffness, 9)))


def _place(name: str) -> tuple[bool, str, int]:
    """Where a name belongs in a record: in the order of their descriptions, layers last."""
    layer, _, quantity = name.rpartition("/")
    return bool(layer), layer, list(DESCRIPTIONS).index(quantity)
