"""One's own problem: a run that is stopped at any record ends like one that is not."""

from dataclasses import replace
from itertools import count

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.experiments.analyse import analyse, prepared
from counterflow.experiments.carry_out import Watcher, findings
from counterflow.experiments.own.setting import checks_of, is_smooth
from counterflow.experiments.registry import OWN, experiments_of
from counterflow.problem.host_call import host_call
from counterflow.report.report import missing_of
from counterflow.runs.analysis import Analysis, digest_of
from counterflow.runs.training import Stopped

PARAMS = jnp.array([1.0, 0.5])


def loss(theta):
    return jnp.sum(theta**4) / 4


PROBLEM = cf.Problem(loss, weight_decay=0.1)
ANALYSIS = Analysis(
    "quartic.py:problem", digest_of(PROBLEM, PARAMS), 0.1, 0.1, 6, orders=(0, 1), records=3
)
CHECKS = checks_of(PROBLEM, PARAMS, ANALYSIS.orders)


def go(folder, stopping=lambda: False):
    return analyse(ANALYSIS, PROBLEM, PARAMS, CHECKS, folder, "typed", Watcher(), stopping)


def test_stopped_again_and_again_it_ends_with_the_same_bits(tmp_path):
    whole = go(tmp_path / "whole")
    for sitting in range(40):
        # Asked at every record and result, and at every learning rate that is tried for a bound,
        # which begins anew.
        asked = count()
        try:
            parts = go(tmp_path / "parts", lambda asked=asked, last=sitting: next(asked) == last)
        except Stopped:
            continue
        break
    (expected,), (found,) = whole.trainings.values(), parts.trainings.values()
    assert found.series.keys() == expected.series.keys()
    for key, values in expected.series.items():
        np.testing.assert_array_equal(found.series[key], values)
    assert parts.results == whole.results
    assert len(parts.sittings) > 5
    assert experiments_of(whole) == OWN
    assert missing_of(whole) == []
    # This loss has no symmetry to find, and so no charges to follow.
    told = {finding.name: finding for finding in findings(whole, OWN)}
    assert set(told) == {one.name for one in OWN} - {"charges"}
    assert not told["symmetries"].holds
    assert told["errors"].holds
    assert told["convergence"].holds


def test_what_is_left_to_the_problem_is_what_it_allows():
    assert prepared(ANALYSIS, PROBLEM, PARAMS) == (ANALYSIS, CHECKS)

    def cube(theta):
        return np.asarray(theta) ** 3

    on_the_host = cf.Problem.from_gradient(lambda theta: host_call(cube, jnp.zeros(2), theta))
    assert prepared(ANALYSIS, on_the_host, PARAMS)[0] == replace(ANALYSIS, method="orbit")
    kinked = cf.Problem(lambda theta: jnp.sum(jnp.abs(theta)) + loss(theta))
    near, far = jnp.array([0.05, -0.5]), replace(ANALYSIS, rtol=1e-7)
    assert prepared(ANALYSIS, kinked, near)[0] == replace(ANALYSIS, rtol=1e-5)
    assert prepared(far, kinked, near)[0] == far  # what was asked for stays
    # A costlier way to a derivative is no reason to do without it.
    costly = cf.Problem(lambda theta: jnp.sum(jnp.cumprod(1 + theta**2)))
    assert prepared(ANALYSIS, costly, PARAMS)[0] == ANALYSIS


def test_what_the_theory_does_not_apply_to_is_refused():
    calls = []

    def other_every_time(theta):
        calls.append(theta)
        return loss(theta) * len(calls)

    with pytest.raises(ValueError, match=r"does not apply to this problem: determinism"):
        checks_of(cf.Problem(other_every_time), PARAMS, (0, 1))


def test_along_kinks_there_are_no_bounds(tmp_path):
    problem = cf.Problem(lambda theta: jnp.sum(jnp.abs(theta)) + loss(theta))
    params = jnp.array([0.05, -0.5])
    checks = checks_of(problem, params, (0,))
    assert not is_smooth(checks)
    assert is_smooth(CHECKS)
    kinked = Analysis("kink.py:problem", "0", 0.0, 0.1, 4, orders=(0,), records=2, rtol=1e-3)
    run = analyse(kinked, problem, params, checks, tmp_path, "typed", Watcher(), lambda: False)
    for kind in ("local", "propagated"):
        assert "the loss has kinks" in run.results[f"{kind} bound"]["reason"]
    told = {finding.name: finding for finding in findings(run, OWN)}
    assert [claim.holds for claim in told["learning_rates"].claims][1:] == [False, False]
