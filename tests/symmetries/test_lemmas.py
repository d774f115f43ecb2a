"""The lemmas of Appendix A for invariant layers, on the paper's network with its dense Hessian."""

import numpy as np
import pytest

from invariant import Dense, flat, paper_network

PROBLEM, PARAMS = paper_network()
NETWORK = Dense(PROBLEM, PARAMS)
THETA = np.asarray(NETWORK.theta)
GRADIENT, HESSIAN = NETWORK.gradient(THETA), NETWORK.hessian(THETA)


def block(matrix, rows, columns):
    """`1_rows ⊙ matrix ⊙ 1_columns`."""
    return rows[:, None] * matrix * columns[None, :]


def column_masks(name):
    """The masks of the output units of a layer, each of which is a layer of its own."""
    masks = []
    for unit in range(PARAMS[name].shape[1]):
        marked = {key: np.zeros(leaf.shape) for key, leaf in PARAMS.items()}
        marked[name][:, unit] = 1
        masks.append(flat(marked))
    return masks


SCALED = {"whole": NETWORK.mask("hidden")} | {
    f"unit {i}": mask for i, mask in enumerate(column_masks("hidden"))
}


@pytest.fixture(params=SCALED)
def layer(request):
    """A scale-invariant layer A: its mask, and that of the rest."""
    inside = SCALED[request.param]
    return inside, 1 - inside


def relative(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


# --- scale ----------------------------------------------------------------------------------


def test_the_gradient_is_orthogonal_to_the_layer(layer):
    inside, _ = layer
    size = np.linalg.norm(inside * THETA) * np.linalg.norm(inside * GRADIENT)
    assert abs((inside * THETA) @ GRADIENT) < 1e-14 * size
    # Other vectors of the layer are not.
    assert abs((inside * np.sin(7 * THETA)) @ GRADIENT) > 1e-3 * size


def test_the_layers_hessian_takes_the_layer_to_minus_its_gradient(layer):
    inside, outside = layer
    own = block(HESSIAN, inside, inside) @ THETA
    assert relative(-own, inside * GRADIENT) < 1e-13
    cross = block(HESSIAN, outside, inside)
    assert np.linalg.norm(cross @ THETA) < 1e-14 * np.linalg.norm(cross) * np.linalg.norm(THETA)
    assert np.linalg.norm(cross) > 1e-2 * np.linalg.norm(HESSIAN)
    assert relative(HESSIAN @ (inside * THETA), own) < 1e-13


def test_the_gradient_on_the_sphere(layer):
    inside, outside = layer
    radius = np.linalg.norm(inside * THETA)
    sphere = inside * THETA / radius + outside * THETA
    there = NETWORK.gradient(sphere)
    assert abs(radius - 1) > 1e-2
    assert relative(inside * there / radius, inside * GRADIENT) < 1e-13
    assert relative(outside * there, outside * GRADIENT) < 1e-13


@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_the_hessian_after_scaling(layer, alpha):
    inside, outside = layer
    there = NETWORK.hessian(alpha * inside * THETA + outside * THETA)
    own, rest = block(there, inside, inside), block(there, outside, outside)
    cross = block(there, outside, inside)
    assert relative(alpha**2 * own + alpha * (cross + cross.T) + rest, HESSIAN) < 1e-13
    assert relative(alpha**2 * own @ THETA, HESSIAN @ (inside * THETA)) < 1e-12


def test_leaving_the_rest_of_a_mixed_network_out_is_wrong():
    """Appendix G: `∇_A f(θ) = ∇_A f(θ̂_A)/r_A` holds only where the whole network is invariant."""
    random = np.random.default_rng(12)
    hidden = NETWORK.mask("hidden")
    radius = np.linalg.norm(hidden * THETA)
    # At θ_{A^c} = 0 itself the normalization would divide by zero.
    for rest in (1e-6 * random.normal(size=THETA.size), random.normal(size=THETA.size)):
        naive = hidden * NETWORK.gradient(hidden * THETA / radius + (1 - hidden) * rest) / radius
        assert np.all(np.isfinite(naive))
        assert relative(naive, hidden * GRADIENT) > 0.01


# --- translation ----------------------------------------------------------------------------


def row_masks(name):
    masks = []
    for unit in range(PARAMS[name].shape[0]):
        marked = {key: np.zeros(leaf.shape) for key, leaf in PARAMS.items()}
        marked[name][unit] = 1
        masks.append(flat(marked))
    return masks


SHIFTED = {"whole": NETWORK.mask("readout")} | {
    f"unit {i}": mask for i, mask in enumerate(row_masks("readout"))
}


@pytest.mark.parametrize("name", SHIFTED)
def test_a_translation_invariant_layer(name):
    ones = SHIFTED[name]
    projection = np.outer(ones, ones) / ones.sum()
    inside, outside = ones * THETA, (1 - ones) * THETA
    perpendicular = projection @ inside
    parallel = inside - perpendicular
    sizes = np.linalg.norm(GRADIENT), np.linalg.norm(HESSIAN), np.linalg.norm(inside)
    assert np.linalg.norm(perpendicular) > 0.02 * sizes[2]
    assert abs(perpendicular @ parallel) < 1e-15 * sizes[2] ** 2
    assert abs(ones @ GRADIENT) < 1e-15 * ones.sum() * sizes[0]
    assert np.linalg.norm(projection @ GRADIENT) < 1e-15 * sizes[0]
    assert abs(perpendicular @ GRADIENT) < 1e-15 * sizes[2] * sizes[0]
    assert np.linalg.norm(HESSIAN @ ones) < 1e-14 * sizes[1]
    assert np.linalg.norm(projection @ HESSIAN) < 1e-14 * sizes[1]
    assert np.linalg.norm(HESSIAN @ perpendicular) < 1e-14 * sizes[1] * sizes[2]
    assert relative(NETWORK.gradient(parallel + outside), GRADIENT) < 1e-13
    assert relative(NETWORK.hessian(parallel + outside), HESSIAN) < 1e-13
