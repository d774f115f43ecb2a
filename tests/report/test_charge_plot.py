"""The figure of a charge shows every order's gap, and that of recorded gradients."""

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from users import import_as_users_do

PROBLEM = cf.Problem(lambda p: p[0] / jnp.sqrt(p @ p), weight_decay=0.1)


@pytest.fixture(scope="module")
def comparison():
    return cf.compare_charges(PROBLEM, cf.Scale(""), jnp.array([0.6, 0.8]), 0.1, 20, records=5)


def test_every_gap_is_drawn(comparison):
    rows = cf.plot_charges(comparison).to_dict()["data"]["values"]
    curves = ["gradient flow (γ = 0)", "EoM of the paper (γ = 1)"]
    drawn = [[row["gap"] for row in rows if row["curve"] == curve] for curve in curves]
    np.testing.assert_array_equal(drawn, comparison.gap[:, 1:])  # at the start there is none
    recorded = [row["gap"] for row in rows if row["curve"].startswith("recorded")]
    np.testing.assert_array_equal(recorded, comparison.recorded_gap[1:])


def test_the_title_says_what_it_is_and_it_can_be_saved(comparison, tmp_path):
    chart = cf.plot_charges(comparison)
    assert chart.to_dict()["title"] == "Scale(''), η = 0.1, λ = 0.1"
    chart.save(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_something_else_is_refused():
    (users,) = import_as_users_do("counterflow")
    with pytest.raises(TypeError, match="must be what `compare_charges` returned, got int"):
        users.plot_charges(3)
