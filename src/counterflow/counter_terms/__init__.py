"""The counter terms of the equation of motion, by three methods: `taylor`, `lie` and `orbit`."""

from .counter_terms import (
    counter_term as counter_term,
    counter_terms as counter_terms,
)
