"""How one operation carries a truncated power series: a table of recurrences, one per primitive.

A quantity that varies is a list of its Taylor coefficients `x[0], x[1], …`; a constant is a list of
length one. A rule is called once per degree `d ≥ 1`, in increasing order, with all inputs known up
to degree `d` and the output up to degree `d − 1`, and returns the output's coefficient `d`. The
operation itself can be applied to other arguments (`operation.apply`), and a rule may keep
companion series (a cosine beside a sine) in `memory`, a dictionary of its own.

The recurrences are those of Taylor-mode differentiation (Griewank & Walther, *Evaluating
Derivatives*, chapter 13). Operations without a rule are differentiated by nested forward
derivatives, each on its own: exact, but the cost doubles with every degree.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

Coefficients = list[Any]
Rule = Callable[[int, Any, list[Coefficients], Any, dict[str, Any]], Any]

RULES: dict[str, Rule] = {}

# Piecewise constant operations: their output does not vary, whatever goes in.
CONSTANT = frozenset(
    "eq ne lt le gt ge and or xor not eq_to lt_to le_to sign floor ceil round is_finite "
    "stop_gradient argmax argmin".split()
)


# Inputs, by position, that a rule takes to be constant; where they vary it does not apply.
CONSTANT_INPUTS = {"pow": (1,), "clamp": (0, 2)}


def rule_for(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule under the names of the primitives it serves."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def _at(coefficients: Coefficients, degree: int) -> Any:
    """The coefficient of a degree, `None` where it vanishes because the quantity is constant."""
    return coefficients[degree] if degree < len(coefficients) else None


def _total(terms: Sequence[Any], like: Any) -> Any:
    total = None
    for term in terms:
        total = term if total is None else total + term
    return jnp.zeros_like(like) if total is None else total


def _convolve(
    x: Coefficients, y: Coefficients, degree: int, product: Callable[[Any, Any], Any]
) -> list[Any]:
    """The terms of the Cauchy product at a degree: `product(x[k], y[degree − k])`."""
    ks = range(max(0, degree - len(y) + 1), min(degree, len(x) - 1) + 1)
    return [product(x[k], y[degree - k]) for k in ks]


def _slope(x: Coefficients, weight: Coefficients, degree: int) -> Any:
    """Coefficient `degree` of the `z` with `z′ = weight · x′`, from `weight` up to `degree − 1`."""
    terms = [k * x[k] * weight[degree - k] for k in range(1, degree + 1)]
    return _total(terms, x[0]) / degree


# Linear operations: coefficient by coefficient.


def _linear(*varying: int) -> Rule:
    """A rule for operations linear in the inputs at these positions (all inputs if none given)."""

    def rule(degree, operation, inputs, output, memory):
        del output, memory
        arguments = []
        for position, x in enumerate(inputs):
            if varying and position not in varying:
                arguments.append(x[0])
            else:
                coefficient = _at(x, degree)
                arguments.append(jnp.zeros_like(x[0]) if coefficient is None else coefficient)
        return operation.apply(*arguments)

    return rule


rule_for(
    *"neg add sub add_any reduce_sum cumsum reshape transpose broadcast_in_dim squeeze slice pad "
    "concatenate stack unstack split tile rev convert_element_type copy reduce_precision "
    "reduce_window_sum sharding_constraint optimization_barrier psum "
    "real imag complex conj fft".split()
)(_linear())
rule_for("dynamic_slice", "select_and_gather_add", "select_and_scatter_add")(_linear(0))
rule_for("dynamic_update_slice")(_linear(0, 1))


rule_for("scatter", "scatter-add", "scatter-sub")(_linear(0, 2))


@rule_for("gather")
def _gather(degree, operation, inputs, output, memory):
    # What is filled in where an index is out of bounds does not vary.
    unfilled = replace(operation, params=operation.params | {"fill_value": 0})
    return _linear(0)(degree, unfilled, inputs, output, memory)


@rule_for("select_n")
def _select_n(degree, operation, inputs, output, memory):
    cases = range(1, len(inputs))
    return _linear(*cases)(degree, operation, inputs, output, memory)


@rule_for("linear_call")
def _linear_call(degree, operation, inputs, output, memory):
    fixed = operation.params["num_callee_consts"] + operation.params["num_res"]
    return _linear(*range(fixed, len(inputs)))(degree, operation, inputs, output, memory)


# Products and quotients.


@rule_for("mul", "dot_general", "conv_general_dilated", "tall_times", "tall_inner")
def _bilinear(degree, operation, inputs, output, memory):
    del memory
    x, y = inputs
    terms = _convolve(x, y, degree, operation.apply)
    return _total(terms, output[0])


@rule_for("div")
def _div(degree, operation, inputs, output, memory):
    del operation, memory
    x, y = inputs
    numerator = _at(x, degree)
    terms = _convolve(y[1:], output, degree - 1, jnp.multiply)  # y[1:] starts at degree one
    rest = -_total(terms, output[0])
    return (rest if numerator is None else numerator + rest) / y[0]


@rule_for("square")
def _square(degree, operation, inputs, output, memory):
    del operation, output, memory
    return _squared(inputs[0], degree)


@rule_for("integer_pow")
def _integer_pow(degree, operation, inputs, output, memory):
    # By products, not by the recurrence for x**a, which divides by x[0] and x[0] may vanish.
    (x,), exponent = inputs, operation.params["y"]
    if exponent == 0:
        return jnp.zeros_like(x[0])
    powers = memory.setdefault("powers", [[x[0] ** m] for m in range(2, abs(exponent) + 1)])
    previous = x
    for power in powers:
        power.append(_total(_convolve(previous, x, degree, jnp.multiply), x[0]))
        previous = power
    if exponent > 0:
        return previous[degree]
    return _div(degree, None, [[jnp.ones_like(x[0])], previous], output, memory)


def _real_power(x: Coefficients, output: Coefficients, degree: int, exponent: Any) -> Any:
    terms = [
        (k * exponent - (degree - k)) * x[k] * output[degree - k] for k in range(1, degree + 1)
    ]
    return _total(terms, x[0]) / (degree * x[0])


@rule_for("sqrt")
def _sqrt(degree, operation, inputs, output, memory):
    del operation, memory
    return _real_power(inputs[0], output, degree, 0.5)


@rule_for("rsqrt")
def _rsqrt(degree, operation, inputs, output, memory):
    del operation, memory
    return _real_power(inputs[0], output, degree, -0.5)


@rule_for("cbrt")
def _cbrt(degree, operation, inputs, output, memory):
    del operation, memory
    return _real_power(inputs[0], output, degree, 1 / 3)


@rule_for("pow")
def _pow(degree, operation, inputs, output, memory):
    # By z′ = a x^{a−1} x′ and so on down, not by the recurrence for x**a, which divides by x[0].
    del operation, output
    x, (exponent,) = inputs

    def power(lowered: int, degree: int) -> Any:
        """Coefficient `degree` of `x ** (exponent − lowered)`."""
        key = f"{lowered}, {degree}"
        if key not in memory:
            factor = exponent - lowered
            if degree == 0:
                memory[key] = x[0] ** factor
            else:
                weight = [power(lowered + 1, k) for k in range(degree)]
                slope = _slope(x, weight, degree)
                memory[key] = jnp.where(factor == 0, 0, factor * slope)
        return memory[key]

    return power(0, degree)


# Functions that solve a differential equation.


@rule_for("exp")
def _exp(degree, operation, inputs, output, memory):
    del operation, memory
    return _slope(inputs[0], output, degree)


@rule_for("exp2")
def _exp2(degree, operation, inputs, output, memory):
    del operation, memory
    return math.log(2.0) * _slope(inputs[0], output, degree)


@rule_for("expm1")
def _expm1(degree, operation, inputs, output, memory):
    del operation, memory
    return _slope(inputs[0], [output[0] + 1, *output[1:]], degree)


def _logarithm(x: Coefficients, output: Coefficients, degree: int) -> Any:
    terms = [k * output[k] * x[degree - k] for k in range(1, degree)]
    return (x[degree] - _total(terms, x[0]) / degree) / x[0]


@rule_for("log")
def _log(degree, operation, inputs, output, memory):
    del operation, memory
    return _logarithm(inputs[0], output, degree)


@rule_for("log1p")
def _log1p(degree, operation, inputs, output, memory):
    del operation, memory
    (x,) = inputs
    return _logarithm([x[0] + 1, *x[1:]], output, degree)


def _self_slope(of_output: Callable[[Coefficients, int], Any]) -> Rule:
    """A rule for `z′ = w(z) · x′`, where `of_output(z, k)` is coefficient `k` of `w(z)`."""

    def rule(degree, operation, inputs, output, memory):
        del operation
        weight = memory.setdefault("weight", [])
        weight.append(of_output(output, degree - 1))
        return _slope(inputs[0], weight, degree)

    return rule


def _squared(z: Coefficients, degree: int) -> Any:
    return _total(_convolve(z, z, degree, jnp.multiply), z[0])


rule_for("logistic")(_self_slope(lambda z, k: z[k] - _squared(z, k)))
rule_for("tanh")(_self_slope(lambda z, k: (1.0 if k == 0 else 0.0) - _squared(z, k)))
rule_for("tan")(_self_slope(lambda z, k: (1.0 if k == 0 else 0.0) + _squared(z, k)))


def _paired(companion: Callable[[Any], Any], sign: float, companion_sign: float) -> Rule:
    """A rule for `z′ = sign · w x′`, `w′ = companion_sign · z x′`, as for sine and cosine."""

    def rule(degree, operation, inputs, output, memory):
        del operation
        (x,) = inputs
        weight = memory.setdefault("weight", [companion(x[0])])
        if len(weight) < degree:
            weight.append(companion_sign * _slope(x, output, degree - 1))
        return sign * _slope(x, weight, degree)

    return rule


rule_for("sin")(_paired(jnp.cos, 1.0, -1.0))
rule_for("cos")(_paired(jnp.sin, -1.0, 1.0))
rule_for("sinh")(_paired(jnp.cosh, 1.0, 1.0))
rule_for("cosh")(_paired(jnp.sinh, 1.0, 1.0))


def _gaussian(factor: float) -> Rule:
    """A rule for `z′ = factor · exp(−x²) x′` (the error functions)."""

    def rule(degree, operation, inputs, output, memory):
        del operation, output
        (x,) = inputs
        exponent = memory.setdefault("exponent", [-x[0] * x[0]])
        weight = memory.setdefault("weight", [factor * jnp.exp(exponent[0])])
        if len(weight) < degree:
            exponent.append(-_squared(x, degree - 1))
            weight.append(_slope(exponent, weight, degree - 1))
        return _slope(x, weight, degree)

    return rule


rule_for("erf")(_gaussian(2.0 / math.sqrt(math.pi)))
rule_for("erfc")(_gaussian(-2.0 / math.sqrt(math.pi)))


@rule_for("atan")
def _atan(degree, operation, inputs, output, memory):
    del operation
    (x,) = inputs
    # z′ (1 + x²) = x′, that is z′ = x′ / (1 + x²), by the quotient recurrence on w = 1/(1 + x²).
    base = memory.setdefault("base", [1 + x[0] * x[0]])
    weight = memory.setdefault("weight", [1 / base[0]])
    if len(weight) < degree:
        base.append(_squared(x, degree - 1))
        weight.append(_div(degree - 1, None, [[jnp.ones_like(x[0])], base], weight, {}))
    del output
    return _slope(x, weight, degree)


# Piecewise operations: the branch is chosen by the values; at a tie JAX takes the mean.


@rule_for("abs")
def _abs(degree, operation, inputs, output, memory):
    (x,) = inputs
    if jnp.iscomplexobj(x[0]):
        return nested(degree, operation, inputs, output, memory)
    return jnp.where(x[0] < 0, -x[degree], x[degree])


def _choose(x: Coefficients, y: Coefficients, degree: int, prefer_x: Any, like: Any) -> Any:
    zero = jnp.zeros_like(like)
    a, b = (zero if c is None else c for c in (_at(x, degree), _at(y, degree)))
    return jnp.where(x[0] == y[0], (a + b) / 2, jnp.where(prefer_x, a, b))


@rule_for("max")
def _max(degree, operation, inputs, output, memory):
    del operation, memory
    x, y = inputs
    return _choose(x, y, degree, x[0] > y[0], output[0])


@rule_for("min")
def _min(degree, operation, inputs, output, memory):
    del operation, memory
    x, y = inputs
    return _choose(x, y, degree, x[0] < y[0], output[0])


@rule_for("clamp")
def _clamp(degree, operation, inputs, output, memory):
    del operation, output, memory
    low, x, high = inputs
    inside = (x[0] > low[0]) & (x[0] < high[0])
    return jnp.where(inside, x[degree], jnp.zeros_like(x[0]))


@rule_for("reduce_max", "reduce_min")
def _reduce_extremum(degree, operation, inputs, output, memory):
    del memory
    (x,), axes = inputs, operation.params["axes"]
    reached = (x[0] == jnp.expand_dims(output[0], axes)).astype(x[0].dtype)
    return jnp.sum(reached * x[degree], axes) / jnp.sum(reached, axes)


# Everything else.


def nested(degree, operation, inputs, output, memory):
    """The coefficient of any differentiable operation, by nested forward derivatives."""
    del output, memory
    first = [x[0] for x in inputs]
    varying = [i for i, x in enumerate(inputs) if len(x) > 1]

    def along(s):
        arguments = list(first)
        for i in varying:
            value = inputs[i][degree]
            for coefficient in reversed(inputs[i][:degree]):
                value = value * s + coefficient
            arguments[i] = value
        return operation.apply(*arguments)

    def derivative(function):
        return lambda s: jax.jvp(function, (s,), (jnp.ones_like(s),))[1]

    for _ in range(degree):
        along = derivative(along)
    dtype = jnp.finfo(first[varying[0]].dtype).dtype
    return jax.tree.map(
        # Integers among the results have no tangents, and none are asked for.
        lambda t: None if t.dtype == jax.dtypes.float0 else t / math.factorial(degree),
        along(jnp.zeros((), dtype)),
    )
