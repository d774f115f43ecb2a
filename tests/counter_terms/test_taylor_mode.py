"""Taylor mode, rule by rule: every recurrence against nested forward derivatives."""

import warnings
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.ad_util import add_any_p
from jax.custom_derivatives import linear_call
from jax.flatten_util import ravel_pytree
from jax.sharding import SingleDeviceSharding

import counterflow as cf
import zoo
from counterflow.counter_terms.taylor_mode import TaylorMode
from counterflow.counter_terms.taylor_rules import RULES
from counterflow.networks.tall_products import inner, times

DEGREE = 4
GENERATOR = np.random.default_rng(11)
X = jnp.asarray(GENERATOR.uniform(0.3, 0.9, (4, 4)))
Y = jnp.asarray(GENERATOR.uniform(-0.9, 0.9, (4, 4)))  # a constant of both signs
DIRECTIONS = [jnp.asarray(GENERATOR.normal(size=(4, 4))) for _ in range(DEGREE)]
IMAGE = (1, 4, 4, 1)
POOL = {"window_dimensions": (2, 2), "window_strides": (1, 1), "padding": "VALID"}


def derivatives_at_zero(function, degree):
    """`function(0)` and its Taylor coefficients up to `degree`, by nested forward derivatives."""

    def with_one_more(f):
        def extended(s):
            known, slopes = jax.jvp(f, (s,), (jnp.ones_like(s),))
            return [*known, slopes[-1]]

        return extended

    along = lambda s: [function(s)]  # noqa: E731
    for _ in range(degree):
        along = with_one_more(along)
    return [
        jax.tree.map(lambda x, d=d: x / factorial(d), derivative)
        for d, derivative in enumerate(along(jnp.zeros(())))
    ]


def by_nested_derivatives(function, params, directions):
    """The coefficients of `function` along `params + Σ s^d directions[d−1]`, from degree one."""

    def along(s):
        return function(params + sum(s ** (d + 1) * x for d, x in enumerate(directions)))

    return derivatives_at_zero(along, len(directions))[1:]


def by_taylor_mode(function, params, directions):
    mode = TaylorMode(function, params)
    series = mode.begin()
    return mode.value, [series.extend(direction) for direction in directions]


def assert_series_agree(function, params=X, directions=DIRECTIONS, tolerance=1e-12):
    @zoo.jit_quickly
    def both(params, directions):
        expected = by_nested_derivatives(function, params, directions)
        return by_taylor_mode(function, params, directions), function(params), expected

    (value, actual), direct, expected = both(params, list(directions))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13), value, direct)
    size = 0.0
    for coefficient, reference in zip(actual, expected, strict=True):
        for a, b in zip(jax.tree.leaves(coefficient), jax.tree.leaves(reference), strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.max(np.abs(b)))
            size += float(np.sum(np.abs(b)))
    assert size > 0  # two constants would agree, too


def primitives(jaxpr):
    """The names of all primitives in a jaxpr, and in the calls it makes."""
    names = set()
    for equation in jaxpr.eqns:
        names.add(equation.primitive.name)
        for parameter in equation.params.values():
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                names |= primitives(inner)
    return names


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, **POOL)


