"""The coefficients of ROCK4: those of four stages do not depend on where rounding leads."""

import numpy as np
import pytest

from counterflow.solvers import rock4_coefficients as found
from counterflow.solvers.rock4_coefficients import STAGES


@pytest.mark.parametrize("stages", [10, 30, 90])
def test_a_weight_that_vanishes_is_neither_a_pole_nor_a_root(stages):
    # Where b3 is zero no four stages fit, and the equation for the fourth node must not seem to
    # have a solution there: a root finder would run into a division by zero, or not, by rounding.
    reach = 0.34 * stages**2
    recurrence, _ = found._polynomials(stages, reach, found._START)
    wanted = found._missing(found._series(recurrence, reach))
    fourths = np.linspace(0.95, 1.15, 2001)
    nodes = [wanted[0] * np.array([0.4, 0.35, fourth]) for fourth in fourths]
    weights = np.array([found._weights(wanted, some) for some in nodes])
    assert weights[0, 1] * weights[-1, 1] < 0
    excess = np.array([found._tallest(wanted, some) for some in nodes])
    jumps = np.abs(np.diff(excess))
    assert jumps.max() < 2 * jumps.min()
    assert jumps.max() < 1e-2 * np.abs(excess).max()


@pytest.mark.parametrize("stages", STAGES)
def test_coefficients_are_small_and_meet_the_tallest_tree(stages):
    method = found.coefficients(stages)
    assert np.max(np.abs([*method.matrix, *method.weights])) < 1
    a21, a43 = method.matrix[0], method.matrix[5]
    a32 = method.matrix[2]
    begun = found._series(_unscaled(method), method.reach)
    wanted = found._missing(begun)
    assert method.weights[3] * a43 * a32 * a21 == pytest.approx(wanted[7], rel=1e-9)


def _unscaled(method):
    """The recurrence in x = 1 + 2z/ℓ, from that in z."""
    rows = method.recurrence.copy()
    rows[:, 0] *= method.reach / 2
    rows[:, 1] -= rows[:, 0]
    return rows
