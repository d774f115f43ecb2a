"""Every test and doctest runs in double precision, and shapes must match by themselves."""

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