# What each primitive is used for; none of them linear in x where the primitive itself is, so that
# coefficients of every degree arrive.
LINEAR = {
    "real": lambda x: jnp.real(x * (1 + 2j)),
    "imag": lambda x: jnp.imag(x * (1 + 2j)),
    "conj": lambda x: jnp.imag(jnp.conj(x * (1 + 2j))),
    "complex": lambda x: jnp.real(lax.complex(x, 2 * x) * (1 - 1j)),
    "fft": lambda x: jnp.real(jnp.fft.fft(x)),
    "neg": lambda x: -jnp.sin(x),
    "add": lambda x: jnp.sin(x) + Y + x,
    "sub": lambda x: Y - jnp.sin(x) - x,
    "add_any": lambda x: add_any_p.bind(jnp.sin(x), x),
    "psum": jax.vmap(lambda row: lax.psum(jnp.sin(row), "rows") * row, axis_name="rows"),
    "reduce_sum": lambda x: jnp.sum(jnp.sin(x), axis=1),
    "cumsum": lambda x: lax.cumsum(jnp.sin(x), axis=1, reverse=True),
    "reshape": lambda x: jnp.sin(x).reshape(2, 8),
    "transpose": lambda x: jnp.sin(x).T,
    "broadcast_in_dim": lambda x: jnp.broadcast_to(jnp.sin(x), (3, 4, 4)),
    "squeeze": lambda x: lax.squeeze(jnp.sin(x)[:, :1], (1,)),
    "slice": lambda x: lax.slice(jnp.sin(x), (1, 0), (3, 4), (1, 2)),
    "pad": lambda x: lax.pad(jnp.sin(x), x[0, 0], ((1, 0, 1), (0, 2, 0))),
    "concatenate": lambda x: lax.concatenate([jnp.sin(x), Y, x], 0),
    "split": lambda x: tuple(lax.split(jnp.sin(x), (1, 3), axis=1)),
    "rev": lambda x: lax.rev(jnp.sin(x), (0,)),
    "convert_element_type": lambda x: jnp.sin(x) * lax.convert_element_type(x > 0.5, float),
    "copy": lambda x: lax.copy_p.bind(jnp.sin(x)),
    "reduce_precision": lambda x: lax.reduce_precision(jnp.sin(x), 11, 52),
    "reduce_window_sum": lambda x: lax.reduce_window(jnp.sin(x), 0.0, lax.add, **POOL),
    "sharding_constraint": lambda x: lax.with_sharding_constraint(
        jnp.sin(x), SingleDeviceSharding(jax.devices()[0])
    ),
    "linear_call": lambda x: linear_call(
        lambda data, z: data * z, lambda data, z: data * z, Y, jnp.sin(x)
    ),
    "optimization_barrier": lambda x: lax.optimization_barrier((jnp.sin(x), Y, x)),
    # The last index is out of bounds: what is filled in there does not vary.
    "gather": lambda x: jnp.sin(x).at[jnp.array([0, 2, 7])].get(mode="fill", fill_value=2.0) ** 2,
    "dynamic_slice": lambda x: lax.dynamic_slice(jnp.sin(x), (jnp.array(1), 2), (2, 2)),
    "select_and_gather_add": lambda x: jax.jvp(max_pool, (jnp.sin(3 * x),), (jnp.cos(x),))[1],
    "select_and_scatter_add": lambda x: jax.vjp(max_pool, jnp.sin(3 * x))[1](jnp.cos(x)[:3, :3]),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(
        jnp.sin(x), jnp.cos(x)[:2, :2], (jnp.array(1), 1)
    ),
    "scatter": lambda x: jnp.sin(x).at[jnp.array([0, 2])].set(jnp.cos(x)[:2]),
    "scatter-add": lambda x: jnp.sin(x).at[jnp.array([0, 2, 2])].add(jnp.cos(x)[:3]),
    "scatter-sub": lambda x: jnp.sin(x).at[jnp.array([0, 2, 2])].subtract(jnp.cos(x)[:3]),
    "select_n": lambda x: jnp.where(x > 0.6, jnp.sin(x), Y) + jnp.where(Y > 0, x, jnp.cos(x)),
    # Linear operations that JAX has as primitives of their own since 0.10.
    "stack": lambda x: jnp.stack([jnp.sin(x), Y, x]),
    "tile": lambda x: jnp.tile(jnp.sin(x), (1, 2)),
    "unstack": lambda x: tuple(jnp.unstack(jnp.sin(x))),
}
NONLINEAR = {
    "mul": lambda x: jnp.sin(x) * x * Y,
    "tall_times": lambda x: times(jnp.sin(x), x.T) + times(Y, jnp.cos(x)) + times(x, Y),
    "tall_inner": lambda x: inner(jnp.sin(x), x.T) + inner(Y, jnp.cos(x)) + inner(x, Y),
    "dot_general": lambda x: jnp.sin(x) @ x.T + Y @ jnp.cos(x) + x @ Y,
    "conv_general_dilated": lambda x: lax.conv_general_dilated(
        jnp.sin(x).reshape(IMAGE),
        jnp.cos(x)[:2, :2].reshape(2, 2, 1, 1),
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ),
    "div": lambda x: jnp.sin(x) / x + Y / (1 + x) + x / (2 + Y),
    "square": lambda x: lax.square(jnp.sin(x)),
    "integer_pow": lambda x: (x - 0.5) ** 5 + x**-3 + x**-1 + lax.integer_pow(x, 1),
    "sqrt": lambda x: jnp.sqrt(x + x**2),
    "rsqrt": lambda x: lax.rsqrt(x + x**2),
    "cbrt": lambda x: jnp.cbrt(x + x**2),
    "pow": lambda x: lax.pow(x, 1 + Y) + x**2.5,
    "exp": lambda x: jnp.exp(jnp.sin(x)),
    "exp2": lambda x: jnp.exp2(jnp.sin(x)),
    "expm1": lambda x: jnp.expm1(jnp.sin(x)),
    "log": lambda x: jnp.log(x + x**2),
    "log1p": lambda x: jnp.log1p(jnp.sin(x)),
    "logistic": lambda x: lax.logistic(x * x - Y),
    "tanh": lambda x: jnp.tanh(x * x - Y),
    "tan": lambda x: jnp.tan(x * x - Y),
    "sin": lambda x: jnp.sin(x * x - Y),
    "cos": lambda x: jnp.cos(x * x - Y),
    "sinh": lambda x: jnp.sinh(x * x - Y),
    "cosh": lambda x: jnp.cosh(x * x - Y),
    "erf": lambda x: lax.erf(x * x - Y),
    "erfc": lambda x: lax.erfc(x * x - Y),
    "atan": lambda x: jnp.atan(x * x - Y),
    "abs": lambda x: jnp.abs(jnp.sin(x) - 0.5),
    "max": lambda x: jnp.maximum(jnp.sin(x), Y) + jnp.maximum(jnp.sin(2 * x), x),
    "min": lambda x: jnp.minimum(jnp.sin(x), Y) + jnp.minimum(jnp.sin(2 * x), x),
    "clamp": lambda x: lax.clamp(0.4, jnp.sin(x), 0.6) * x,
    "reduce_max": lambda x: jnp.max(jnp.sin(3 * x), axis=0),
    "reduce_min": lambda x: jnp.min(jnp.sin(3 * x), axis=1),
}
CASES = LINEAR | NONLINEAR
UNTESTED: dict[str, str] = {}  # name of a rule: why no function can reach it


