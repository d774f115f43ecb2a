"""Compiled programs that the next process finds on disk."""

import os
import subprocess
import sys

SCRIPT = """
import jax, jax.numpy as jnp
from counterflow.cli import compiling
compiling._SHORTEST = 0.0
with compiling.compiled_on_disk() as compilation:
    jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x))(jnp.ones((3, 3))).block_until_ready()
print(compilation.programs, compilation.found, compilation.seconds > 0, sep=";")
print(compilation)
before = compilation.programs
jax.jit(lambda x: x * 5)(1.0)
print(compilation.programs == before)
"""


def run(cache, **environment):
    known = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    settings = known | {"XDG_CACHE_HOME": str(cache)} | environment
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_next_process_finds_what_was_compiled(tmp_path):
    first, said, counted_after = run(tmp_path / "cache")
    programs, found, took_time = first.split(";")
    assert (int(programs) > 0, int(found), took_time) == (True, 0, "True")
    assert "; 0 of them were on disk" in said
    assert counted_after == "True"  # nothing is counted after the end
    again = run(tmp_path / "cache")[0].split(";")
    assert again[:2] == [programs, programs]
    assert (tmp_path / "cache" / "counterflow" / "compiled").is_dir()


def test_a_folder_that_was_given_to_jax_is_used(tmp_path):
    run(tmp_path / "cache", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))
    assert not (tmp_path / "cache").exists()
