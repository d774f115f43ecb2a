"""Small problems whose counter terms are known exactly, shared by the tests.

The polynomial ones are solved in rational arithmetic by the definition alone: one step of gradient
descent acts on functions by substitution, `(Sφ)(θ) = φ(θ − η g(θ))`, and the velocity of the
equation of motion is `(1/η) log(S) θ`, with `log(S) = Σ (−1)^{m+1}/m (S − 1)^m`. There are no
interpolation weights, no Lie derivatives of counter terms and no floating-point numbers.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import counterflow as cf

# --- exact polynomials: {exponents: coefficient} --------------------------------------------

Polynomial = dict[tuple[int, ...], Fraction]


def polynomial(**terms: Any) -> Polynomial:
    """A polynomial in one or more variables, `polynomial(_20=1, _11=-2)` for `x² − 2xy`."""
    return {tuple(map(int, name[1:])): Fraction(value) for name, value in terms.items()}


def add(*summands: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for summand in summands:
        for exponents, coefficient in summand.items():
            total[exponents] = total.get(exponents, Fraction(0)) + coefficient
    return {exponents: c for exponents, c in total.items() if c}


def times(p: Polynomial, q: Polynomial | Fraction) -> Polynomial:
    if isinstance(q, Fraction):
        return {exponents: q * c for exponents, c in p.items() if q}
    total: Polynomial = {}
    for (a, x), (b, y) in itertools.product(p.items(), q.items()):
        exponents = tuple(i + j for i, j in zip(a, b, strict=True))
        total[exponents] = total.get(exponents, Fraction(0)) + x * y
    return total


def differentiate(p: Polynomial, variable: int, times_over: int = 1) -> Polynomial:
    for _ in range(times_over):
        p = {
            tuple(e - (i == variable) for i, e in enumerate(exponents)): c * exponents[variable]
            for exponents, c in p.items()
            if exponents[variable]
        }
    return p


def power(p: Polynomial, exponent: int) -> Polynomial:
    result: Polynomial = {tuple(0 for _ in next(iter(p))): Fraction(1)}
    for _ in range(exponent):
        result = times(result, p)
    return result


def value(p: Polynomial, point: np.ndarray) -> float:
    """The value at a point of doubles: exact, rounded once at the end."""
    exact = [Fraction(float(x)) for x in np.ravel(point)]
    total = Fraction(0)
    for exponents, coefficient in p.items():
        term = coefficient
        for x, e in zip(exact, exponents, strict=True):
            term *= x**e
        total += term
    return float(total)


def exact_counter_terms(field: tuple[Polynomial, ...], count: int) -> list[tuple[Polynomial, ...]]:
    """`ξ̃_0 … ξ̃_{count−1}` of a polynomial vector field, as polynomials."""
    top = count + 1  # the degree in η of the logarithm that holds the last counter term
    dimension = len(field)
    powers = [[power(g, k) for k in range(top + 1)] for g in field]

    def difference(series: list[Polynomial]) -> list[Polynomial]:
        """`(S − 1)φ` by Taylor's theorem, for a `φ` that is itself a series in η."""
        result: list[Polynomial] = [{} for _ in series]
        for orders in itertools.product(range(top + 1), repeat=dimension):
            order = sum(orders)
            if not 1 <= order <= top:
                continue
            weight = Fraction((-1) ** order)
            direction: Polynomial = {(0,) * dimension: Fraction(1)}
            for variable, k in enumerate(orders):
                weight /= factorial(k)
                direction = times(direction, powers[variable][k])
            for degree in range(top + 1 - order):
                term = series[degree]
                for variable, k in enumerate(orders):
                    term = differentiate(term, variable, k)
                if term:
                    change = times(times(term, direction), weight)
                    result[degree + order] = add(result[degree + order], change)
        return result

    def logarithm(variable: int) -> list[Polynomial]:
        coordinate = tuple(int(i == variable) for i in range(dimension))
        series: list[Polynomial] = [{coordinate: Fraction(1)}, *[{} for _ in range(top)]]
        total: list[Polynomial] = [{} for _ in series]
        for m in range(1, top + 1):
            series = difference(series)
            weight = Fraction((-1) ** (m + 1), m)
            total = [add(a, times(b, weight)) for a, b in zip(total, series, strict=True)]
        return total

    logs = [logarithm(variable) for variable in range(dimension)]
    return [tuple(times(log[alpha + 2], Fraction(-1)) for log in logs) for alpha in range(count)]