def test_every_rule_has_a_case():
    assert set(RULES) - set(CASES) == set(UNTESTED)


@pytest.mark.parametrize("name", CASES)
def test_the_rule(name):
    function = CASES[name]
    assert name in primitives(jax.make_jaxpr(function)(X).jaxpr)
    # A linear operation does the same at every degree.
    assert_series_agree(function, directions=DIRECTIONS[: 2 if name in LINEAR else DEGREE])


# --- where the values are special -----------------------------------------------------------

TIED = jnp.array([0.5, -0.25, 0.5, 0.0])
SLOPES = [jnp.asarray(GENERATOR.normal(size=4)) for _ in range(DEGREE)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.maximum(x, 0.5) * x,
        lambda x: jnp.minimum(jnp.flip(x), x) * x,
        lambda x: jnp.max(x) * x,
        lambda x: jnp.min(-x) * x,
        lambda x: jnp.abs(x) * x,
        lambda x: lax.clamp(-0.25, x, 0.5) * x,
        lambda x: jax.nn.relu(x) * x,
    ],
    ids=["max", "min", "reduce_max", "reduce_min", "abs", "clamp", "relu"],
)
def test_at_a_tie_the_series_follows_jax(function):
    assert_series_agree(function, TIED, SLOPES)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x**3,
        lambda x: jnp.square(x) * jnp.exp(x),
        lambda x: jnp.tanh(x) * jnp.sin(x) * jnp.atan(x),
        lambda x: x / (1 + x),
    ],
    ids=["integer_pow", "lax.square", "odd", "div"],
)
def test_at_zero_nothing_is_divided_by_it(function):
    assert_series_agree(function, jnp.zeros(4), SLOPES)


