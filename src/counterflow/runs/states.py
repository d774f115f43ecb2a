"""States on disk: the arrays of a pytree in one safetensors file, whole or not there at all."""

import os
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..data.files import read_plain

# What a file holds besides its arrays: a header of some dozen bytes for each, and a few more.
_HEADER, _HEADER_OF_AN_ARRAY = 1000, 1000


def pack(state: PyTree) -> bytes:
    """The arrays of a state as the content of a file."""
    leaves = jax.tree.leaves(state)
    # One transfer of all arrays; a scalar keeps its shape.
    arrays = {str(i): np.asarray(leaf, order="C") for i, leaf in enumerate(jax.device_get(leaves))}
    return save(arrays)


def write_state(path: Path, state: PyTree) -> str:
    """Writes a state aside, makes it safe on disk and renames it; returns its SHA-256."""
    content = pack(state)
    aside = path.with_suffix(".part")
    with ThreadPoolExecutor(1) as beside:  # a digest of many megabytes takes as long as the disk
        digest = beside.submit(sha256, content)
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync_folder(path.parent)
    return digest.result().hexdigest()


def read_state(path: Path, digest: str, like: PyTree) -> PyTree:
    """The state in a file, with the structure of another one.

    Nothing in it is looked at before it is known to be what was written.

    Raises:
        ValueError: If the file is not what was written, or belongs to another structure.
        OSError: If it cannot be read, or is longer than such a state can be.
    """
    leaves = jax.tree.leaves(like)
    most = _HEADER + sum(_HEADER_OF_AN_ARRAY + jnp.asarray(leaf).nbytes for leaf in leaves)
    content = read_plain(path, most)
    if sha256(content).hexdigest() != digest:
        raise ValueError(f"{path} is damaged: its SHA-256 is not the one that was noted")
    try:
        return unpack(content, like)
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error


def unpack(content: bytes, like: PyTree) -> PyTree:
    """The state that `pack` made a content of, with the structure of another one."""
    try:
        arrays = load(content)
    except SafetensorError as error:
        raise ValueError(f"is damaged: {error}") from error
    leaves, structure = jax.tree.flatten(like)
    expected = {str(i): (jnp.shape(x), jnp.result_type(x)) for i, x in enumerate(leaves)}
    if {name: (array.shape, array.dtype) for name, array in arrays.items()} != expected:
        raise ValueError(
            "was written by another version of counterflow: it does not hold the state of this run"
        )
    return jax.tree.unflatten(structure, [jnp.asarray(arrays[name]) for name in expected])


def sync_folder(folder: Path) -> None:
    """Makes safe on disk which files a folder holds."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
