"""How far apart two runs are: planted differences are found, in their own measure."""

from dataclasses import replace

import numpy as np
import pytest

from command_line import TINY, reproduce
from counterflow.runs.agreement import apart


def test_planted_differences_are_found_in_their_own_measure(tmp_path):
    run = reproduce(tmp_path, "figure2", *TINY)
    assert set(apart(run, run).values()) == {0.0}
    name, known = next(iter(run.trainings.items()))
    norm = known.flow(0, "error")[-1] / known.flow(0, "relative_error")[-1]
    planted = {
        ("descent", "loss"): known("descent", "loss") * (1 + 1e-9),
        ("flow 0", "error"): known.flow(0, "error") + norm * 1e-7 * (known.flow(0, "error") > 0),
        ("flow 0", "propagated_mismatch"): known.flow(0, "propagated_mismatch") + 1e-6,
    }
    other = replace(run, trainings={name: replace(known, series={**known.series, **planted})})
    found = apart(run, other)
    np.testing.assert_allclose(found["loss"], 1e-9, rtol=1e-5)
    np.testing.assert_allclose(found["error"], 1e-7, rtol=0.1)
    np.testing.assert_allclose(
        found["propagated_mismatch"], 1e-6 * known.flow(0, "relative_error").max(), rtol=1e-5
    )
    cut = {key: values[:-1] for key, values in known.series.items()}
    shorter = replace(known, series=cut, steps=known.steps[:-1])
    with pytest.raises(ValueError, match=rf"the same series and records of {name}, got"):
        apart(run, replace(run, trainings={name: shorter}))
    with pytest.raises(ValueError, match="the same trainings"):
        apart(run, replace(run, trainings={}))
    lost = {("descent", "loss"): np.full_like(known("descent", "loss"), np.nan)}
    other = replace(run, trainings={name: replace(known, series={**known.series, **lost})})
    assert apart(run, other)["loss"] == np.inf
