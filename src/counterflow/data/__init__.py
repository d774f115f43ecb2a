"""Data sets, as arrays."""
