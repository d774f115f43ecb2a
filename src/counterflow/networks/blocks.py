"""Images in blocks of similar ones, each without the pixels that are blank in all of its images.

The product of images with weights is most of the cost of a gradient, and most pixels of a drawing
are blank. Of all images alike, few pixels can be left out: some image has ink almost everywhere. Of
some hundred images with ink in the same places, half of them can.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import linear_call
from jaxtyping import Array, Float, Int

# So many blocks make one array of products: more, and it takes longer for being far from the cache.
_TOGETHER = 16
# So many images tell the direction along which others differ most, after so many iterations.
_TOLD_BY, _ITERATIONS = 4_000, 6


class Blocks(NamedTuple):
    """Images in blocks; `times` is their product with weights.

    Attributes:
        parts: By block, the images at the block's pixels, less what a blank pixel has.
        transposed: The same once more, transposed: a gradient multiplies by these.
        pixels: The numbers of the blocks' pixels, one block after another.
        blank: What each pixel has where it is blank.
    """

    parts: tuple[Float[Array, "images pixels"], ...]
    transposed: tuple[Float[Array, "pixels images"], ...]
    pixels: Int[Array, " all"]
    blank: Float[Array, " pixels"]

    def times(self, weights: Float[Array, "pixels outputs"]) -> tuple[Array, ...]:
        """The product with weights, images in the order of the blocks; not for `vmap`.

        In several arrays, one after another, each with the images of some blocks.
        """
        return linear_call(_product, _transposed_product, self, weights)


def _product(blocks: Blocks, weights: Float[Array, "pixels outputs"]) -> tuple[Array, ...]:
    products = _each(blocks.parts, weights[blocks.pixels])
    background = (blocks.blank @ weights)[None, :]
    return tuple(jnp.concatenate(some) + background for some in _together(products))


def _transposed_product(blocks: Blocks, values: tuple[Array, ...]) -> Array:
    products = [
        product
        for factors, rows in zip(_together(blocks.transposed), values, strict=True)
        for product in _each(factors, rows)
    ]
    sums = total(jnp.sum(rows, axis=0, keepdims=True) for rows in values)
    return (blocks.blank[:, None] * sums).at[blocks.pixels].add(jnp.concatenate(products))


def total(values: Iterable[Array]) -> Array:
    """The sum of arrays, of which there is at least one."""
    return reduce(add, values)


def _each(factors: Sequence[Array], rows: Array) -> list[Array]:
    """The products of matrices, each with its own of the rows."""
    ends = np.cumsum([factor.shape[1] for factor in factors])
    pairs = zip(factors, jnp.split(rows, ends[:-1]), strict=True)
    return [factor @ own for factor, own in pairs]


def _together(blocks: Sequence[Array]) -> list[Sequence[Array]]:
    return [blocks[first : first + _TOGETHER] for first in range(0, len(blocks), _TOGETHER)]


def in_blocks(
    inputs: Float[np.ndarray, "samples pixels"], least: int = 800, rarity: float = 0.75
) -> tuple[Blocks, np.ndarray]:
    """Images in blocks, and which images they are, in the order of the blocks.

    Halved again and again along the direction in which their ink differs most.

    Args:
        inputs: The images; a pixel is blank where it has its least value.
        least: How many images a block has at least; products with few are not as fast.
        rarity: How much more rare ink counts than frequent ink: one image with ink of its own costs
            its whole block a pixel. Ink in a share f of the images has the weight `f^−rarity`.

    Example:
        >>> images = np.array([[0.0, 1, 0], [0, 0, 2]])
        >>> blocks, order = in_blocks(images)
        >>> blocks.times(jnp.eye(3)), order
        ((Array([[0., 1., 0.],
                [0., 0., 2.]], dtype=float64),), array([0, 1]))
    """
    blank = np.min(inputs, axis=0)
    ink = inputs != blank
    halvings = max(int(np.log2(len(inputs) / least)), 0)
    groups = [np.arange(len(inputs))]
    for _ in range(halvings):
        groups = [half for group in groups for half in _halves(ink, group, rarity)]
    pixels = [np.flatnonzero(ink[group].any(axis=0)) for group in groups]
    parts = [(inputs[group] - blank)[:, own] for group, own in zip(groups, pixels, strict=True)]
    blocks = Blocks(
        tuple(jnp.array(part) for part in parts),
        tuple(jnp.array(part.T) for part in parts),
        jnp.asarray(np.concatenate(pixels)),
        jnp.asarray(blank),
    )
    return blocks, np.concatenate(groups)


def _halves(ink: np.ndarray, group: np.ndarray, rarity: float) -> list[np.ndarray]:
    """A group of images in two halves, each with ink in fewer places."""
    telling = ink[group[:: -(-len(group) // _TOLD_BY)]].astype(np.float32)
    frequency = telling.mean(axis=0)
    weights = np.where(frequency > 0, np.maximum(frequency, 1e-6) ** -rarity, 0)
    telling = (telling - frequency) * weights
    direction = np.random.default_rng(0).normal(size=len(weights)).astype(np.float32)
    for _ in range(_ITERATIONS):
        direction = telling.T @ (telling @ direction)
        direction = direction / (np.linalg.norm(direction) or 1)
    along = ink[group].astype(np.float32) @ (weights * direction).astype(np.float32)
    order = np.argsort(along, kind="stable")
    return [np.sort(group[half]) for half in np.array_split(order, 2)]
