"""The figure of a comparison, looked at through its specification and its files."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from users import import_as_users_do


def quartic(theta):
    return jnp.sum(theta**4) / 4


@pytest.fixture(scope="module")
def comparison():
    problem = cf.Problem(quartic)
    return cf.compare(problem, jnp.array([1.0, 0.5]), 0.02, 60, (0, 1), records=20, restart=15)


def points(chart):
    """The rows of a chart's data, whichever part of the specification holds them."""
    specification = json.loads(chart.to_json())
    datasets = list(specification.get("datasets", {}).values())
    return datasets[0] if datasets else specification["data"]["values"]


def test_every_curve_of_every_order_is_drawn(comparison):
    rows = points(cf.plot(comparison, scale="linear"))
    curves = {row["curve"] for row in rows}
    assert curves == {
        "measured",
        "local prediction (paper)",
        "propagated prediction",
        "local from step 15",
        "propagated from step 15",
    }
    assert {row["order"] for row in rows} == {"gradient flow (γ = 0)", "EoM of the paper (γ = 1)"}


def test_the_points_are_the_measured_errors(comparison):
    rows = points(cf.plot(comparison, scale="linear"))
    measured = [
        row["error"]
        for row in rows
        if row["curve"] == "measured" and row["order"].startswith("gradient flow")
    ]
    np.testing.assert_allclose(measured, comparison.error[0])
    relative = points(cf.plot(comparison, scale="linear", relative=True))
    shown = [
        row["error"]
        for row in relative
        if row["curve"] == "measured" and row["order"].startswith("EoM")
    ]
    np.testing.assert_allclose(shown, comparison.relative_error[1, 1:])  # 0/0 at the start


def test_a_logarithmic_scale_shows_positive_values_only(comparison):
    chart = cf.plot(comparison)
    assert min(row["error"] for row in points(chart)) > 0
    assert '"type": "log"' in chart.to_json()
    assert '"type": "log"' not in cf.plot(comparison, scale="linear").to_json()


def test_the_solver_error_is_drawn_where_it_matters_and_named_where_not(comparison):
    assert "solver error at most" in cf.plot(comparison).to_json()
    spoiled = dataclasses.replace(comparison, solver_error=comparison.error / 5)
    chart = cf.plot(spoiled)
    assert "solver error" in {row["curve"] for row in points(chart)}
    assert "solver error at most" not in chart.to_json()


def test_long_runs_are_thinned(comparison):
    records = 5001

    def stretched(values):
        return np.repeat(values[:, -1:], records, axis=1)

    long = dataclasses.replace(
        comparison,
        steps=np.arange(records),
        error=stretched(comparison.error),
        relative_error=stretched(comparison.relative_error),
        solver_error=stretched(comparison.solver_error),
        flow_loss=stretched(comparison.flow_loss),
        solver_limited=stretched(comparison.solver_limited),
        descent_loss=np.ones(records),
        predictions={},
    )
    rows = points(cf.plot(long))
    assert len(rows) <= 2 * 400
    assert {row["step"] for row in rows} >= {0, 5000}


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_it_is_written_without_a_browser(comparison, suffix, tmp_path):
    path = tmp_path / f"figure.{suffix}"
    cf.plot(comparison).save(path)
    start = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(start)


def test_bad_input(comparison):
    with pytest.raises(ValueError, match="`scale` must be 'log' or 'linear', got 'cubic'"):
        cf.plot(comparison, scale="cubic")
    (users,) = import_as_users_do("counterflow")
    with pytest.raises(TypeError, match="must be what `compare` returned, got int"):
        users.plot(3)
    first = {
        name: getattr(comparison, name)[:, :1]
        for name in ("error", "relative_error", "solver_error", "solver_limited", "flow_loss")
    }
    losses = {"descent_loss": comparison.descent_loss[:1]}
    short = dataclasses.replace(comparison, steps=comparison.steps[:1], **first, **losses)
    with pytest.raises(ValueError, match="at least two records to be drawn, got 1"):
        cf.plot(short)