# --- the problems ---------------------------------------------------------------------------

COUNT = 7  # ξ̃_0 … ξ̃_6


@dataclass(frozen=True)
class Solved:
    """A problem, a point, and its counter terms there, `ξ̃_0 … ξ̃_6`."""

    problem: cf.Problem
    params: Any
    counter_terms: tuple[Any, ...]


def symmetric_matrix(size: int = 5) -> np.ndarray:
    """A positive definite matrix with eigenvalues `0.2 … 1.5`."""
    rotation, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(size, size)))
    return rotation @ np.diag(np.linspace(0.2, 1.5, size)) @ rotation.T


def nonnormal_matrix(size: int = 5) -> np.ndarray:
    """A matrix that does not commute with its transpose."""
    return np.eye(size) + np.random.default_rng(4).normal(size=(size, size)) / 2


def linear_counter_terms(matrix: np.ndarray, params: np.ndarray) -> tuple[np.ndarray, ...]:
    """`ξ̃_α = A^{α+2} θ / (α + 2)` for the field `g = Aθ`."""
    return tuple(
        np.linalg.matrix_power(matrix, alpha + 2) @ params / (alpha + 2) for alpha in range(COUNT)
    )


def quadratic(weight_decay: float = 0.25) -> Solved:
    """`f = ½ θᵀAθ` with weight decay: `ξ̃_α = (A + λI)^{α+2} θ / (α + 2)`."""
    matrix = symmetric_matrix()
    params = np.random.default_rng(5).normal(size=len(matrix))
    problem = cf.Problem(lambda theta, a: theta @ a @ theta / 2, jnp.asarray(matrix), weight_decay)
    terms = linear_counter_terms(matrix + weight_decay * np.eye(len(matrix)), params)
    return Solved(problem, jnp.asarray(params), terms)


def nonnormal() -> Solved:
    """The linear field `g = Aθ` with a matrix that is neither symmetric nor normal."""
    matrix = nonnormal_matrix()
    params = np.random.default_rng(6).normal(size=len(matrix))
    problem = cf.Problem.from_gradient(lambda theta, a: a @ theta, jnp.asarray(matrix))
    return Solved(problem, jnp.asarray(params), linear_counter_terms(matrix, params))


# The gradients of one-dimensional losses, and the counter terms of θ⁴/4 as a table.
QUARTIC_TABLE = tuple(Fraction(c) for c in ("3/2", "7/2", "39/4", "59/2", "1849/20"))
ONE_DIMENSIONAL: dict[str, tuple[Callable[[Any], Any], Polynomial, float]] = {
    "quartic": (lambda x: x**4 / 4, polynomial(_3=1), 0.0),
    "cubic": (lambda x: x**3 / 3 + x**2 / 2, polynomial(_2=1, _1=1), 0.0),
    "double well": (lambda x: (x**2 - 1) ** 2 / 4, polynomial(_3=1, _1=-1), 0.0),
    "sextic with decay": (
        lambda x: x**6 / 6 - x,
        polynomial(_5=1, _0=-1, _1=Fraction(1, 4)),
        0.25,
    ),
}


@cache
def one_dimensional(name: str, params: float = 0.6) -> Solved:
    """A polynomial of one number, solved in exact rational arithmetic."""
    loss, gradient, weight_decay = ONE_DIMENSIONAL[name]
    terms = tuple(
        np.asarray(value(term, np.array([params])))
        for (term,) in exact_counter_terms((gradient,), COUNT)
    )
    return Solved(cf.Problem(loss, weight_decay=weight_decay), jnp.array(params), terms)


