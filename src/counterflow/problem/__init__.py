"""A training problem, and what is asked of one."""
