"""What is told of the symmetries of one's own problem, and of what nearly is one."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

import counterflow as cf
from counterflow.experiments.own import charges, symmetries
from counterflow.experiments.own.setting import OwnSetting, training_of
from counterflow.runs.analysis import Analysis
from counterflow.runs.run import Run, TrainingSeries

PARAMS = {"a": jnp.array([0.6, 0.8]), "b": jnp.array(1.0)}
ANALYSIS = Analysis("model.py:problem", "0", 0.1, 0.0, 2, orders=(0, 1), records=2)


def loss(params):
    length = jnp.sqrt(params["a"] @ params["a"] + 1e-5)
    return (params["a"][0] / length + params["b"]) ** 2


def run_of(found, series):
    steps = np.array([0, 1, 2])
    known = TrainingSeries(training_of(ANALYSIS), steps, 3, series, "completed", {}, 0.0)
    results = {"found symmetries": found}
    return Run(Path("run"), ANALYSIS, {known.training.name: known}, results, {}, ())


def test_what_nearly_is_a_symmetry_is_told_and_its_charge_followed():
    setting = OwnSetting(ANALYSIS, cf.Problem(loss), PARAMS, ())
    found = symmetries.found(setting)
    ((name, charge),) = setting.observables(PARAMS).items()
    assert (name, charge) == ("charge of Scale('a')", 1.0)
    residual = found["nearly"][0]["residual"]
    series = {
        ("descent", name): np.array([1.0, 1.1, 1.2]),
        ("flow 0", name): np.array([1.0, 1.0, 1.0]),
        ("flow 1", name): np.array([1.0, 1.1, 1.19]),
    }
    run = run_of(found, series)
    told = symmetries.EXPERIMENT.finding(run)
    (claim,) = told.claims
    assert not claim.holds  # it is none
    assert claim.figures == (
        f"none within the tolerance 1e-06; nearly: Scale('a'), residual {residual:.0e}"
    )
    assert "exact with a smaller epsilon" in told.caption
    assert told.table is not None
    assert told.table.rows == (("nearly Scale('a')", "1", f"{residual:.1e}"),)
    followed = charges.EXPERIMENT.finding(run)
    assert [claim.holds for claim in followed.claims] == [True]
    assert "Only nearly, as the symmetry itself: Scale('a')." in followed.caption
    assert followed.panels
    # A run of an earlier version did not look for it.
    del found["nearly"]
    earlier = run_of(found, series)
    assert symmetries.EXPERIMENT.finding(earlier).table is None
    assert charges.EXPERIMENT.finding(earlier).claims == ()
