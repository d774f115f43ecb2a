"""Does the theory apply to this problem? A report that says so in words."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import jax
from jaxtyping import PyTree

from ...problem.numbers import require_order
from ...problem.problem import Problem
from ...problem.requirements import as_params, require_loss_per_sample, require_problem
from ...problem.tree import on_device
from .questions import (
    MARKS,
    Check,
    check_closure,
    check_determinism,
    check_dtype,
    check_finite,
    check_gradient,
    check_methods,
    check_smoothness,
    evaluate,
    reason_for,
)


@dataclass(frozen=True)
class ProblemReport:
    """What `check_problem` found: one `Check` per question, `ok` if none of them failed.

    `print(report)` shows one line per check, marked ✓, ! (a warning) or ✗ (a failure);
    `report["smoothness"]` is one of them.
    """

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed; warnings may remain."""
        return all(check.level != "failure" for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        names = ", ".join(check.name for check in self.checks)
        raise KeyError(f"no check is named {name!r}; this report holds {names}")

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        return "\n".join(
            f"{MARKS[check.level]} {check.name:<{width}}  {check.message}" for check in self.checks
        )


def check_problem(problem: Problem, params: PyTree, order: int = 2) -> ProblemReport:
    """A report on whether the theory applies to a problem at `params`, up to an order.

    It measures what the theory asks for: finite values, a deterministic loss, a gradient that is
    the loss's, smoothness to the order asked for; and it tells which methods for counter terms
    work. Whatever the problem's function does becomes a line of the report, never an exception.

    Args:
        problem: The problem to be looked at.
        params: Where to look: any pytree of float arrays.
        order: The largest order γ of an `EquationOfMotion` that is wanted. It takes a loss with
            γ + 1 continuous derivatives.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(jax.nn.relu(theta) ** 2))
        >>> report = cf.check_problem(problem, jnp.array([1.0, -2.0]))
        >>> report.ok
        False
        >>> print(report["smoothness"].message)
        the loss has 1 continuous derivative only, order 2 needs 3: derivative 1 of the gradient...
        >>> print(report)
        ✓ params       2 numbers in 1 array
        ✓ dtype        float64
        ...
    """
    require_problem(problem)
    order = require_order(order, "order", "0 is gradient flow, 1 the paper's equation of motion")
    # The report is where things are told, so nothing is told as a warning besides.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ProblemReport(tuple(_run(problem, params, order)))


def _run(problem: Problem, params: PyTree, order: int) -> list[Check]:
    try:
        params = as_params(params)
    except (TypeError, ValueError) as error:
        return [Check("params", "failure", str(error))]
    # As inside `jit`, where the data are JAX's arrays, whatever they were when given.
    problem = on_device(problem)
    leaves = jax.tree.leaves(params)
    count, arrays = sum(leaf.size for leaf in leaves), len(leaves)
    checks = [
        Check(
            "params",
            "ok",
            f"{count:,} number{'s'[: count != 1]} in {arrays} array{'s'[: arrays != 1]}",
        ),
        check_dtype(params),
        _guarded("closure", lambda: check_closure(problem, params)),
    ]
    try:
        first, second = evaluate(problem, params), evaluate(problem, params)
    except Exception as error:
        return [*checks, Check("finite", "failure", f"cannot be evaluated: {reason_for(error)}")]
    checks += [check_finite(*first), check_determinism(first, second)]
    if checks[-2].level == "failure" or checks[-1].level == "failure":
        # What follows compares numbers with each other, and these do not compare.
        return checks
    try:
        require_loss_per_sample(problem, params)
    except ValueError as error:
        return [*checks, Check("samples", "failure", str(error))]
    checks.append(_guarded("gradient", lambda: check_gradient(problem, params, first[1])))
    methods = _guarded("methods", lambda: check_methods(problem, params, first[1]))
    checks.append(
        _guarded("smoothness", lambda: check_smoothness(problem, params, first[1], order, methods))
    )
    return [*checks, methods]


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    """The check, or a failure that says why it could not be made: anything may go wrong inside."""
    try:
        return check()
    except Exception as error:
        return Check(name, "failure", f"cannot be measured: {reason_for(error)}")
