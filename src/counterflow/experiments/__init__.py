"""Experiments: one file each, each with its claim as code."""
