"""Full batches larger than memory: the mean over all samples, one chunk of them at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .function import require_scalar
from .host_call import host_call
from .model import Constant
from .samples import sample_count


@dataclass(frozen=True)
class Chunks:
    """The mean over all samples of a loss that is given as the mean over those of a chunk.

    Attributes:
        loss: `loss(params, chunk)`, the mean over the samples of a chunk.
        size: The number of samples of a chunk; the last one may be smaller.
        files: Data that stay where they are: each chunk is read when it is needed. They are no
            argument, for whatever is one is brought into memory whole.
    """

    loss: Callable[..., Any]
    size: int
    files: Constant | None = None

    def __call__(self, params: PyTree, data: PyTree = None) -> Any:
        # Reverse mode keeps what a chunk was computed from, which is where it starts, and computes
        # the rest anew: there are intermediate results of one chunk at a time.
        of_chunk = jax.checkpoint(
            lambda params, start: self.mean(params, data, start, self.size), prevent_cse=False
        )
        count = self.count(data)
        whole, rest = divmod(count, self.size)
        totals = []
        if whole:
            starts = self.size * jnp.arange(whole)
            means = jax.lax.map(lambda start: of_chunk(params, start), starts)
            totals.append(self.size * jnp.sum(means))
        if rest:
            totals.append(rest * self.mean(params, data, whole * self.size, rest))
        return sum(totals) / count

    def count(self, data: PyTree) -> int:
        """The number of samples."""
        return sample_count(data if self.files is None else self.files.tree())

    def mean(self, params: PyTree, data: PyTree, start: Any, size: int) -> Any:
        """The mean over `size` samples from `start` on."""
        read = self._slice if self.files is None else self._load
        return require_scalar(self.loss(params, read(data, start, size)))

    def _slice(self, data: PyTree, start: Any, size: int) -> PyTree:
        part = jax.lax.dynamic_slice_in_dim
        return jax.tree.map(lambda leaf: part(jnp.asarray(leaf), start, size), data)

    def _load(self, data: None, start: Any, size: int) -> PyTree:
        del data
        assert self.files is not None
        files = self.files.tree()

        # In the byte order of this machine, whatever that of the file is.
        def dtype_of(leaf: Any) -> Any:
            return jax.dtypes.canonicalize_dtype(leaf.dtype.newbyteorder("="))

        def load(start: Any) -> PyTree:
            part = slice(int(start), int(start) + size)
            return jax.tree.map(lambda leaf: np.asarray(leaf[part], dtype_of(leaf)), files)

        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), dtype_of(leaf)), files
        )
        return host_call(load, shapes, start)


def chunks_of(loss: Callable[..., Any], data: PyTree, size: int) -> tuple[Chunks, PyTree]:
    """The mean over chunks and the data that it takes: none if they stay in files."""
    sample_count(data)
    if any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(data)):
        return Chunks(loss, size, Constant.by_identity(data)), None
    return Chunks(loss, size), data
