"""The counter terms of the equation of motion, by three methods: `taylor`, `lie` and `orbit`."""
