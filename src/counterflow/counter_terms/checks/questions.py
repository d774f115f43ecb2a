"""The questions that `check_problem` asks, each answered in one sentence."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...problem.problem import Problem
from ...problem.requirements import LARGE_CLOSURE_BYTES, closure_bytes, single_precision
from ...problem.tree import is_finite, rounding_of
from .agreement import asymmetry, gradient_error, try_methods
from .smoothness import (
    Kink,
    Line,
    find_kink,
    gradient_direction,
    random_direction,
    size_of,
    wrong_derivative,
)
from .suspects import suspects

Level = Literal["ok", "warning", "failure"]
MARKS = {"ok": "✓", "warning": "!", "failure": "✗"}


@dataclass(frozen=True)
class Check:
    """One line of a `ProblemReport`: what was looked at, and what was found.

    Attributes:
        name: What was looked at, such as `"smoothness"`.
        level: `"ok"`, `"warning"` (it works, at a cost) or `"failure"` (the theory does not apply,
            or nothing can be computed).
        message: What was found, in one sentence.
    """

    name: str
    level: Level
    message: str

    def __str__(self) -> str:
        return f"{MARKS[self.level]} {self.name}: {self.message}"


def reason_for(error: Exception) -> str:
    """What an exception says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    text = text if len(text) <= 200 else text[:200] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def check_dtype(params: PyTree) -> Check:
    """Whether the params are in double precision, and what it costs if not."""
    told = single_precision(params)
    return Check("dtype", "ok", "float64") if told is None else Check("dtype", "warning", told)


def check_closure(problem: Problem, params: PyTree) -> Check:
    """Whether the function closes over large arrays."""
    size = closure_bytes(problem, params)
    if size < LARGE_CLOSURE_BYTES:
        return Check("closure", "ok", "no large arrays are closed over")
    return Check(
        "closure",
        "warning",
        f"{size / 2**20:.1f} MiB of arrays are closed over and become constants of every compiled "
        "program, which slows compilation down: pass them as `data=…`",
    )


def evaluate(problem: Problem, params: PyTree) -> tuple[float | None, PyTree]:
    """Loss, if there is one, and gradient, by a call that is not compiled."""
    # Inside `jit` a random number drawn by NumPy would be drawn only once.
    loss = float(problem.loss(params)) if problem.has_loss else None
    return loss, problem.gradient(params)


def check_finite(loss: float | None, gradient: PyTree) -> Check:
    """Whether loss and gradient are finite."""
    if loss is not None and not np.isfinite(loss):
        return Check("finite", "failure", f"the loss is {loss}: check the data and the params")
    if not bool(is_finite(gradient)):
        message = "the gradient holds NaN or infinity: look for 0/0 or sqrt(0) inside the function"
        return Check("finite", "failure", message)
    values = f"the gradient's norm is {size_of(gradient):.3g}"
    return Check("finite", "ok", values if loss is None else f"the loss is {loss:.3g}, {values}")


def check_determinism(first: tuple[Any, PyTree], second: tuple[Any, PyTree]) -> Check:
    """Whether two calls gave the same loss and gradient, up to rounding."""
    rounding = 1e3 * rounding_of(first[1])
    if not bool(is_finite(first[1])) or not bool(is_finite(second[1])):
        return Check("determinism", "warning", "not measured, since values are not finite")
    distance = size_of(jax.tree.map(jnp.subtract, first[1], second[1]))
    off = {"gradient": distance / max(size_of(first[1]), 1e-300)}
    if first[0] is not None:
        off["loss"] = abs(first[0] - second[0]) / max(abs(first[0]), 1e-300)
    if max(off.values()) <= rounding:
        return Check("determinism", "ok", "two calls agree")
    differing = " and ".join(name for name in sorted(off) if off[name] > rounding)
    return Check(
        "determinism",
        "failure",
        f"two calls differ in {differing}, by {max(off.values()):.2g} of the value: the theory "
        "needs the full batch and a deterministic loss, so no dropout and no random batches",
    )


def check_gradient(problem: Problem, params: PyTree, gradient: PyTree) -> Check:
    """Whether the gradient is that of the loss; of a vector field, whether it is a gradient."""
    if not problem.has_loss:
        return Check(
            "gradient", "ok", f"given as a vector field, {_describe_field(problem, params)}"
        )
    found = gradient_error(problem, params, gradient)
    if found.accepted:
        message = f"agrees with finite differences of the loss to {found.error:.1g}"
        return Check("gradient", "ok", message)
    return Check(
        "gradient",
        "failure",
        f"differs from finite differences of the loss by {found.error:.2g}: look for a custom "
        "derivative rule, `stop_gradient` or an operation without a derivative",
    )


def _describe_field(problem: Problem, params: PyTree) -> str:
    try:
        size = asymmetry(problem, params)
    except Exception as error:  # a callback has no derivatives; that is told, and no failure
        return f"whose Jacobian is not available ({reason_for(error)})"
    if size <= max(1e5 * rounding_of(params), 1e-9):
        return f"which is a gradient: its Jacobian is symmetric to {size:.1g}"
    return (
        f"which is not a gradient: its Jacobian is off symmetric by {size:.1g}; counter terms "
        "hold all the same, statements about a loss do not"
    )