def products(x):
    return jnp.stack([x[0], x[1] * x[1], x[2] * x[2] * x[2], jnp.ones_like(x[3])])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x**3.0, lambda x: x * x * x),
        (lambda x: lax.pow(x, jnp.array([1.0, 2.0, 3.0, 0.0])), products),
        (lambda x: lax.pow(x, jnp.array([1, 2, 3, 0])), products),
        (lambda x: x**2.0 * jnp.cos(x), lambda x: x * x * jnp.cos(x)),
    ],
    ids=["float", "floats", "integers", "square"],
)
def test_a_power_of_zero_is_a_product_of_zeros(function, expected):
    # Nested derivatives of `pow` are not numbers here: 0 · 0⁻¹ from the fourth on.
    zeros = jnp.zeros(4)
    actual = by_taylor_mode(function, zeros, SLOPES)[1]
    for a, b in zip(actual, by_nested_derivatives(expected, zeros, SLOPES), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: lax.pow(1 + Y, x) + lax.pow(x, jnp.sin(x)), "pow"),
        (lambda x: lax.clamp(x / 2, Y, jnp.sin(x)), "clamp"),
    ],
    ids=["pow", "clamp"],
)
def test_a_rule_that_needs_a_constant_says_so_where_it_varies(function, name):
    with pytest.warns(UserWarning, match=f"no rule for the operation '{name}'"):
        assert_series_agree(function, directions=DIRECTIONS[:3])


# --- programs -------------------------------------------------------------------------------


@jax.jit
def wave(x):
    return jnp.sin(x) * jnp.array([1.0, 2.0, 3.0, 4.0])


def mixed_precision(x):
    return (x.astype("float32") ** 3).astype("float64") * x


PROGRAMS = {
    "a jitted function used twice": lambda x: wave(wave(x) + wave(2 * x)),
    "a constant output": lambda x: (jnp.sin(x), jnp.ones(3), 2.0),
    "the argument itself": lambda x: (x, jnp.sin(x)),
    "unused results": lambda x: (jnp.cos(x).sum(), jnp.sin(x))[1],
    "integers and booleans": lambda x: (
        jnp.sin(x) * jnp.floor(3 * x) * (x > 0.5) * jnp.argmax(x) * (10 * x).astype(int)
    ),
    "stop_gradient": lambda x: lax.stop_gradient(jnp.sin(x)) * x,
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(x) ** 2),
    "vmap": jax.vmap(lambda x: jnp.sin(x) * x),
    "gradient of gather": jax.grad(lambda x: jnp.sum(jnp.sin(x)[jnp.array([0, 2, 2])] ** 3)),
    "gradient of max-pool": jax.grad(
        lambda x: jnp.sum(jnp.sin(max_pool(jnp.outer(x, jnp.flip(x))))),
    ),
    "gradient of convolution": jax.grad(
        lambda x: jnp.sum(jnp.sin(jnp.convolve(jnp.tanh(x), x, mode="full")))
    ),
    "softmax": lambda x: jax.nn.softmax(x) * jax.nn.log_softmax(x**2),
    "normalization": lambda x: (x - x.mean()) / jnp.sqrt(jnp.mean((x - x.mean()) ** 2)),
}
VECTOR = jnp.array([0.3, 0.7, 0.45, 0.85])


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program(name):
    function = PROGRAMS[name]
    if name != "gradient of max-pool":
        assert_series_agree(function, VECTOR, SLOPES[:3])
        return
    with warnings.catch_warnings():  # the maximum itself has no rule, only its derivative has
        warnings.filterwarnings("ignore", "Taylor mode has no rule .*'reduce_window_max'")
        assert_series_agree(function, VECTOR, SLOPES[:3])


def test_params_may_be_single_precision():
    params = X.astype("float32")
    slopes = [direction.astype("float32") for direction in DIRECTIONS]

    def function(x):
        return jnp.sin(x) @ x.T

    _, actual = zoo.jit_quickly(lambda p, d: by_taylor_mode(function, p, d))(params, slopes)
    expected = zoo.jit_quickly(lambda p, d: by_nested_derivatives(function, p, d))(X, DIRECTIONS)
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == "float32"
        assert zoo.distance(a, b) < 1e-5


def test_intermediate_values_may_be_single_precision():
    assert_series_agree(mixed_precision, VECTOR, SLOPES, tolerance=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.abs(jnp.fft.fft(jnp.sin(x))) ** 2,
        lambda x: jnp.real(lax.complex(jnp.sin(x), x) ** 2),
    ],
    ids=["fft", "complex"],
)
def test_intermediate_values_may_be_complex(function):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Taylor mode has no rule")
        assert_series_agree(function, VECTOR, SLOPES)


