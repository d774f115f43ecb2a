"""Images in blocks of four similar ones, each without the pixels that are blank in all of them.

The product of images with weights is most of the cost of a gradient, and most pixels of a drawing
are blank. Of all images alike, few pixels can be left out: some image has ink almost everywhere. Of
four images with ink in the same places, three quarters of them can.
"""

from collections.abc import Iterable
from functools import reduce
from operator import add

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import linear_call
from jaxtyping import Array, Float, Int, Real

from .block_products import IMAGES, product, transposed_product

# At most so many blocks make one array of products: larger ones are far from caches.
_TOGETHER = 2_000
# Images are halved until so many are left: these are taken as they come.
_LEAST = 2 * IMAGES
# So many images tell the direction along which others differ most, after so many iterations.
_TOLD_BY, _ITERATIONS = 4_000, 6


class Part(eqx.Module):
    """Some blocks, one after another; an entry is a pixel of a block.

    Attributes:
        starts: At which entry each block starts, and after the last of them how many there are.
        pixels: By entry, the number of its pixel.
        values: By entry, what the images of its block have there, less what a blank pixel has.
        images: How many images there are: of the last block maybe less than it has room for.
    """

    starts: Int[Array, " starts"]
    pixels: Int[Array, " entries"]
    values: Float[Array, "entries 4"]
    images: int = eqx.field(static=True)

    @property
    def _missing(self) -> int:
        return IMAGES * (len(self.starts) - 1) - self.images

    def times(self, weights: Float[Array, "pixels outputs"]) -> Float[Array, "images outputs"]:
        """The product of the images with weights, where what is blank counts as 0."""
        rows = product(self.starts, self.pixels, self._as(weights), weights)
        return rows[: self.images]

    def transposed_times(
        self, rows: Float[Array, "images outputs"], pixels: int
    ) -> Float[Array, "pixels outputs"]:
        """The product of the transposed images, of so many pixels, with rows."""
        if self._missing:
            rows = jnp.pad(rows, ((0, self._missing), (0, 0)))
        return transposed_product(self.starts, self.pixels, self._as(rows), rows, pixels)

    def _as(self, other: Array) -> Array:
        return self.values.astype(other.dtype)


class Blocks(eqx.Module):
    """Images in blocks; `times` is their product with weights.

    Attributes:
        parts: The blocks, some together.
        blank: What each pixel has where it is blank.
    """

    parts: tuple[Part, ...]
    blank: Float[Array, " pixels"]

    def times(self, weights: Float[Array, "pixels outputs"]) -> tuple[Array, ...]:
        """The product with weights, images in the order of the blocks; not for `vmap`.

        In several arrays, one after another, each with the images of some blocks.
        """
        return linear_call(_product, _transposed_product, self, weights)


def _product(blocks: Blocks, weights: Float[Array, "pixels outputs"]) -> tuple[Array, ...]:
    background = (blocks.blank.astype(weights.dtype) @ weights)[None, :]
    return tuple(part.times(weights) + background for part in blocks.parts)


def _transposed_product(blocks: Blocks, values: tuple[Array, ...]) -> Array:
    pixels = len(blocks.blank)
    pairs = zip(blocks.parts, values, strict=True)
    products = total(part.transposed_times(rows, pixels) for part, rows in pairs)
    sums = total(jnp.sum(rows, axis=0, keepdims=True) for rows in values)
    return products + blocks.blank[:, None].astype(sums.dtype) * sums


def total(values: Iterable[Array]) -> Array:
    """The sum of arrays, of which there is at least one."""
    return reduce(add, values)


def in_blocks(
    inputs: Real[np.ndarray, "samples pixels"],
) -> tuple[Blocks, np.ndarray]:
    """Images in blocks, and which images they are, in the order of the blocks.

    Halved again and again along the direction in which their ink differs most. For processors, not
    for accelerators.

    Args:
        inputs: The images; a pixel is blank where it has its least value.

    Example:
        >>> images = np.array([[0.0, 1, 0], [0, 0, 2]])
        >>> blocks, order = in_blocks(images)
        >>> blocks.times(jnp.eye(3)), order
        ((Array([[0., 1., 0.],
                [0., 0., 2.]], dtype=float64),), array([0, 1]))
    """
    if not len(inputs):
        raise ValueError("there must be at least one image, got none")
    if not np.issubdtype(inputs.dtype, np.floating):  # whole numbers overflow
        inputs = inputs.astype(float)
    blank = np.min(inputs, axis=0)
    ink = inputs != blank
    halvings = int(np.ceil(np.log2(max(len(inputs) / _LEAST, 1))))
    groups = [np.arange(len(inputs))]
    for _ in range(halvings):
        groups = [half for group in groups for half in _halves(ink, group)]
    order = np.concatenate(groups)
    blocks = -(-len(order) // IMAGES)
    # XLA gives half of what there is to do to another core: a power of two is shared evenly.
    count = 2 ** max(0, int(np.ceil(np.log2(blocks / _TOGETHER))))
    images = IMAGES * -(-blocks // count)
    parts = [
        _part(inputs[some] - blank) for some in np.split(order, range(images, len(order), images))
    ]
    return Blocks(tuple(parts), jnp.asarray(blank)), order


def _part(images: Float[np.ndarray, "images pixels"]) -> Part:
    count, pixels = images.shape
    blocks = -(-count // IMAGES)
    padded = np.pad(images, ((0, IMAGES * blocks - count), (0, 0)))
    turned = padded.reshape(blocks, IMAGES, pixels).transpose(0, 2, 1)
    block, pixel = np.nonzero(turned.any(axis=2))
    starts = np.searchsorted(block, np.arange(blocks + 1))
    starts, numbers = (jnp.asarray(some, jnp.int32) for some in (starts, pixel))
    return Part(starts, numbers, jnp.asarray(turned[block, pixel]), count)


def _halves(ink: np.ndarray, group: np.ndarray) -> list[np.ndarray]:
    """A group of images in two halves, each with ink in fewer places."""
    telling = ink[group[:: -(-len(group) // _TOLD_BY)]].astype(np.float32)
    telling -= telling.mean(axis=0)
    direction = np.random.default_rng(0).normal(size=ink.shape[1]).astype(np.float32)
    for _ in range(_ITERATIONS):
        direction = telling.T @ (telling @ direction)
        direction = direction / (np.linalg.norm(direction) or 1)
    along = ink[group].astype(np.float32) @ direction
    order = np.argsort(along, kind="stable")
    return [np.sort(group[half]) for half in np.array_split(order, 2)]
