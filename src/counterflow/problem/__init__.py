"""A training problem, and what is asked of one."""

from .problem import Problem as Problem
