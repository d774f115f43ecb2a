"""Data sets, as arrays."""

from .digits import (
    Dataset as Dataset,
    digits as digits,
)
