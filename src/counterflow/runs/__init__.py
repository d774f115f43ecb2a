"""Results on disk."""