# --- functions with their own derivative ----------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jax.nn.relu(jnp.sin(5 * x)),
        lambda x: jax.nn.softplus(jnp.sin(5 * x)),
        lambda x: jnp.logaddexp(jnp.sin(5 * x), x),
        lambda x: jnp.logaddexp(Y[0], x**2),
        lambda x: jax.nn.silu(jnp.sin(5 * x)),
        lambda x: jax.nn.relu6(7 * x**2),
        lambda x: jax.nn.gelu(x**2, approximate=False),
        lambda x: jax.nn.logsumexp(x**2) * x,
        lambda x: jax.scipy.special.xlogy(x**2, x),
        lambda x: jax.nn.softplus(jax.nn.softplus(x) * x),
    ],
    ids="relu softplus logaddexp logaddexp-constant silu relu6 gelu logsumexp xlogy nested".split(),
)
def test_custom_derivatives_need_no_rule(function):
    assert_series_agree(function, VECTOR, SLOPES)  # and warnings are errors


def test_custom_derivatives_inside_a_vector_field():
    problem = cf.Problem.from_gradient(lambda x: jax.nn.softplus(jax.nn.silu(x) - jnp.flip(x)))
    taylor = cf.counter_terms(problem, VECTOR, 3)
    lie = cf.counter_terms(problem, VECTOR, 3, method="lie")
    assert zoo.distance(taylor, lie) < 1e-13


def test_custom_reverse_derivatives_inside_a_loss():
    @jax.custom_vjp
    def quartic(x):
        return jnp.sum(x**4) / 4

    quartic.defvjp(lambda x: (quartic(x), x), lambda x, c: (c * x**3,))
    terms = cf.counter_terms(cf.Problem(lambda x: quartic(x)), VECTOR, 2)
    assert zoo.distance(terms, (1.5 * VECTOR**5, 3.5 * VECTOR**7)) < 1e-13


# --- loops ----------------------------------------------------------------------------------


def late(x):
    """The carry starts constant; its second part varies from the second turn on."""
    turn = lambda c, y: ((jnp.sin(c[0]) * y, c[0] + c[1], c[2]), (c[1] * c[2], c[2] > 0))  # noqa: E731
    (_, last, _), (each, _) = lax.scan(turn, (0.5, 0.3, 0.7), x**2, reverse=True)
    return last, each


LOOPS = {
    "collected": lambda x: lax.scan(lambda c, y: (jnp.sin(c) * y, c), x[0], x)[1],
    "integers": lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * x + i, x),
    "late": late,
    "gradient": jax.grad(lambda x: jnp.sum(lax.map(lambda s: jnp.sin(s * x[0]) * s, x**2))),
    "nested": lambda x: lax.map(lambda s: jnp.sum(lax.map(lambda r: jnp.sin(r * s), x)), x),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_carry_their_coefficients_along(name):
    assert_series_agree(LOOPS[name], VECTOR, SLOPES)  # and warnings are errors


def test_an_operation_in_a_loop_is_told_once():
    problem = cf.Problem.from_gradient(lambda x: lax.map(lambda y: jnp.asinh(y * x[0]) * y, x))
    with pytest.warns(UserWarning, match="'asinh'") as told:
        terms = cf.counter_terms(problem, VECTOR, 3)
    assert len(told) == 1
    assert zoo.distance(terms[:2], cf.counter_terms(problem, VECTOR, 2, method="lie")) < 1e-13


# --- the fallback ---------------------------------------------------------------------------


def while_loop(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x))[1]


