"""The idx reader: what was written is read back, and nothing damaged is."""

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from counterflow.data.dataset import DataError
from counterflow.data.idx import parse, unpacked

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 4, 5), dtype=np.uint8)
LABELS = np.array([3, 0, 9, 255], dtype=np.uint8)


def encoded(array: np.ndarray) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


# The same bytes every time: without the moment at which it was packed.
PACKED = gzip.compress(encoded(IMAGES), mtime=0)


def read(path):
    return parse(unpacked(path), path)


@pytest.mark.parametrize("array", [IMAGES, LABELS, LABELS[:0]])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("name", ["file", "file.gz"])  # the suffix says nothing
def test_an_array_comes_back(array, pack, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(pack(encoded(array)))
    again = read(path)
    assert again.dtype == np.uint8
    assert np.array_equal(again, array)


def test_sizes_are_big_endian():
    contents = bytes([0, 0, 8, 1, 0, 0, 1, 44]) + bytes(300)
    assert parse(contents, Path("labels")).shape == (300,)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "starts with the bytes 00 00 08 01 or 00 00 08 03, but it is empty"),
        (b"\0\0\x08", "but it starts with 00 00 08:"),
        (b"<!DOCTYPE html>", "but it starts with 3c 21 44 4f:"),
        (b"\0\0\x0d" + encoded(LABELS)[3:], "but it starts with 00 00 0d 01:"),  # floats
        (b"\0\0\x08\x02" + bytes(8), "but it starts with 00 00 08 02:"),  # a matrix
        (encoded(IMAGES)[:4], "a header of 16 bytes, but ends after 4: it is truncated"),
        (encoded(IMAGES)[:15], "a header of 16 bytes, but ends after 15: it is truncated"),
        (encoded(IMAGES)[:-1], "76 bytes .* shape (3, 4, 5), but holds 75: it is truncated"),
        (encoded(IMAGES) + b"\0", "76 bytes .* shape (3, 4, 5), but holds 77: it is too long"),
        (encoded(LABELS) * 2, "12 bytes .* shape (4,), but holds 24: it is too long"),
        (b"\0\0\x08\x03" + b"\xff" * 8 + bytes(4), "of shape (4294967295, 4294967295, 0):"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "shape (4294967295, 4294967295, 4294967295), but holds"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_wrong_contents_are_told(contents, message, pack, tmp_path):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(pack(contents))
    pattern = ".*".join(re.escape(part) for part in (f"{path} must", *message.split(" .* ")))
    with pytest.raises(DataError, match=pattern + ".*put an intact copy"):
        read(path)


@pytest.mark.parametrize("length", [2, 9, 10, 30, -9, -8, -4, -1])
def test_a_truncated_gzip_file_is_told(length, tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(PACKED[:length])
    with pytest.raises(DataError, match=re.escape(f"{path} must be an intact gzip file")):
        unpacked(path)


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 0xFF
    return bytes(changed)


@pytest.mark.parametrize(
    "packed",
    [
        flipped(PACKED, -6),  # the CRC
        flipped(PACKED, -2),  # the length
        flipped(PACKED, 2),  # the method of compression
        flipped(PACKED, 10),  # the first block
        flipped(PACKED, 40),
        PACKED + b"more",
    ],
)
def test_a_corrupt_gzip_file_is_told(packed, tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(packed)
    with pytest.raises(DataError, match=r"gzip file, but decompressing .*put an intact copy"):
        unpacked(path)


def test_what_cannot_be_read_is_told(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match=re.escape(f"{path} must be a file that can be read")):
            unpacked(path)
