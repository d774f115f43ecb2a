"""Memory that was freed is kept for the next gradient, not handed back to the system."""

import ctypes

# The names and numbers of glibc's <malloc.h>.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_MORE_AT_ONCE = 64 * 2**20


def keep_freed_memory() -> bool:
    """Whether memory is kept from now on: where glibc allocates it, as on most Linux machines.

    A gradient of many samples takes and frees arrays of many megabytes. Large blocks are by default
    new pages each time, which the system clears one by one: on MNIST, a quarter of the time of a
    gradient.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another library, another system
        return False
    options = {_MMAP_MAX: 0, _ARENA_MAX: 1, _TRIM_THRESHOLD: -1, _TOP_PAD: _MORE_AT_ONCE}
    taken = [set_option(option, value) for option, value in options.items()]
    return all(taken)
