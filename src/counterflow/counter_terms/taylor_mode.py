"""Taylor-mode differentiation, one coefficient at a time.

A function is traced once into a flat list of operations. Fed the coefficients of its argument one
by one, it returns the coefficients of its value one by one: coefficient `d` of the value is known
before coefficient `d + 1` of the argument is asked for. So an *implicit* series, such as the
backward orbit `θ₋₁ = θ + η g(θ₋₁)`, costs one pass instead of one per degree; constants (data, the
values at `η = 0`) are computed once; and operations without a recurrence fall back to nested
forward derivatives alone, instead of with the whole function. JAX's experimental `jet` takes all
coefficients at once, multiplies constants by zeros and has no rules for loops, sorts and custom
derivatives.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, Primitive, jaxpr_as_fun
from jaxtyping import PyTree

from .taylor_rules import CONSTANT, CONSTANT_INPUTS, RULES, Coefficients, Rule, nested

# Calls whose body stands for the operation itself. Custom derivatives are not among them: their
# body may not be differentiable, only their rule is.
_INLINED = {"jit": "jaxpr", "closed_call": "call_jaxpr", "remat2": "jaxpr"}


@dataclass(frozen=True)
class _Operation:
    primitive: Primitive
    params: dict[str, Any]
    inputs: list[int]
    outputs: list[int]

    def apply(self, *arguments: Any) -> Any:
        return self.primitive.bind(*arguments, **self.primitive.get_bind_params(self.params))


@dataclass
class _Flattened:
    """A jaxpr without calls: operations on numbered values."""

    values: dict[int, Any] = field(default_factory=dict)  # the constants
    operations: list[_Operation] = field(default_factory=list)
    count: int = 0

    def new(self, value: Any = None) -> int:
        self.count += 1
        if value is not None:
            self.values[self.count] = value
        return self.count

    def add(self, jaxpr: Any, consts: list[int], arguments: list[int]) -> list[int]:
        slots: dict[Any, int] = dict(zip(jaxpr.constvars, consts, strict=True))
        slots.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> int:
            return self.new(atom.val) if isinstance(atom, Literal) else slots[atom]

        for equation in jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            body = equation.params.get(_INLINED.get(equation.primitive.name, ""))
            if body is not None:
                inner, inner_consts = getattr(body, "jaxpr", body), getattr(body, "consts", ())
                outputs = self.add(inner, [self.new(c) for c in inner_consts], inputs)
            else:
                outputs = [self.new() for _ in equation.outvars]
                operation = _Operation(equation.primitive, equation.params, inputs, outputs)
                self.operations.append(operation)
            slots.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]


class TaylorMode:
    """A function of a pytree, ready to be extended along power series.

    `value` is the function's value at `params`, shaped like its result. `begin()` opens a new
    series there; every series shares the work done at `params`.
    """

    def __init__(
        self,
        function: Callable[[PyTree], PyTree],
        params: PyTree,
        told: set[str] | None = None,
    ):
        # The operations without a rule that the user knows of, so that nothing is told twice.
        self._told: set[str] = set() if told is None else told
        closed, shape = jax.make_jaxpr(function, return_shape=True)(params)
        flat = _Flattened()
        consts = [flat.new(value) for value in closed.consts]
        self._arguments = [flat.new(leaf) for leaf in jax.tree.leaves(params)]
        self._outputs = flat.add(closed.jaxpr, consts, self._arguments)
        self._structure = jax.tree.structure(shape)
        self._values = flat.values
        self._operations = self._varying(self._evaluate(self._needed(flat.operations)))
        self.value = self._collect([self._values[slot] for slot in self._outputs])

    def _collect(self, leaves: list[Any]) -> PyTree:
        return jax.tree.unflatten(self._structure, leaves)

    def _needed(self, operations: list[_Operation]) -> list[_Operation]:
        """The operations that the outputs depend on."""
        needed, kept = set(self._outputs), []
        for operation in reversed(operations):
            if needed.intersection(operation.outputs) or operation.params.get("effects"):
                needed.update(operation.inputs)
                kept.append(operation)
        return kept[::-1]

    def _evaluate(self, operations: list[_Operation]) -> list[_Operation]:
        for operation in operations:
            arguments = [self._values[slot] for slot in operation.inputs]
            result = operation.apply(*arguments)
            results = result if operation.primitive.multiple_results else [result]
            self._values.update(zip(operation.outputs, results, strict=True))
        return operations

    def _varying(self, operations: list[_Operation]) -> list[_Operation]:
        """The operations whose output varies with the params."""
        self._varies, kept = set(self._arguments), []
        for operation in operations:
            name = operation.primitive.name
            if name in CONSTANT or not self._varies.intersection(operation.inputs):
                continue
            numbers = [
                slot
                for slot in operation.outputs
                if jnp.issubdtype(jnp.result_type(self._values[slot]), jnp.inexact)
            ]
            if not numbers:
                continue
            kept.append(operation)
            if self._rule(operation) is nested and name not in self._told:
                self._told.add(name)
                warnings.warn(
                    f"Taylor mode has no rule for the operation '{name}'; nested forward "
                    "derivatives take its place. Results are as exact, but the cost of this "
                    "operation doubles with every order: method='orbit' needs gradients only.",
                    stacklevel=2,
                )
            self._varies.update(numbers)
        return kept

    def _rule(self, operation: _Operation) -> Rule:
        name = operation.primitive.name
        constant = CONSTANT_INPUTS.get(name, ())
        if any(operation.inputs[position] in self._varies for position in constant):
            return nested
        return _RULES.get(name, nested)

    def begin(self) -> "Series":
        """A new series whose value at degree zero is `value`."""
        return Series(self)


class Series:
    """The Taylor coefficients of a function along one power series of its argument."""

    def __init__(self, mode: TaylorMode):
        self._mode = mode
        self._coefficients: dict[int, Coefficients] = {}
        self._memory: list[dict[str, Any]] = [{"told": mode._told} for _ in mode._operations]
        self._degree = 0

    def _read(self, slot: int) -> Coefficients:
        if slot not in self._coefficients:
            self._coefficients[slot] = [self._mode._values[slot]]
        return self._coefficients[slot]

    def extend(self, coefficient: PyTree) -> PyTree:
        """The value's next coefficient, given the argument's, from degree one upwards."""
        mode, self._degree = self._mode, self._degree + 1
        for slot, leaf in zip(mode._arguments, jax.tree.leaves(coefficient), strict=True):
            self._read(slot).append(leaf)
        for operation, memory in zip(mode._operations, self._memory, strict=True):
            self._apply(operation, memory)
        leaves = []
        for slot in mode._outputs:
            known = self._read(slot)
            leaves.append(known[self._degree] if slot in mode._varies else jnp.zeros_like(known[0]))
        return mode._collect(leaves)

    def _apply(self, operation: _Operation, memory: dict[str, Any]) -> None:
        mode = self._mode
        inputs = [
            self._read(slot) if slot in mode._varies else self._read(slot)[:1]
            for slot in operation.inputs
        ]
        several = operation.primitive.multiple_results
        output = None if several else self._read(operation.outputs[0])
        result = mode._rule(operation)(self._degree, operation, inputs, output, memory)
        for slot, value in zip(operation.outputs, result if several else [result], strict=True):
            if slot in mode._varies:
                self._read(slot).append(value)


def _through_derivative(degree, operation, inputs, output, memory):
    """A rule for operations that bring their own derivative: `z′ = J(x) x′`, one degree lower."""
    del output
    varying = [i for i, x in enumerate(inputs) if len(x) > 1]

    def tangents(arguments):
        values, directions = arguments

        def function(*values):
            merged = [x[0] for x in inputs]
            for i, value in zip(varying, values, strict=True):
                merged[i] = value
            return operation.apply(*merged)

        return jax.jvp(function, values, directions)[1]

    directions = tuple(degree * inputs[i][degree] for i in varying)
    if degree == 1:
        point = (tuple(inputs[i][0] for i in varying), directions)
        mode = TaylorMode(tangents, point, told=memory["told"])
        memory["series"] = mode.begin()
        return mode.value
    before = tuple(inputs[i][degree - 1] for i in varying)
    return jax.tree.map(lambda t: t / degree, memory["series"].extend((before, directions)))


def _scan(degree, operation, inputs, output, memory):
    """A rule for loops: all coefficients up to the degree go round together."""
    del output
    body, constants = operation.params["jaxpr"], operation.params["num_consts"]
    carried = slice(constants, constants + operation.params["num_carry"])
    varies = _varying_in_loop(body.jaxpr, [len(x) > 1 for x in inputs], carried)

    def extended(x, varies):
        zeros = [jnp.zeros_like(x[0])] * degree
        return [x[0], *(x[1 : degree + 1] or zeros)] if varies else x[:1]

    inputs = [extended(x, v) for x, v in zip(inputs, varies, strict=True)]

    def turn(carry, each):
        here = [*inputs[:constants], *carry, *each]

        def function(values):
            values = iter(values)
            return jaxpr_as_fun(body)(
                *(next(values) if v else x[0] for x, v in zip(here, varies, strict=True))
            )

        moving = [x for x, v in zip(here, varies, strict=True) if v]
        mode = TaylorMode(function, [x[0] for x in moving], told=memory["told"])
        series = mode.begin()
        rows = [series.extend([x[d] for x in moving]) for d in range(1, degree + 1)]
        results = [list(x) for x in zip(mode.value, *rows, strict=True)]
        after, collected = results[: len(carry)], results[len(carry) :]
        after = [x if v else x[:1] for x, v in zip(after, varies[carried], strict=True)]
        return after, [x[degree] for x in collected]

    options = {name: operation.params[name] for name in ("length", "reverse", "unroll")}
    carry, collected = jax.lax.scan(turn, inputs[carried], inputs[carried.stop :], **options)
    return [x[degree] if len(x) > 1 else jnp.zeros_like(x[0]) for x in carry] + collected


def _varying_in_loop(jaxpr: Any, varies: list[bool], carried: slice) -> list[bool]:
    """Which inputs of a loop's body vary: a carry does where its start or its next value does."""
    while True:
        reached = {variable for variable, v in zip(jaxpr.invars, varies, strict=True) if v}
        reads = lambda atom: not isinstance(atom, Literal) and atom in reached  # noqa: E731, B023
        for equation in jaxpr.eqns:
            if any(map(reads, equation.invars)):
                numbers = (x for x in equation.outvars if jnp.issubdtype(x.aval.dtype, jnp.inexact))
                reached.update(numbers)
        after = map(reads, jaxpr.outvars[: carried.stop - carried.start])
        carry = [a or b for a, b in zip(varies[carried], after, strict=True)]
        if carry == varies[carried]:
            return varies
        varies = [*varies[: carried.start], *carry, *varies[carried.stop :]]


_RULES = RULES | {"custom_jvp_call": _through_derivative, "scan": _scan}
