"""What is trained: one's own problem from its initial params."""

from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...counter_terms.checks.check_problem import check_problem
from ...counter_terms.checks.questions import Check
from ...problem.problem import Problem
from ...runs.analysis import Analysis
from ...runs.training import Training
from ...symmetries.find_symmetries import FoundSymmetries, find_symmetries
from ...symmetries.symmetry import Symmetry
from ..experiment import Setting

# Without these, nothing that is computed would mean anything.
_FATAL = ("params", "finite", "determinism", "gradient")


def checks_of(problem: Problem, params: PyTree, orders: tuple[int, ...]) -> tuple[Check, ...]:
    """Whether the theory applies, up to the largest order asked for.

    Raises:
        ValueError: If nothing that is computed would mean anything.
    """
    checks = check_problem(problem, params, max(orders)).checks
    fatal = [one for one in checks if one.level == "failure" and one.name in _FATAL]
    if fatal:
        said = "; ".join(f"{one.name}: {one.message}" for one in fatal)
        raise ValueError(f"the theory does not apply to this problem: {said}")
    return checks


def is_smooth(checks: tuple[Check, ...]) -> bool:
    """Whether the loss has no kinks that were seen."""
    return not any(one.name == "smoothness" and one.level == "failure" for one in checks)


@dataclass(frozen=True, eq=False)
class OwnSetting(Setting):
    """One's own problem.

    Attributes:
        configuration: What is asked about it.
        problem: The problem, with its weight decay.
        params: Its initial params.
        checks: Whether the theory applies; see `checks_of`.
    """

    configuration: Analysis
    problem: Problem
    params: PyTree
    checks: tuple[Check, ...]

    @property
    def smooth(self) -> bool:
        """Whether the loss has no kinks that were seen."""
        return is_smooth(self.checks)

    @cached_property
    def symmetries(self) -> FoundSymmetries:
        """The symmetries of the problem."""
        return find_symmetries(self.problem, self.params)

    def start(self, training: Training) -> tuple[Problem, PyTree]:
        """The problem and its initial params."""
        del training
        return self.problem, self.params

    def observables(self, params: PyTree) -> dict[str, float]:
        """The charges of the symmetric and nearly symmetric layers, each summed over its units."""
        known = self.symmetries
        return {
            charge_name(repr(item.symmetry)): float(_charge(item.symmetry, params))
            for item in known.found + known.nearly
        }


def charge_name(symmetry: str) -> str:
    """What the charge of a symmetry is called among the quantities of a run."""
    return f"charge of {symmetry}"


@eqx.filter_jit
def _charge(symmetry: Symmetry, params: PyTree) -> Array:
    return jnp.sum(symmetry.charge(params))


def training_of(analysis: Analysis) -> Training:
    """The one training of an analysis: descent, its flows, and the predictions of their errors."""
    return Training(
        learning_rate=analysis.learning_rate,
        weight_decay=analysis.weight_decay,
        seed=None,
        steps=analysis.steps,
        records=analysis.records,
        orders=analysis.orders,
        predict=True,
        rtol=analysis.rtol,
        # Beyond, a prediction would cost more than all the rest.
        predicted=tuple(order for order in analysis.orders if order < 2),
        method=analysis.method,
        share=1e-4,
    )


def trainings_of(analysis: Analysis) -> tuple[Training, ...]:
    """The trainings of an analysis: the one there is."""
    return (training_of(analysis),)
