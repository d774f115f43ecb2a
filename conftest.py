"""Every test and doctest runs in double precision, and shapes must match by themselves."""

import os
import sys
from pathlib import Path

import jax
import pytest

# Most of the suite's time is compilation of programs that run for milliseconds, so XLA is to try
# less hard: no fused loops, one piece of machine code per program, no costly passes. What is
# computed stays the same, up to rounding. XLA reads the environment when it first compiles. The
# command line is tested without this, and `XLA_FLAGS= make test` compiles everything as users do.
if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    )
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    jax.config.update("jax_disable_most_optimizations", True)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# PyTorch is large and optional. What needs it is marked `torch`, and unless that is asked for
# (`make test-torch`) it is not even imported.
TORCH = [
    Path(__file__).parent / path
    for path in ("src/counterflow/torch", "docs/pytorch.md", "tests/test_torch.py")
]


def pytest_ignore_collect(collection_path, config):
    """Whether a file is left alone because PyTorch is not to be imported."""
    unwanted = "not torch" in config.option.markexpr
    return True if unwanted and collection_path in TORCH else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks what needs PyTorch."""
    for item in items:
        if any(item.path.is_relative_to(path) for path in TORCH):
            item.add_marker("torch")


# Compiled programs stay in memory: some gigabytes in each of the processes that share the tests,
# and as many memory maps. The next file seldom needs those of the last.
MOST_MEMORY = 3 * 2**30
LINUX = sys.platform == "linux"


@pytest.fixture(scope="module", autouse=True)
def _programs_of_earlier_files_are_forgotten():
    """Forgets compiled programs where they have become many, once a file of tests is done."""
    yield
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if LINUX else 0
    if pages * 4096 > MOST_MEMORY:
        jax.clear_caches()
