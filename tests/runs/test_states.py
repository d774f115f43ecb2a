"""States on disk: every bit comes back, or it is said that it does not."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.runs.states import read_state, sync_folder, write_state


class Pair(NamedTuple):
    first: Any
    second: Any


# A NaN with a payload, both zeros, infinities, the smallest and the largest numbers.
BITS = np.array([0x7FF8000000000123, 0x8000000000000000, 0, 0x7FF << 52, 1, 0x7FEFFFFFFFFFFFFF])
STATE = {
    "bits": jnp.asarray(BITS.astype(np.uint64).view(np.float64)),
    "scalar": jnp.array(0.1),
    "none": None,
    "pair": Pair(jnp.array([1, 2], jnp.int32), (jnp.array(True), jnp.zeros((0, 3)))),
    "single": jnp.array([[0.1, 0.2], [0.3, 0.4]], jnp.float32),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(10.0)[::3],
}


def nothing_in(state):
    """Another state of the same structure."""
    return jax.tree.map(jnp.zeros_like, state)


def test_every_bit_and_shape_comes_back(tmp_path):
    path = tmp_path / "state.safetensors"
    digest = write_state(path, STATE)
    assert digest == sha256(path.read_bytes()).hexdigest()
    found = read_state(path, digest, nothing_in(STATE))
    assert jax.tree.structure(found) == jax.tree.structure(STATE)
    for before, after in zip(jax.tree.leaves(STATE), jax.tree.leaves(found), strict=True):
        assert isinstance(after, jax.Array)
        assert (before.shape, before.dtype) == (after.shape, after.dtype)
        assert np.asarray(before).tobytes() == np.asarray(after).tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]


def test_more_than_ten_arrays_keep_their_order(tmp_path):
    state = [jnp.full(2, float(i)) for i in range(25)]
    path = tmp_path / "state.safetensors"
    found = read_state(path, write_state(path, state), nothing_in(state))
    assert [float(leaf[0]) for leaf in found] == list(range(25))


def test_a_state_is_synced_before_it_has_its_name_and_the_folder_after(tmp_path, monkeypatch):
    happened = []
    path = tmp_path / "state.safetensors"
    sync, rename = os.fsync, Path.replace

    def noting_fsync(descriptor):
        happened.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        sync(descriptor)

    def noting_replace(aside, target):
        happened.append(f"{aside.name} becomes {target.name}")
        return rename(aside, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(Path, "replace", noting_replace)
    write_state(path, STATE)
    assert happened == [
        "sync state.part",
        "state.part becomes state.safetensors",
        f"sync {tmp_path.name}",
    ]


def test_a_state_that_cannot_be_synced_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "state.safetensors"
    digest = write_state(path, {"x": jnp.array(1.0)})

    def fail(descriptor):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            write_state(path, {"x": jnp.array(2.0)})
    assert float(read_state(path, digest, {"x": jnp.array(0.0)})["x"]) == 1.0


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: bytes([content[0] ^ 1]) + content[1:],
        lambda content: content[:-1] + bytes([content[-1] ^ 128]),
    ],
    ids=["empty", "cut short", "longer", "first bit", "last bit"],
)
def test_a_damaged_file_is_noticed(tmp_path, damage):
    path = tmp_path / "state.safetensors"
    digest = write_state(path, STATE)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"state.safetensors is damaged: its SHA-256 is not"):
        read_state(path, digest, STATE)


def test_a_file_that_never_was_a_state_is_noticed(tmp_path):
    path = tmp_path / "state.safetensors"
    path.write_bytes(b"not a state")
    with pytest.raises(ValueError, match=r"state.safetensors is damaged: "):
        read_state(path, sha256(b"not a state").hexdigest(), STATE)


def test_a_file_that_is_gone_is_the_system_s_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "state.safetensors", "", STATE)


@pytest.mark.parametrize(
    "other",
    [
        {"x": jnp.zeros(3)},
        {"x": jnp.zeros((2, 1))},
        {"x": jnp.zeros(2, jnp.float32)},
        {"x": jnp.zeros(2), "y": jnp.zeros(1)},
        {},
    ],
    ids=["size", "shape", "dtype", "one more", "none"],
)
def test_a_state_of_another_structure_is_refused(tmp_path, other):
    path = tmp_path / "state.safetensors"
    digest = write_state(path, {"x": jnp.ones(2)})
    with pytest.raises(ValueError, match=r"state.safetensors was written by another version"):
        read_state(path, digest, other)


def test_a_folder_s_descriptor_is_closed_even_if_syncing_fails(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(5, "Input/output error")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        sync_folder(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
