"""The experiments on symmetries: small runs here; the pages quote the committed large ones."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.data.digits import digits
from counterflow.experiments import (
    architectures,
    charge_gaps,
    decay_rates,
    limiting_dynamics,
    path_sharpness,
    planar_equilibria,
)
from counterflow.experiments.setting import digits_network

SMALL = (4, 3)


def test_the_decay_rate_is_the_logarithm_to_eleven_digits(tmp_path):
    settings = decay_rates.DecayRates(
        pairs=((0.1, 0.01), (0.01, 0.001)), steps=2000, records=40, hidden_widths=SMALL
    )
    result = decay_rates.run(settings, tmp_path)
    assert result.verdict, (result.claims, result.rows)
    assert decay_rates.run(settings, tmp_path) == result
    # A rate that is off in the tenth digit is told.
    off = replace(result.rows[0], measured=result.rows[0].measured * (1 + 1e-10))
    claims = replace(result, rows=(off, result.rows[1])).claims
    assert not claims["the measured rate is −log(1 − ηλ) to 1e-11"]


def test_the_papers_column_is_that_of_a_learning_rate_in_single_precision():
    for (rate, decay), printed in decay_rates.PRINTED.items():
        row = decay_rates.Row(rate, decay, printed)
        assert abs(printed / row.single_precision - 1) < 1e-11
        assert abs(printed / row.exact - 1) > 1e-9


def test_each_order_is_closer_to_the_charge_of_descent(tmp_path):
    settings = charge_gaps.ChargeGaps(
        orders=(0, 1),
        steps=(20, 10, 20),
        records=2,
        hidden_widths=SMALL,
        linear_widths=(3,),
    )
    result = charge_gaps.run(settings, tmp_path)
    assert [row.symmetry for row in result.rows] == ["scale", "translation", "rescale"]
    claims = dict(result.claims)
    # That takes more orders than are affordable here.
    claims.pop("the highest order is closer than gradients recorded from descent")
    assert all(claims.values()), (claims, [row.largest_gaps for row in result.rows])
    assert charge_gaps.run(settings, tmp_path) == result


@pytest.fixture(scope="module")
def limits(tmp_path_factory):
    settings = limiting_dynamics.LimitingDynamics(
        steps=200, parts=2, flow_time=0.5, hidden_widths=SMALL
    )
    folder = tmp_path_factory.mktemp("limits")
    return settings, folder, limiting_dynamics.run(settings, folder)


def test_the_exact_fixed_point_is_reached_in_the_plane_and_not_by_gradient_flow(tmp_path):
    settings = planar_equilibria.PlanarEquilibria(steps=300)
    result = planar_equilibria.run(settings, tmp_path)
    assert result.verdict, result.rows
    cycle, rotation = result.rows
    decayed = np.exp(-settings.weight_decay * settings.flow_time)
    for case in (cycle, rotation):
        # Gradient flow has no equilibrium: it started at 1.05 r_*.
        assert case.radius_flows[0] == pytest.approx(1.05 * case.radius_exact * decayed, rel=1e-5)
    assert all(radius < 0.1 for radius in cycle.radius_flows)
    assert rotation.radius_flows[1] == pytest.approx(rotation.radius_paper, rel=1e-2)


def test_a_run_in_parts_is_the_run_as_a_whole(limits):
    settings, folder, result = limits
    problem, params = digits_network(SMALL, settings.weight_decay, settings.seed)
    whole = cf.equilibrium(
        problem, cf.Scale("hidden"), params, settings.learning_rate, 200, windows=2
    )
    np.testing.assert_array_equal(result.run.steps, whole.steps)
    np.testing.assert_allclose(result.run.radius, whole.radius_mean, rtol=1e-8)
    np.testing.assert_allclose(result.run.angle, whole.angle_mean, rtol=1e-8)
    # Nothing is left lying about, and what is on file is not computed again.
    assert [path.name for path in folder.iterdir()] == ["limiting_dynamics.json"]
    assert limiting_dynamics.run(settings, folder) == result


def test_a_run_that_was_stopped_goes_on_from_its_state(limits, tmp_path, monkeypatch):
    settings, _, result = limits

    def stop(name, done, total):
        if name == "part 2":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        limiting_dynamics.run(settings, tmp_path, stop)
    assert (tmp_path / "limiting_dynamics.1.npz").exists()
    descend, parts = limiting_dynamics._descend, []

    def counted(settings, part, params):
        parts.append(part)
        return descend(settings, part, params)

    monkeypatch.setattr(limiting_dynamics, "_descend", counted)
    assert limiting_dynamics.run(settings, tmp_path).run == result.run
    assert parts == [1]  # the first part is not run again


def test_a_run_whose_state_is_lost_runs_the_parts_before_again(limits, tmp_path):
    settings, folder, result = limits
    stored = json.loads((folder / "limiting_dynamics.json").read_text(encoding="utf-8"))
    del stored["results"]["part 2"]
    (tmp_path / "limiting_dynamics.json").write_text(json.dumps(stored), encoding="utf-8")
    assert limiting_dynamics.run(settings, tmp_path).run == result.run


@pytest.mark.parametrize(
    "name", ["the paper's network", "transformer block with layer normalization"]
)
def test_what_is_found_is_what_is_expected(name):
    network, data = architectures.architectures()[name], digits()
    arrays = (jnp.asarray(data.inputs[:60]), jnp.asarray(data.targets[:60]))
    found = cf.find_symmetries(cf.Problem(network.loss, data=arrays), network.params)
    assert set(found) == set(network.expected)
    assert found.unused == network.unused
    assert found.nearly == ()


def test_sharpness_is_the_largest_eigenvalue_along_both_paths(tmp_path):
    settings = path_sharpness.PathSharpness(
        learning_rates=(0.05,), times=(0.5,), hidden_widths=(2, 2), seeds=(7,)
    )
    (row,) = path_sharpness.run(settings, tmp_path).rows
    problem, params = digits_network((2, 2), settings.weight_decay, 7)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    for dynamics, found in (
        (cf.GradientDescent(problem, 0.05), row.descent),
        (cf.GradientFlow(problem), row.flow),
    ):
        at = cf.solve(dynamics, params, [0.5]).params
        point = jnp.concatenate([jnp.ravel(at[name][0]) for name in sorted(at)])
        assert point.shape == flat.shape
        hessian = jax.hessian(lambda theta: problem.loss(unravel(theta)))(point)
        sharpness = np.linalg.eigvalsh(hessian)[-1] + settings.weight_decay
        assert found[0] == pytest.approx(sharpness, rel=1e-4)
