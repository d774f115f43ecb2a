"""A function on the host: as if it were JAX's own, wherever it is called, and never in the way."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.problem.host_call import host_call


def twice_and_sum(tree):
    assert all(type(leaf) is np.ndarray for leaf in tree.values())
    return {name: 2 * leaf for name, leaf in tree.items()}, sum(x.sum() for x in tree.values())


def call(tree):
    return host_call(twice_and_sum, (tree, jax.ShapeDtypeStruct((), float)), tree)


TREE = {"b": jnp.array([1.0, 2.0]), "a": jnp.array([[3.0]])}


@pytest.mark.parametrize("compile", [lambda f: f, jax.jit], ids=["eager", "compiled"])
def test_the_results_are_those_of_the_function(compile):
    doubled, total = compile(call)(TREE)
    assert total == 6
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, 2 * b), doubled, TREE)


@pytest.mark.parametrize("axis", [0, 1])
def test_vmap_calls_it_once_for_each(axis):
    shapes = []

    def product(x, y):
        shapes.append((x.shape, y.shape))
        return x * y

    x, y = jnp.arange(6.0).reshape(2, 3), jnp.array(3.0)
    run = jax.vmap(lambda x, y: host_call(product, x[0], x[0], y), in_axes=(axis, None))
    columns = jnp.moveaxis(x, axis, 0)
    np.testing.assert_array_equal(run(x, y), 3 * columns[:, 0])
    assert shapes == [((), ())] * x.shape[axis]


def test_it_is_called_in_loops():
    def halve(x):
        return x / 2

    @jax.jit
    def run(x):
        x = jax.lax.fori_loop(0, 10, lambda _, x: host_call(halve, x, x), x)
        return jax.lax.while_loop(lambda x: x[0] > 1e-6, lambda x: host_call(halve, x, x), x)

    np.testing.assert_array_equal(run(jnp.array([1.0, 3.0])), [2.0**-20, 3 * 2.0**-20])


def test_it_is_not_called_where_nothing_depends_on_it():
    calls = []

    def note(x):
        calls.append(None)
        return x

    result = jax.jit(lambda x: (host_call(note, x, x), x + 1)[1])(jnp.array(1.0))
    assert result == 2
    assert not calls


ON_ONE_CORE = """
import os
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import jax, jax.numpy as jnp
from counterflow.problem.host_call import host_call

def halve(x):
    return x / 2

run = jax.jit(lambda x: jax.lax.fori_loop(0, 10, lambda _, x: 2 * host_call(halve, x, x), x))
# Each is begun while others are under way.
ends = [run(run(jnp.ones(1_000_000) * k)) for k in range(5)]
print([float(end[-1]) for end in ends])
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="one core cannot be asked for")
def test_programs_under_way_together_do_not_wait_for_each_other():
    # With `jax.pure_callback` this program hangs.
    run = subprocess.run(
        [sys.executable, "-c", ON_ONE_CORE], capture_output=True, text=True, timeout=120, check=True
    )
    assert run.stdout.strip() == "[0.0, 1.0, 2.0, 3.0, 4.0]"
