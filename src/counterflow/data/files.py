"""What a file holds, read only if it is a plain file and not longer than it may be."""

import errno
import os
import stat
from pathlib import Path


def read_plain(path: Path, most: int) -> bytes:
    """All bytes of a file.

    A pipe or a device would keep its reader waiting, or never end.

    Args:
        path: The file.
        most: How many bytes it may hold.

    Raises:
        OSError: If it cannot be read, is not a plain file, or holds more than that.
    """
    try:
        # Without `O_NONBLOCK`, opening a pipe waits for someone to write into it.
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no file has such a name: {error}", str(path)) from error
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a plain file", str(path))
        if status.st_size > most:
            size = f"it holds {status.st_size:,} bytes, more than the {most:,} it may"
            raise OSError(errno.EFBIG, size, str(path))
        return file.read(status.st_size)
