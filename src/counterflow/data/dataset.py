"""A data set as two arrays, and the data sets that come by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Real

Name = Literal["digits", "mnist", "fashion-mnist"]
NAMES: tuple[str, ...] = get_args(Name)

# Called during a download with the name of the file, the bytes done and the bytes in all; the last
# is 0 where the server does not say.
Progress = Callable[[str, int, int], None]


class DataError(ValueError):
    """A file of a data set is missing, damaged or another than it should be."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images as rows of pixels, as precise as their files have them, and their classes.

    Attributes:
        pixels: The brightness of every pixel, from 0 on.
        white: The largest brightness.
        targets: The classes as one-hot rows.
    """

    pixels: Real[np.ndarray, "samples pixels"]
    white: int
    targets: Float[np.ndarray, "samples classes"]

    @property
    def inputs(self) -> Float[np.ndarray, "samples pixels"]:
        """The images, scaled to [−1, 1] in double precision: of MNIST 376 MB, made anew."""
        inputs = self.pixels / (self.white / 2)
        inputs -= 1
        return inputs


def silent(file_name: str, done_bytes: int, total_bytes: int) -> None:
    """Nothing: the progress of a download that nobody watches."""


def load(name: str, folder: Path | None = None, progress: Progress = silent) -> Dataset:
    """The data set called `name`, one of `NAMES`; of MNIST and Fashion-MNIST the training set.

    The digits come with scikit-learn. The other two are downloaded once and kept in a cache, or
    read from `folder` if one is given; `progress` is told how a download goes.

    >>> load("digits").inputs.shape
    (1797, 64)
    """
    # Not at the top of the file: those modules take `Dataset` from this one, and whoever only
    # asks for `NAMES` does not wait for scikit-learn.
    from .digits import digits
    from .mnist import fashion_mnist, mnist

    if name == "digits":
        if folder is not None:
            raise ValueError(
                f"`folder` must be None for digits, got {folder}: they come with scikit-learn, "
                "only mnist and fashion-mnist are read from files"
            )
        return digits()
    if name == "mnist":
        return mnist(folder, progress)
    if name == "fashion-mnist":
        return fashion_mnist(folder, progress)
    raise ValueError(f"`name` must be one of {', '.join(NAMES)}, got {name!r}")
