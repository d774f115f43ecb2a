"""Watching a training loop from inside: what is measured at a record, and when."""
