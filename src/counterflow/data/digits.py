"""The handwritten digits that come with scikit-learn: 1797 images of 8 × 8 pixels."""

import numpy as np
from sklearn.datasets import load_digits

from .dataset import Dataset


def digits() -> Dataset:
    """The digits data set, whose pixels are from 0 to 16.

    >>> digits().inputs.shape, digits().targets.shape
    ((1797, 64), (1797, 10))
    """
    bunch = load_digits()
    pixels = np.asarray(bunch.data)  # pyright: ignore
    return Dataset(pixels, 16, np.eye(10)[bunch.target])  # pyright: ignore
