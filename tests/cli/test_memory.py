"""Commands keep the memory that they free: a gradient does not ask for new pages each time."""

import ctypes
import subprocess
import sys

import pytest

# Takes and frees fifty megabytes ten times, and counts the pages that were asked for from then on.
PROGRAM = """
import ctypes, resource, sys
from counterflow.cli.memory import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p

def use():
    block = library.malloc(50_000_000)
    ctypes.memset(block, 1, 50_000_000)
    library.free(ctypes.c_void_p(block))

use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(how):
    command = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="glibc has these options"
)
def test_freed_memory_is_used_again():
    anew, kept = pages("anew"), pages("kept")
    assert kept < anew / 10
