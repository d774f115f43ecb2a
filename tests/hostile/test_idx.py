"""Files of data, at random: the right array or an error that names the file, in little memory."""

import gzip
import math
import os
import struct

import numpy as np
import pytest
from hypothesis import given, strategies as st

from counterflow.data.dataset import DataError
from counterflow.data.idx import MOST_BYTES, parse, unpacked
from memory import peak_memory

SIZES = st.one_of(st.integers(0, 5), st.sampled_from([2**31, 2**32 - 1, 2**16]))
ARRAYS = st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)).flatmap(
    lambda shape: st.binary(min_size=math.prod(shape), max_size=math.prod(shape)).map(
        lambda content: np.frombuffer(content, np.uint8).reshape(shape)
    )
)


def encoded(array):
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + bytes(array)
    )


def read(path, content):
    """The array in a file, or nothing if it is refused with its name."""
    path.write_bytes(content)
    try:
        return parse(unpacked(path), path)
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017
        return None


@given(content=st.binary(max_size=200))
def test_random_bytes_are_refused_or_are_what_they_say(content, tmp_path):
    found = read(tmp_path / "file", content)
    assert found is None or encoded(found) == content


@given(
    magic=st.sampled_from([b"\0\0\x08", b"\0\0\x09", b"\0\x01\x08", b"\x1f\x8b\x08"]),
    dimensions=st.integers(0, 255),
    sizes=st.lists(SIZES, max_size=6),
    rest=st.binary(max_size=40),
)
def test_a_header_is_refused_or_says_what_there_is(magic, dimensions, sizes, rest, tmp_path):
    content = magic + bytes([dimensions]) + struct.pack(f">{len(sizes)}I", *sizes) + rest
    found = read(tmp_path / "file", content)
    assert found is None or encoded(found) == content


@pytest.mark.parametrize("dimensions", [1, 3, 4, 255])
def test_a_header_that_promises_too_much_takes_no_memory(dimensions, tmp_path):
    content = bytes([0, 0, 8, dimensions]) + b"\xff" * 4 * dimensions
    with peak_memory() as peak:
        assert read(tmp_path / "file", content) is None
    assert peak() < 2**20


@given(array=ARRAYS, packed=st.booleans())
def test_what_was_written_comes_back(array, packed, tmp_path):
    content = encoded(array)
    found = read(tmp_path / "file", gzip.compress(content) if packed else content)
    np.testing.assert_array_equal(found, array)


@given(array=ARRAYS, packed=st.booleans(), data=st.data())
def test_a_valid_file_that_was_changed_is_refused_or_as_it_says(array, packed, data, tmp_path):
    content = bytearray(gzip.compress(encoded(array), mtime=0) if packed else encoded(array))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["change", "cut", "add"]))
        if kind == "change":
            content[place] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del content[max(1, place) :]
        else:
            content += data.draw(st.binary(min_size=1, max_size=9))
    found = read(tmp_path / "file", bytes(content))
    if found is None:
        return
    if packed and content[:2] == b"\x1f\x8b":  # what its checksum does not cover, as the time
        assert encoded(found) == gzip.decompress(content)
    else:
        assert encoded(found) == bytes(content)


def test_a_small_gzip_file_that_holds_gigabytes_takes_little_memory(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(2**24)) * 256)  # one after the other: four gigabytes
    assert path.stat().st_size < 2**23
    with peak_memory() as peak, pytest.raises(DataError, match=r"bomb.gz must hold at most 134,2"):
        unpacked(path)
    assert peak() < 3 * MOST_BYTES


def test_a_long_sparse_file_is_not_read(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(DataError, match="it holds 1,099,511,627,776 bytes, more than"):
        unpacked(path)


def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", *map(type(tmp_path), ("/dev/zero", "/dev/stdin"))):
        with pytest.raises(DataError, match=r"not a plain file|reading it failed"):
            unpacked(path)