FALLBACKS = {
    "cond": lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "sort": lambda x: lax.sort(jnp.sin(5 * x)),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(jnp.sin(x)),
    "cumprod": lambda x: lax.cumprod(jnp.sin(x)),
    "asinh": lambda x: jnp.asinh(x * x),
    "atan2": lambda x: jnp.atan2(x, x * x + 1),
    "cholesky": lambda x: jnp.linalg.cholesky(jnp.eye(4) + jnp.outer(x, x)),
    "scatter-mul": lambda x: jnp.sin(x).at[jnp.array([0, 1])].multiply(x[:2], unique_indices=True),
}
# Those that carry integers along: a counter, a permutation, pivots.
INTEGER_FALLBACKS = {
    "while": while_loop,
    "sort": lambda x: lax.sort((jnp.sin(5 * x), jnp.arange(4)), num_keys=1)[0],
    "top_k": lambda x: lax.top_k(jnp.sin(5 * x), 3)[0],
    "lu": lambda x: lax.linalg.lu(jnp.eye(4) + jnp.outer(x, x))[0],
}


def assert_fallback(name, function):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f"Taylor mode has no rule for the operation '{name}'")
        assert_series_agree(function, VECTOR, SLOPES[:3])
    with pytest.warns(UserWarning, match="no rule") as told:
        mode = TaylorMode(lambda x: (function(x), function(x + 1)), VECTOR)
    assert len(told) == 1
    assert f"'{name}'" in str(told[0].message)
    jax.eval_shape(mode.begin().extend, VECTOR)  # not told again: warnings are errors


@pytest.mark.parametrize("name", FALLBACKS)
def test_an_operation_without_a_rule_is_right_and_told_once(name):
    assert_fallback(name, FALLBACKS[name])


@pytest.mark.parametrize("name", INTEGER_FALLBACKS)
def test_an_operation_without_a_rule_may_carry_integers(name):
    assert_fallback(name, INTEGER_FALLBACKS[name])


def test_counter_terms_through_the_fallback():
    problem = cf.Problem.from_gradient(FALLBACKS["cumprod"])
    with pytest.warns(UserWarning, match="'cumprod'") as told:
        taylor = cf.counter_terms(problem, VECTOR, 3)  # a backward and a forward orbit
    assert len(told) == 1
    assert zoo.distance(taylor[:2], cf.counter_terms(problem, VECTOR, 2, method="lie")) < 1e-13


def test_an_operation_inside_a_custom_derivative_is_told_once():
    @jax.custom_jvp
    def primitive_of_asinh(x):
        return x * jnp.asinh(x) - jnp.sqrt(1 + x * x)

    @primitive_of_asinh.defjvp
    def _(primals, tangents):
        return primitive_of_asinh(*primals), jnp.asinh(primals[0]) * tangents[0]

    problem = cf.Problem.from_gradient(lambda x: primitive_of_asinh(x) * jnp.flip(x))
    with pytest.warns(UserWarning, match="'asinh'") as told:
        terms = cf.counter_terms(problem, VECTOR, 3)
    assert zoo.distance(terms[:2], cf.counter_terms(problem, VECTOR, 2, method="lie")) < 1e-13
    assert len(told) == 1


# --- implicit series ------------------------------------------------------------------------


DEPTH = 3


@pytest.mark.parametrize("name", ["network", "predator-prey"])
def test_the_backward_orbit_satisfies_its_equation(name):
    # θ₋₁(η) = θ + η g(θ₋₁(η)): each coefficient from the one before, in one pass.
    if name == "network":
        problem, params = zoo.network()
    else:
        solved = zoo.predator_prey()
        problem, params = solved.problem, solved.params

    @zoo.jit_quickly
    def backward(params):
        mode = TaylorMode(problem.gradient, params)
        series, point = mode.begin(), [mode.value]
        for _ in range(DEPTH - 1):
            point.append(series.extend(point[-1]))
        return point

    point = backward(params)

    @zoo.jit_quickly
    def residual(params, point):
        flat, unravel = ravel_pytree(params)
        coefficients = [ravel_pytree(c)[0] for c in point]

        def along(eta):
            theta = flat + sum(eta ** (d + 1) * c for d, c in enumerate(coefficients))
            gradient = problem.gradient(unravel(theta))
            return theta - flat - eta * ravel_pytree(gradient)[0]

        return derivatives_at_zero(along, DEPTH)

    sizes = [float(np.sqrt(sum(np.sum(x**2) for x in jax.tree.leaves(c)))) for c in point]
    residuals = [float(np.linalg.norm(r)) for r in residual(params, point)]
    assert residuals[0] == 0
    for size, rest in zip(sizes, residuals[1:], strict=True):
        assert rest < 1e-13 * max(size, sizes[0])