def check_smoothness(
    problem: Problem, params: PyTree, gradient: PyTree, order: int, methods: Check | None = None
) -> Check:
    """Whether the loss is smooth enough for an order, and otherwise for which, and probably why.

    The velocity of order γ contains derivative γ + 1 of the loss, which must not jump. A reason
    that `methods` gives already is not given again.
    """
    single = rounding_of(params) > 1e-10
    # In single precision the higher derivatives drown in rounding.
    highest = min(order, 1) if single else order
    reason = f"in single precision orders above {highest} are not measured"
    for degree in range(highest, 0, -1):
        try:
            return _measure_smoothness(problem, params, gradient, order, degree, reason)
        except Exception as error:  # derivatives of the gradient may not exist, as for a callback
            why = reason_for(error)
            if methods is not None and why in methods.message:
                why = f"see {methods.name}"
            reason = f"higher derivatives are not available ({why})"
    return _measure_smoothness(problem, params, gradient, order, 0, reason)


def _measure_smoothness(
    problem: Problem, params: PyTree, gradient: PyTree, order: int, degree: int, reason: str
) -> Check:
    measured = degree + 1
    directions = [gradient_direction(params, gradient)] if size_of(gradient) else []
    directions += [random_direction(params, seed) for seed in (10, 11)]
    lines = [Line(problem, params, direction, degree) for direction in directions]
    found = [kink for line in lines if (kink := find_kink(line, measured)) is not None]
    if found:
        kink = min(found, key=lambda kink: (kink.order, kink.distance))
        return Check("smoothness", "failure", _describe_kink(problem, params, kink, order))
    for line in lines:
        wrong = wrong_derivative(line)
        if wrong is not None:
            return Check(
                "smoothness",
                "failure",
                f"derivative {wrong[0]} of the gradient does not describe it: the remainder falls "
                f"like h^{wrong[1]:.1f} instead of h^{wrong[0] + 1}; look for `stop_gradient`, a "
                "custom derivative rule or a kink close by",
            )
    message = (
        f"{measured} continuous derivative{'s'[: measured != 1]} of the loss along {len(lines)} "
        f"lines through params, enough for order {degree}"
    )
    if degree < order:
        return Check("smoothness", "warning", f"{message}; {reason}")
    return Check("smoothness", "ok", message)


def _describe_kink(problem: Problem, params: PyTree, kink: Kink, order: int) -> str:
    names = suspects(problem.evaluate, params, kink.order)
    reason = f", probably because of {', '.join(names)}" if names else ""
    where = f"at a distance of {kink.distance:.2g} times the size of params{reason}"
    if kink.order < 0:
        return f"not continuous: the loss jumps {where}, so the theory does not apply"
    what = f"derivative {kink.order} of the gradient" if kink.order else "the gradient"
    beyond = (
        f"the theory does not apply beyond order {kink.order - 1}"
        if kink.order
        else "no counter term is valid, and gradient flow itself is not smooth"
    )
    derivatives = f"{kink.order} continuous derivative{'s'[: kink.order != 1]}"
    return (
        f"the loss has {derivatives} only, order {order} needs {order + 1}: {what} jumps {where}, "
        f"so {beyond}"
    )


def check_methods(problem: Problem, params: PyTree, gradient: PyTree) -> Check:
    """Which methods for counter terms work, and how well they agree."""
    methods = try_methods(problem, params, gradient)
    if "orbit" in methods.failed:
        reason = reason_for(methods.failed["orbit"])
        return Check("methods", "failure", f"none works, the gradient cannot be compiled: {reason}")
    parts = []
    works = [name for name in ("taylor", "lie", "orbit") if name not in methods.failed]
    parts.append(f"{', '.join(works)} work{'s'[: len(works) == 1]}")
    if methods.nested:
        names = ", ".join(f"'{name}'" for name in methods.nested)
        parts.append(f"taylor with nested derivatives for {names}, at a cost that grows with order")
    reasons: dict[str, list[str]] = {}
    for name in ("taylor", "lie"):
        if name in methods.failed:
            reasons.setdefault(reason_for(methods.failed[name]), []).append(name)
    for reason, names in reasons.items():
        are = "is" if len(names) == 1 else "are"
        parts.append(f"{' and '.join(names)} {are} not available ({reason})")
    parts += [f"{pair} agree to {size:.1g}" for pair, size in methods.differences.items()]
    worst = max(methods.differences.values(), default=0.0)
    if not worst <= (5e-2 if rounding_of(params) > 1e-10 else 1e-6):
        return Check("methods", "failure", "methods disagree: " + "; ".join(parts))
    level = "warning" if methods.nested or len(works) < 3 else "ok"
    return Check("methods", level, "; ".join(parts))
