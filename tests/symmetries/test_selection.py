"""Leaves are selected by path in every spelling, and summed, spread and restricted unit by unit."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.symmetries.selection import Selection
from users import import_as_users_do

(as_users,) = import_as_users_do("counterflow.symmetries.selection")


class Layer(NamedTuple):
    weight: jax.Array
    bias: jax.Array


W0, B0 = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.array([10.0, 20.0, 30.0])
W1, B1 = np.array([[7.0, -1.0], [2.0, 0.5], [3.0, -4.0]]), np.array([0.25, -0.75])
GAIN = np.array(1.5)
PARAMS = {
    "layers": [Layer(jnp.asarray(W0), jnp.asarray(B0)), Layer(jnp.asarray(W1), jnp.asarray(B1))],
    "gain": jnp.asarray(GAIN),
}


def chosen(paths, axis=None):
    """Which leaves are selected, by their shapes."""
    marked = Selection(paths, axis).restrict(jax.tree.map(jnp.ones_like, PARAMS))
    return [leaf.shape for leaf in jax.tree.leaves(marked) if np.all(leaf == 1)]


# --- paths ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "['layers'][0].weight",
        '["layers"][0].weight',
        "layers/0/weight",
        "layers.0.weight",
        "/layers/0/weight/",
        "layers[0].weight",
    ],
)
def test_one_leaf_in_every_spelling(path):
    assert chosen(path) == [(2, 3)]


@pytest.mark.parametrize(
    ("paths", "shapes"),
    [
        ("layers/0", [(2, 3), (3,)]),
        ("layers", [(2, 3), (3,), (3, 2), (2,)]),
        ("", [(), (2, 3), (3,), (3, 2), (2,)]),
        (("layers/1/weight", "gain"), [(), (3, 2)]),
        (["layers/0/bias", "layers/0"], [(2, 3), (3,)]),
    ],
)
def test_a_path_selects_every_leaf_it_leads_to(paths, shapes):
    assert chosen(paths) == shapes


@pytest.mark.parametrize("path", ["", "(the only leaf)"])
def test_the_only_leaf(path):
    assert Selection(path).sum(jnp.asarray(W0)) == 21
    np.testing.assert_array_equal(Selection(path, axis=1).sum(jnp.asarray(W0)), [5, 7, 9])


@pytest.mark.parametrize("path", ["lay", "layers/2", "layers/0/weight/0", "gains", "0"])
def test_an_unknown_path_is_told_which_there_are(path):
    there = r"there are gain, layers/0/weight, layers/0/bias, layers/1/weight, layers/1/bias"
    with pytest.raises(
        ValueError, match=f"must lead to a leaf of the params, got '{path}': {there}"
    ):
        Selection(path).sum(PARAMS)


# --- units ----------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [1, -1, np.int64(1)])
def test_units_along_an_axis(axis):
    selection = as_users.Selection("layers/0/weight", axis)
    assert selection.units(PARAMS) == (3,)
    np.testing.assert_array_equal(selection.sum(PARAMS), W0.sum(0))
    np.testing.assert_array_equal(selection.sizes(PARAMS), [2, 2, 2])


def test_the_whole_is_one_unit():
    selection = Selection(("layers/0", "gain"))
    assert selection.units(PARAMS) == ()
    assert selection.sizes(PARAMS) == 10
    assert selection.sum(PARAMS) == W0.sum() + B0.sum() + GAIN


def test_axes_by_path():
    axes = {"layers/0/weight": 1, "layers/0/bias": 0, "layers/1/weight": -2}
    selection = Selection(tuple(axes), axes)
    assert selection.units(PARAMS) == (3,)
    np.testing.assert_array_equal(selection.sum(PARAMS), W0.sum(0) + B0 + W1.sum(1))
    np.testing.assert_array_equal(selection.sizes(PARAMS), [5, 5, 5])


def test_axes_by_path_need_not_be_spelled_as_the_paths():
    selection = Selection("layers/0", {"layers.0.weight": 1, "['layers'][0].bias": 0})
    np.testing.assert_array_equal(selection.sum(PARAMS), W0.sum(0) + B0)


@pytest.mark.parametrize(
    ("paths", "axis", "text"),
    [
        ("layers/0/weight", 2, r"`axis` must be from 0 to 1 for the leaf .*weight, got 2"),
        ("layers/0/weight", -3, r"`axis` must be from 0 to 1 for the leaf .*weight, got -3"),
        ("gain", 0, r"`axis` must be None for the leaf \['gain'\], which is a single number"),
        (
            ("layers/0/weight", "layers/1/weight"),
            1,
            r"same number of units, got 3 of .*\[0\]\.weight, 2 of .*\[1\]\.weight: give the axis",
        ),
        ("layers/0", {"layers/0/weight": 1}, r"given for every leaf selected, but not for .*bias"),
        ("layers/0/bias", {"gain": 0}, r"`axis` names the leaf \['gain'\], which is not selected"),
    ],
)
def test_axes_that_do_not_fit(paths, axis, text):
    with pytest.raises(ValueError, match=text):
        Selection(paths, axis).units(PARAMS)


@pytest.mark.parametrize("paths", [(), [], 3, None, ("layers", 0)])
def test_paths_must_be_text(paths):
    with pytest.raises(TypeError, match=r"the path of a leaf or a group of paths, got .*: write a"):
        as_users.Selection(paths)


@pytest.mark.parametrize("axis", [1.0, True, "1", {"gain": 1.5}, {"gain": None}])
def test_axes_must_be_integers(axis):
    with pytest.raises(TypeError, match="`axis` must be an integer, a dictionary of integers by"):
        as_users.Selection("gain", axis)


def test_selections_are_equal_by_what_they_say():
    assert Selection("gain") == Selection(("gain",))
    assert hash(Selection("gain", 0)) == hash(Selection("gain", 0))
    assert Selection("gain", 0) != Selection("gain")


@pytest.mark.parametrize(
    ("paths", "axis", "shown"),
    [
        ("gain", None, "'gain'"),
        ("layers", 1, "'layers', axis=1"),
        (("a", "b"), {"a": 0, "b": 1}, "('a', 'b'), axis={'a': 0, 'b': 1}"),
    ],
)
def test_a_selection_is_shown_as_the_arguments_it_came_from(paths, axis, shown):
    assert repr(Selection(paths, axis)) == shown


# --- arithmetic -----------------------------------------------------------------------------

COLUMNS = Selection(("layers/0", "layers/1/weight"), {"layers/0/weight": 1, "layers/0/bias": 0,
                                                     "layers/1/weight": 0})  # fmt: skip
VALUES = np.array([2.0, -3.0, 0.5])


def test_spread_puts_each_units_value_at_its_entries():
    spread = COLUMNS.spread(jnp.asarray(VALUES), PARAMS)
    np.testing.assert_array_equal(spread["layers"][0].weight, np.ones((2, 1)) * VALUES)
    np.testing.assert_array_equal(spread["layers"][0].bias, VALUES)
    np.testing.assert_array_equal(spread["layers"][1].weight, VALUES[:, None] * np.ones(2))
    np.testing.assert_array_equal(spread["layers"][1].bias, [0, 0])
    assert spread["gain"] == 0


def test_spread_over_the_whole():
    spread = Selection("layers/1").spread(jnp.asarray(4.0), PARAMS)
    np.testing.assert_array_equal(spread["layers"][1].weight, np.full((3, 2), 4.0))
    np.testing.assert_array_equal(spread["layers"][0].weight, np.zeros((2, 3)))


def test_apply_leaves_alone_what_is_outside():
    there = COLUMNS.apply(jnp.multiply, PARAMS, jnp.asarray(VALUES))
    np.testing.assert_array_equal(there["layers"][0].weight, W0 * VALUES)
    np.testing.assert_array_equal(there["layers"][0].bias, B0 * VALUES)
    np.testing.assert_array_equal(there["layers"][1].weight, W1 * VALUES[:, None])
    np.testing.assert_array_equal(there["layers"][1].bias, B1)
    assert there["gain"] == GAIN


def test_restrict_is_zero_outside():
    inside = Selection(("layers/0/bias", "gain")).restrict(PARAMS)
    np.testing.assert_array_equal(inside["layers"][0].bias, B0)
    np.testing.assert_array_equal(inside["layers"][0].weight, np.zeros((2, 3)))
    np.testing.assert_array_equal(inside["layers"][1].weight, np.zeros((3, 2)))
    assert inside["gain"] == GAIN


def test_dtypes_are_kept():
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), PARAMS)
    there = COLUMNS.apply(jnp.multiply, single, jnp.asarray(VALUES))
    assert {leaf.dtype for leaf in jax.tree.leaves(there)} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("layers/0", "layers/1", False), ("layers/0", "layers/0/bias", True), ("", "gain", True)],
)
def test_overlap(first, second, expected):
    assert Selection(first).overlaps(Selection(second), PARAMS) is expected
