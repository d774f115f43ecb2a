"""The handwritten digits that come with scikit-learn: 1797 images of 8 × 8 pixels."""

import numpy as np
from sklearn.datasets import load_digits

from .dataset import Dataset


def digits() -> Dataset:
    """The digits data set, pixels scaled from 0 … 16 to −1 … 1, in double precision.

    >>> digits().inputs.shape, digits().targets.shape
    ((1797, 64), (1797, 10))
    """
    bunch = load_digits()
    inputs = np.asarray(bunch.data, dtype=np.float64) / 8 - 1  # pyright: ignore
    targets = np.eye(10)[bunch.target]  # pyright: ignore
    return Dataset(inputs, targets)
