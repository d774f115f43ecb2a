"""The bundled digits, scaled to −1 … 1."""

import numpy as np

from counterflow.data.digits import digits


def test_digits_are_scaled_and_one_hot():
    data = digits()
    assert data.inputs.shape == (1797, 64)
    assert data.inputs.dtype == np.float64
    assert (data.inputs.min(), data.inputs.max()) == (-1.0, 1.0)
    assert np.array_equal(data.targets.sum(1), np.ones(1797))
    assert list(data.targets[:3].argmax(1)) == [0, 1, 2]
