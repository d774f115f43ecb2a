"""Shards of states, at random: what was written, or an error; nothing is parsed before its time."""

import json
import os
import struct
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, strategies as st

from counterflow.runs.states import read_state, write_state
from memory import peak_memory

STATE = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(7), "c": np.zeros((0, 2), np.float32)}
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 6, 2**31, 2**62, -1]), max_size=4)
DTYPES = st.sampled_from(["F64", "F32", "I64", "BOOL", "BF16", "F8_E4M3", "U8", "X", ""])


def shard(header, content=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def read(path, content, digest=None):
    """The state in a file, or nothing if it is refused."""
    path.write_bytes(content)
    try:
        return read_state(path, digest or sha256(content).hexdigest(), STATE)
    except (OSError, ValueError) as error:
        assert path.name in str(error)  # noqa: PT017
        return None


def assert_same(found):
    for name, leaf in STATE.items():
        assert np.asarray(found[name]).tobytes() == leaf.tobytes()


@given(content=st.binary(max_size=300))
def test_random_bytes_are_refused_even_with_the_right_digest(content, tmp_path):
    assert read(tmp_path / "x.safetensors", content) is None


@given(
    arrays=st.dictionaries(
        st.sampled_from(["0", "1", "2", "3", "__metadata__", "../x"]),
        st.fixed_dictionaries(
            {
                "dtype": DTYPES,
                "shape": SHAPES,
                "data_offsets": st.lists(st.sampled_from([0, 8, 48, 56, 2**40, -1]), max_size=3),
            }
        ),
    ),
    content=st.sampled_from([b"", bytes(8), bytes(56), bytes(64)]),
)
def test_headers_that_lie_are_refused_even_with_the_right_digest(arrays, content, tmp_path):
    assert read(tmp_path / "x.safetensors", shard(arrays, content)) is None


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 10**9, 10**8 + 1])
def test_a_header_that_is_said_to_be_huge_is_refused(length, tmp_path):
    content = struct.pack("<Q", length) + b"{}"
    with peak_memory() as peak:
        assert read(tmp_path / "x.safetensors", content) is None
    assert peak() < 2**20


@pytest.mark.parametrize("header", [b"[" * 2000, b'{"0":' * 400, b'{"a": 1e999}', b"\xff" * 100])
def test_a_header_that_is_no_table_is_refused(header, tmp_path):
    assert read(tmp_path / "x.safetensors", shard(header)) is None


@given(data=st.data())
def test_whatever_changes_in_a_shard_is_noticed(data, tmp_path):
    path = tmp_path / "x.safetensors"
    digest = write_state(path, STATE)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    assert read(path, bytes(content), digest) is None


def test_what_was_written_comes_back(tmp_path):
    path = tmp_path / "x.safetensors"
    digest = write_state(path, STATE)
    assert_same(read(path, path.read_bytes(), digest))


def test_overlapping_arrays_are_refused(tmp_path):
    header = {
        "0": {"dtype": "F64", "shape": [2, 3], "data_offsets": [0, 48]},
        "1": {"dtype": "I64", "shape": [], "data_offsets": [40, 48]},
        "2": {"dtype": "F32", "shape": [0, 2], "data_offsets": [48, 48]},
    }
    assert read(tmp_path / "x.safetensors", shard(header, bytes(48))) is None


def test_a_header_is_not_looked_at_before_its_digest(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    path.write_bytes(shard({}))
    monkeypatch.setattr("counterflow.runs.states.load", pytest.fail)
    with pytest.raises(ValueError, match="its SHA-256 is not the one that was noted"):
        read_state(path, "0" * 64, STATE)


def test_pipes_devices_and_long_files_are_not_read(tmp_path):
    pipe, sparse, device = (tmp_path / name for name in ("pipe", "sparse", "device"))
    os.mkfifo(pipe)
    with sparse.open("wb") as file:
        file.truncate(2**40)
    device.symlink_to("/dev/zero")
    for path in (pipe, sparse, device, tmp_path):
        with pytest.raises(OSError, match=r"plain file|more than|Is a directory"):
            read_state(path, "0" * 64, STATE)