# Lotka–Volterra, u' = u(v − 2), v' = v(1 − u), as g = −(u', v') (Hairer, Lubich & Wanner, IX.1).
PREDATOR_PREY = (polynomial(_10=2, _11=-1), polynomial(_11=1, _01=-1))


def predator_prey_gradient(z: Any) -> Any:
    """Minus the Lotka–Volterra field; explicit Euler on it is gradient descent on no loss."""
    u, v = z[0], z[1]
    return jnp.array([u * (2 - v), v * (u - 1)])


def predator_prey_by_hand(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`ξ̃_0 = ½ g′g` and `ξ̃_1 = ⅓ g′g′g + (1/12) g″(g, g)`."""
    u, v = z
    g = np.array([u * (2 - v), v * (u - 1)])
    jacobian = np.array([[2 - v, -u], [v, u - 1]])
    curvature = 2 * g[0] * g[1] * np.array([-1.0, 1.0])
    return jacobian @ g / 2, jacobian @ jacobian @ g / 3 + curvature / 12


@cache
def predator_prey() -> Solved:
    """The predator-prey field, which is not a gradient, solved in exact rational arithmetic."""
    params = np.array([0.8, 1.3])
    terms = tuple(
        np.array([value(component, params) for component in term])
        for term in exact_counter_terms(PREDATOR_PREY, COUNT)
    )
    return Solved(cf.Problem.from_gradient(predator_prey_gradient), jnp.asarray(params), terms)


SOLVED: dict[str, Callable[[], Solved]] = {
    "quadratic": quadratic,
    "non-normal": nonnormal,
    "predator-prey": predator_prey,
    **{name: lambda name=name: one_dimensional(name) for name in ONE_DIMENSIONAL},
}


def network_loss(params: Any, data: Any) -> Any:
    """Linear, swish, linear, batch normalization without ε, linear, softmax, cross-entropy."""
    inputs, targets = data
    hidden = jax.nn.silu(inputs @ params["input"]) @ params["hidden"]
    centred = hidden - jnp.mean(hidden, axis=0, keepdims=True)
    normalized = centred / jnp.sqrt(jnp.mean(centred**2, axis=0, keepdims=True))
    log_probabilities = jax.nn.log_softmax(normalized @ params["readout"])
    return -jnp.mean(jnp.sum(targets * log_probabilities, axis=1))


def network(samples: int = 20, weight_decay: float = 0.01) -> tuple[cf.Problem, Any]:
    """A network 6-5-4-3 with normalization on random data: no closed form, but every operation."""
    generator = np.random.default_rng(7)
    widths = {"input": (6, 5), "hidden": (5, 4), "readout": (4, 3)}
    params = {
        name: jnp.asarray(generator.normal(size=shape) / np.sqrt(shape[0]))
        for name, shape in widths.items()
    }
    inputs = jnp.asarray(generator.normal(size=(samples, 6)))
    targets = jax.nn.one_hot(generator.integers(3, size=samples), 3)
    return cf.Problem(network_loss, (inputs, targets), weight_decay), params


# --- the network in 200 digits --------------------------------------------------------------


def _decimal(array: Any) -> np.ndarray:
    """An array of exact decimals: a float is a decimal fraction of finite length."""
    return np.vectorize(Decimal, otypes=[object])(np.asarray(array, dtype=float))


def _decimal_gradient(weights: list[np.ndarray], data: Any, weight_decay: Decimal) -> list:
    """The gradient of the network by hand-written backpropagation, on arrays of decimals."""
    exp = np.vectorize(Decimal.exp, otypes=[object])
    sqrt = np.vectorize(Decimal.sqrt, otypes=[object])
    (first, second, third), (inputs, targets) = weights, data
    count = Decimal(len(inputs))
    linear = inputs @ first
    sigmoid = 1 / (1 + exp(-linear))
    swish = linear * sigmoid
    hidden = swish @ second
    centred = hidden - hidden.sum(0, keepdims=True) / count
    deviation = sqrt((centred * centred).sum(0, keepdims=True) / count)
    normalized = centred / deviation
    powers = exp(normalized @ third)
    to_logits = (powers / powers.sum(1, keepdims=True) - targets) / count
    to_normalized = to_logits @ third.T
    along = (to_normalized * centred).sum(0, keepdims=True) / (count * deviation**2)
    to_centred = (to_normalized - centred * along) / deviation
    to_hidden = to_centred - to_centred.sum(0, keepdims=True) / count
    to_linear = (to_hidden @ second.T) * (sigmoid + swish * (1 - sigmoid))
    gradients = [inputs.T @ to_linear, swish.T @ to_hidden, normalized.T @ to_logits]
    return [g + weight_decay * w for g, w in zip(gradients, weights, strict=True)]


def network_counter_terms_in_decimals(count: int) -> list[Any]:
    """Counter terms of `network()` from its descent orbits at tiny learning rates, in 200 digits.

    `η F(η) = Σ_m (−1)^{m+1}/m Δ^m θ_0` is evaluated at `η = h, 2h, …` for `h = 10^{−20}`, and the
    polynomial in η through these values has the counter terms as its coefficients, up to O(h).
    """
    problem, params = network()
    names = list(params)
    degree = count + 1
    with localcontext() as context:
        context.prec = 200
        start = [_decimal(params[name]) for name in ("input", "hidden", "readout")]
        data = tuple(map(_decimal, problem.data))
        weight_decay = Decimal(float(problem.weight_decay))
        unit = Decimal(10) ** -20
        values = []
        for multiple in range(1, degree + 1):
            orbit = [start]
            for _ in range(degree):
                gradient = _decimal_gradient(orbit[-1], data, weight_decay)
                step = multiple * unit
                orbit.append([w - step * g for w, g in zip(orbit[-1], gradient, strict=True)])
            values.append(_logarithm(orbit))
        inverse = _invert(
            [[Fraction(i) ** k for k in range(1, degree + 1)] for i in range(1, degree + 1)]
        )
        terms = []
        for power in range(2, degree + 1):
            row = [Decimal(c.numerator) / Decimal(c.denominator) for c in inverse[power - 1]]
            scale = -(unit**-power)
            leaves = [
                np.asarray(
                    scale * sum(c * v[leaf] for c, v in zip(row, values, strict=True)), float
                )
                for leaf in range(3)
            ]
            terms.append(dict(zip(("input", "hidden", "readout"), leaves, strict=True)))
        return [{name: term[name] for name in names} for term in terms]


def _logarithm(orbit: list[list[np.ndarray]]) -> list[np.ndarray]:
    """`Σ_m (−1)^{m+1}/m Δ^m θ_0`, one array per layer."""
    total = [0 * leaf for leaf in orbit[0]]
    differences = orbit
    for m in range(1, len(orbit)):
        differences = [
            [b - a for a, b in zip(left, right, strict=True)]
            for left, right in pairwise(differences)
        ]
        weight = Decimal((-1) ** (m + 1)) / m
        total = [t + weight * d for t, d in zip(total, differences[0], strict=True)]
    return total


def _invert(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    """The exact inverse of a matrix, by elimination; no pivot of a Vandermonde matrix vanishes."""
    size = len(matrix)
    rows = [row + [Fraction(int(i == j)) for j in range(size)] for i, row in enumerate(matrix)]
    for i in range(size):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[size:] for row in rows]


# --- compiling once to run once -------------------------------------------------------------


def jit_quickly(function: Callable[..., Any]) -> Any:
    """`jax.jit` without XLA's expensive optimizations: half the time for what runs only once."""
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(function, compiler_options=options)


# --- how far apart two trees are ------------------------------------------------------------


def distance(actual: Any, expected: Any) -> float:
    """The relative Euclidean distance of two trees, each taken as one vector."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    arrays = [(np.asarray(a), np.asarray(b)) for a, b in pairs]
    assert all(a.shape == b.shape for a, b in arrays)
    difference = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in arrays))
    return float(difference / np.sqrt(sum(np.sum(b**2) for _, b in arrays)))


def slope(x: Any, y: Any) -> float:
    """The slope of `log y` against `log x`, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
