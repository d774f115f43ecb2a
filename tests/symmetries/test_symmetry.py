"""What every symmetry must do, the built-in ones and their twins made of a transformation alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo
from invariant import LEARNING_RATE, PARAMS, PROBLEM, SYMMETRIES
from users import import_as_users_do

(as_users,) = import_as_users_do("counterflow")
FIRST, SECOND = np.asarray(PARAMS["first"]), np.asarray(PARAMS["second"])
SCALED, SHIFTED = np.asarray(PARAMS["scaled"]), np.asarray(PARAMS["shifted"])


def column(alpha):
    """One number per unit, or one for all, along the first axis of a matrix."""
    return jnp.reshape(alpha, (-1, 1))


def shift(params, alpha):
    return params | {"shifted": params["shifted"] + column(alpha)}


def scale(params, alpha):
    return params | {"scaled": (params["scaled"].T * column(alpha)).T}


def rescale(params, alpha):
    first = (params["first"].T * column(alpha)).T
    return params | {"first": first, "second": params["second"] / column(alpha)}


TWINS = {
    "translation": cf.CustomSymmetry(shift, at=0.0),
    "translation per unit": cf.CustomSymmetry(shift, at=np.zeros(4)),
    "scale": cf.CustomSymmetry(scale, at=1.0),
    "scale per unit": cf.CustomSymmetry(scale, at=np.ones(4)),
    "rescale": cf.CustomSymmetry(rescale, at=1.0),
    "rescale per unit": cf.CustomSymmetry(rescale, at=np.ones(3)),
}
ALL = SYMMETRIES | {f"twin of {name}": twin for name, twin in TWINS.items()}

NOTHING = {name: np.zeros(leaf.shape) for name, leaf in PARAMS.items()}
GENERATORS = {
    "translation": NOTHING | {"shifted": np.ones((4, 3))},
    "scale": NOTHING | {"scaled": SCALED},
    "rescale": NOTHING | {"first": FIRST, "second": -SECOND},
}
CHARGES = {
    "translation": SHIFTED.sum(),
    "translation per unit": SHIFTED.sum(1),
    "scale": (SCALED**2).sum(),
    "scale per unit": (SCALED**2).sum(0),
    "rescale": (FIRST**2).sum() - (SECOND**2).sum(),
    "rescale per unit": (FIRST**2).sum(0) - (SECOND**2).sum(1),
}


def builtin_name(name):
    return name.removeprefix("twin of ")


def some_alpha(symmetry):
    identity = symmetry.identity(PARAMS)
    return identity + jnp.linspace(0.1, 0.4, max(identity.size, 1)).reshape(identity.shape)


# --- the interface --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_the_identity_changes_nothing(name):
    symmetry = ALL[name]
    there = symmetry.transform(PARAMS, symmetry.identity(PARAMS))
    assert zoo.distance(there, PARAMS) == 0
    moved = symmetry.transform(PARAMS, some_alpha(symmetry))
    assert zoo.distance(moved, PARAMS) > 1e-2


@pytest.mark.parametrize("name", ALL)
def test_one_alpha_serves_all_units(name):
    symmetry = ALL[name]
    alpha = symmetry.identity(PARAMS) + 0.25
    one = symmetry.transform(PARAMS, float(np.ravel(alpha)[0]))
    assert zoo.distance(one, symmetry.transform(PARAMS, alpha)) == 0


@pytest.mark.parametrize("name", ALL)
def test_generators_in_closed_form(name):
    family = builtin_name(name).split()[0]
    assert zoo.distance(ALL[name].generator(PARAMS), GENERATORS[family]) < 1e-15


@pytest.mark.parametrize("name", ALL)
def test_the_generator_is_the_limit_of_small_transformations(name):
    symmetry, h = ALL[name], 1e-6
    identity = symmetry.identity(PARAMS)
    up, down = (symmetry.transform(PARAMS, identity + s * h) for s in (1, -1))
    slope = jax.tree.map(lambda a, b: (a - b) / (2 * h), up, down)
    assert zoo.distance(slope, symmetry.generator(PARAMS)) < 1e-9


@pytest.mark.parametrize("name", ALL)
def test_charges_in_closed_form(name):
    expected = CHARGES[builtin_name(name)]
    charge = ALL[name].charge(PARAMS)
    assert charge.shape == expected.shape
    np.testing.assert_allclose(charge, expected, rtol=1e-13)


@pytest.mark.parametrize("name", ALL)
def test_the_charge_changes_by_velocity_and_generator(name):
    """`d(θ·G) = v·G + θ·((v·∇)G)`, the two parts of Theorem B.1."""
    symmetry = ALL[name]
    vector = jax.tree.map(jnp.sin, PARAMS)
    whole = jax.jvp(symmetry.charge, (PARAMS,), (vector,))[1]
    parts = symmetry.along_generator(PARAMS, vector), symmetry.generator_change(PARAMS, vector)
    np.testing.assert_allclose(parts[0] + parts[1], whole, rtol=1e-12)
    if "translation" in name:
        np.testing.assert_array_equal(parts[1], np.zeros(parts[1].shape))


@pytest.mark.parametrize("name", ALL)
def test_the_loss_is_invariant_and_the_assumption_of_the_theorem_met(name):
    symmetry = ALL[name]
    assert symmetry.residual(PROBLEM, PARAMS) < 1e-12
    assert symmetry.assumption(PROBLEM, PARAMS) < 1e-14


@pytest.mark.parametrize("name", SYMMETRIES)
def test_a_twin_agrees(name):
    ours, twin = SYMMETRIES[name], TWINS[name]
    alpha = some_alpha(ours)
    assert zoo.distance(twin.transform(PARAMS, alpha), ours.transform(PARAMS, alpha)) < 1e-15
    assert ours.charge_degree == (1 if "translation" in name else 2)
    assert twin.charge_degree is None


@pytest.mark.parametrize("name", [name for name in SYMMETRIES if "unit" in name])
def test_a_twin_has_the_same_conservation_law(name):
    ours, twin = (
        cf.conservation_law(PROBLEM, symmetry, PARAMS, LEARNING_RATE)
        for symmetry in (SYMMETRIES[name], TWINS[name])
    )
    scale = np.max(np.abs(ours.rate))
    for mine, its in zip(ours, twin, strict=True):
        np.testing.assert_allclose(its, mine, rtol=1e-12, atol=1e-14 * scale)


# --- what is no symmetry ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "symmetry",
    [
        cf.Scale("first"),
        cf.Scale("scaled", axis=0),
        cf.Translation("shifted", axis=1),
        cf.Translation("scaled"),
        cf.Rescale("first", "shifted", axis={"first": 1, "shifted": 1}),
        cf.Rescale("first", "scaled"),
        cf.CustomSymmetry(lambda params, alpha: jax.tree.map(lambda p: p * alpha, params), at=1.0),
    ],
    ids=repr,
)
def test_what_changes_the_loss_has_a_large_residual(symmetry):
    assert symmetry.residual(PROBLEM, PARAMS) > 1e-2
    text = r"must leave the loss unchanged, but its residual is .*, above 0.01: `find_symmetries`"
    with pytest.raises(ValueError, match=text):
        cf.conservation_law(PROBLEM, symmetry, PARAMS, LEARNING_RATE)


def test_a_symmetry_that_is_broken_a_little():
    def nearly(params, strength):
        return PROBLEM.function(params) + strength * jnp.sum(params["scaled"][:, 0] ** 2)

    residuals = [
        SYMMETRIES["scale"].residual(cf.Problem(nearly, strength), PARAMS)
        for strength in (1e-2, 1e-4)
    ]
    assert residuals[0] > 1e-4
    assert 50 < residuals[0] / residuals[1] < 200


def test_a_vector_field_is_judged_by_its_product_with_the_generator():
    def turning(z):
        return jnp.stack([-z[1], z[0]]) / jnp.sum(z**2)

    params = jnp.array([0.6, 0.8])
    assert cf.Scale("").residual(cf.Problem.from_gradient(turning), params) < 1e-15
    outward = cf.Problem.from_gradient(lambda z: z)
    assert cf.Scale("").residual(outward, params) == pytest.approx(1, abs=1e-12)


def test_convolution_kernels_are_scale_invariant_per_filter():
    random = np.random.default_rng(5)
    images = jnp.asarray(random.normal(size=(4, 5, 5, 2)))

    def loss(params, images):
        dimensions = ("NHWC", "HWIO", "NHWC")
        maps = jax.lax.conv_general_dilated(
            images, params["kernel"], (1, 1), "VALID", dimension_numbers=dimensions
        )
        centred = maps - jnp.mean(maps, (0, 1, 2), keepdims=True)
        normalized = centred / jnp.sqrt(jnp.mean(centred**2, (0, 1, 2), keepdims=True))
        return jnp.mean(jnp.tanh(normalized) @ params["readout"])

    params = {
        "kernel": jnp.asarray(random.normal(size=(3, 3, 2, 4))),
        "readout": jnp.asarray(random.normal(size=(4,))),
    }
    problem = cf.Problem(loss, images)
    filters = cf.Scale("kernel", axis=3)
    assert filters.residual(problem, params) < 1e-13
    np.testing.assert_allclose(
        filters.charge(params), np.sum(np.asarray(params["kernel"]) ** 2, (0, 1, 2)), rtol=1e-14
    )
    assert cf.Scale("kernel", axis=2).residual(problem, params) > 1e-2


# --- a symmetry without a conservation law ----------------------------------------------------


def shear(params, alpha):
    return params | {"x": params["x"] + alpha * params["y"]}


SHEAR = cf.CustomSymmetry(shear, at=0.0)
BLIND = cf.Problem(lambda params: jnp.sum(params["y"] ** 4), weight_decay=0.1)
POINT = {"x": jnp.array([1.0, 2.0]), "y": jnp.array([0.5, -1.5])}


def test_a_shear_is_a_symmetry_whose_charge_gradient_flow_does_not_conserve():
    assert SHEAR.residual(BLIND, POINT) == 0
    x, y = np.asarray(POINT["x"]), np.asarray(POINT["y"])
    np.testing.assert_allclose(SHEAR.charge(POINT), x @ y, rtol=1e-15)
    slope = 4 * y**3
    expected = abs(x @ slope) / (np.sqrt(x @ x + y @ y) * np.sqrt(slope @ slope))
    assert SHEAR.assumption(BLIND, POINT) == pytest.approx(expected, rel=1e-14)
    # Gradient flow without weight decay changes it indeed.
    free = cf.GradientFlow(cf.Problem(BLIND.function))
    change = jax.jvp(SHEAR.charge, (POINT,), (free.velocity(POINT),))[1]
    np.testing.assert_allclose(change, -x @ slope, rtol=1e-14)


def test_a_shear_is_refused_in_words():
    text = (
        r"the generator of CustomSymmetry\(shear, at=0\.0\) must satisfy θ·\(\(∇f·∇\)G\) = 0, the "
        r"assumption of Theorem B\.1, but relative to ‖θ‖‖∇f‖ it is 0\.\d+: the conservation law"
    )
    with pytest.raises(ValueError, match=text):
        cf.conservation_law(BLIND, SHEAR, POINT, LEARNING_RATE)


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, -2.0, np.array([1.0, 2.0, -1.0, 1.0])])
def test_scales_are_positive(alpha):
    with pytest.raises(ValueError, match=r"`alpha` must be positive, got .*: 1 changes nothing"):
        SYMMETRIES["scale per unit"].transform(PARAMS, alpha)
    with pytest.raises(ValueError, match="`alpha` must be positive"):
        SYMMETRIES["rescale"].transform(PARAMS, -1.0)


@pytest.mark.parametrize("name", ALL)
def test_an_alpha_per_unit_must_fit_the_units(name):
    with pytest.raises(ValueError, match=r"one number or one per unit, an array of shape .*, got"):
        ALL[name].transform(PARAMS, np.ones(7))


@pytest.mark.parametrize(
    ("symmetry", "text"),
    [
        (cf.Rescale("first", "first"), "must not share a leaf, got 'first' and 'first'"),
        (cf.Rescale("first", ""), "must not share a leaf"),
        (
            cf.Rescale("first", "second", axis=1),
            r"same number of units, got \(3,\) and \(2,\): give the axis of each leaf by its path",
        ),
    ],
)
def test_the_sides_of_a_rescaling_must_fit(symmetry, text):
    with pytest.raises(ValueError, match=text):
        symmetry.charge(PARAMS)


@pytest.mark.parametrize(
    ("axis", "text"),
    [
        ({"first": 1}, r"must name every path given, but \['second'\] are missing"),
        (
            {"first": 1, "second": 0, "third": 0},
            r"must name only the paths given, \['first', 'second'\], got \['third'\] besides",
        ),
    ],
)
def test_the_axes_of_a_rescaling_name_its_paths(axis, text):
    with pytest.raises(ValueError, match=text):
        cf.Rescale("first", "second", axis=axis)


def test_one_axis_for_both_sides_of_a_rescaling():
    params = {"key": PARAMS["first"], "query": 2 * PARAMS["first"]}
    expected = -3 * np.sum(FIRST**2, axis=0)
    for axis in (1, -1, np.int64(1)):
        symmetry = as_users.Rescale("key", "query", axis=axis)
        np.testing.assert_allclose(symmetry.charge(params), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: as_users.Scale(3), TypeError, "the path of a leaf or a group of paths, got 3"),
        (lambda: as_users.Rescale("a", None), TypeError, "a group of paths, got None"),
        (lambda: as_users.Rescale("a", 2, {"a": 0}), TypeError, "a group of paths, got 2"),
        (lambda: as_users.Rescale("a", "b", "c"), TypeError, "`axis` must be an integer, a dict"),
        (lambda: as_users.Translation("a", 0.5), TypeError, "`axis` must be an integer, a dict"),
        (
            lambda: as_users.CustomSymmetry("scale", 1.0),
            TypeError,
            "`transformation` must be a function of params and alpha, got str",
        ),
        (
            lambda: as_users.CustomSymmetry(scale, np.ones((2, 2))),
            ValueError,
            r"`at` must be one number or one per unit, got shape \(2, 2\)",
        ),
    ],
)
def test_what_a_symmetry_is_made_of(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_what_is_no_symmetry_at_all():
    with pytest.raises(TypeError, match=r"must be a symmetry, got str: for example `Scale\('hidd"):
        as_users.conservation_law(as_users.Problem(jnp.sum), "hidden", jnp.ones(2), 0.1)


def test_a_transformation_keeps_the_shapes():
    symmetry = cf.CustomSymmetry(lambda params, alpha: params[:1] * alpha, at=1.0)
    text = r"`transformation` must return params shaped as they came, \(2,\), got \(1,\)"
    with pytest.raises(ValueError, match=text):
        symmetry.charge(jnp.ones(2))


@pytest.mark.parametrize(
    ("symmetry", "shown"),
    [
        (cf.Translation("a"), "Translation('a')"),
        (cf.Scale(("a", "b"), axis=1), "Scale(('a', 'b'), axis=1)"),
        (cf.Rescale("a", "b"), "Rescale('a', 'b')"),
        (cf.Rescale("a", "b", axis=1), "Rescale('a', 'b', axis=1)"),
        (
            cf.Rescale(("a", "c"), "b", axis={"a": 1, "c": 0, "b": 0}),
            "Rescale(('a', 'c'), 'b', axis={'a': 1, 'c': 0, 'b': 0})",
        ),
        (TWINS["scale"], "CustomSymmetry(scale, at=1.0)"),
    ],
)
def test_a_symmetry_is_shown_as_it_is_written(symmetry, shown):
    assert repr(symmetry) == shown
