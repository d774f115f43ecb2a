"""The idx format of MNIST: a header of big-endian numbers, then the array, byte by byte."""

import gzip
import io
import math
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from .dataset import DataError
from .files import read_plain

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTES = b"\x00\x00\x08"
DIMENSIONS = (1, 3)  # labels, images
# No more is read: MNIST's images are 47 million bytes, but a small gzip file may hold gigabytes.
MOST_BYTES = 2**27


def unpacked(path: Path) -> bytes:
    """What the file holds, decompressed if it is gzip: that is told by its first bytes."""
    try:
        packed = read_plain(path, MOST_BYTES)
    except OSError as error:
        raise DataError(
            f"{path} must be a file that can be read, but reading it failed ({error}): "
            "put an intact copy in its place"
        ) from error
    if not packed.startswith(GZIP_MAGIC):
        return packed
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            contents = file.read(MOST_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path} must be an intact gzip file, but decompressing its {len(packed)} bytes "
            f"failed ({error}): it is truncated or corrupt, put an intact copy in its place"
        ) from error
    if len(contents) > MOST_BYTES:
        raise DataError(
            f"{path} must hold at most {MOST_BYTES:,} bytes, but its {len(packed):,} decompress to "
            "more: it is no file of MNIST, put an intact copy in its place"
        )
    return contents


def parse(contents: bytes, path: Path) -> UInt8[np.ndarray, "..."]:
    """The array in the contents of an idx file; `path` is where they come from, for errors.

    Only what MNIST consists of is read: unsigned bytes in one or three dimensions. The contents
    must be exactly as long as the header says.

    >>> parse(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), Path("labels"))
    array([7, 9], dtype=uint8)
    """
    if contents[:3] != UNSIGNED_BYTES or len(contents) < 4 or contents[3] not in DIMENSIONS:
        start = f"starts with {contents[:4].hex(' ')}" if contents else "is empty"
        raise DataError(
            f"{path} must be an idx file of unsigned bytes in 1 or 3 dimensions, which starts "
            f"with the bytes 00 00 08 01 or 00 00 08 03, but it {start}: "
            "put an intact copy of the right file in its place"
        )
    header = 4 + 4 * contents[3]
    if len(contents) < header:
        raise DataError(
            f"{path} must start with a header of {header} bytes, but ends after {len(contents)}: "
            "it is truncated, put an intact copy in its place"
        )
    shape = tuple(int(size) for size in np.frombuffer(contents[4:header], dtype=">u4"))
    expected = header + math.prod(shape)
    if len(contents) != expected:
        fault = "truncated" if len(contents) < expected else "too long"
        raise DataError(
            f"{path} must hold {expected} bytes (decompressed), as its header announces an array "
            f"of shape {shape}, but holds {len(contents)}: it is {fault}, "
            "put an intact copy in its place"
        )
    if max(shape) > MOST_BYTES:  # times none: NumPy has no such array
        raise DataError(
            f"{path} must hold an array of at most {MOST_BYTES:,} bytes, but its header announces "
            f"one of shape {shape}: put an intact copy of the right file in its place"
        )
    return np.frombuffer(contents, dtype=np.uint8, offset=header).reshape(shape)
