"""The cost of finding the symmetries of a large network, in multiples of one gradient.

    make bench

A ReLU network of 20 layers with biases and about a million parameters. Beside it, what a user would
do instead: transform every pair of leaves and look whether the loss changes, which finds neither
groups nor units. Results: `benchmarks/find_symmetries.md`.
"""

import itertools
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

LAYERS, WIDTH, CLASSES, SAMPLES, REPEATS = 20, 225, 10, 1000, 5
RESULTS = Path(__file__).with_suffix(".md")


def seconds_of(function):
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def main():
    jax.config.update("jax_enable_x64", True)
    import counterflow as cf
    from counterflow.networks.perceptron import Perceptron

    random = np.random.default_rng(0)
    inputs = jnp.asarray(random.standard_normal((SAMPLES, WIDTH)))
    targets = jnp.asarray(np.eye(CLASSES)[random.integers(0, CLASSES, SAMPLES)])
    network = Perceptron((*[WIDTH] * LAYERS, CLASSES), "relu", bias=True)
    params, problem = network.initial_params(), cf.Problem(network, data=(inputs, targets))
    gradient, loss = jax.jit(cf.Problem.gradient), jax.jit(cf.Problem.loss)
    first = seconds_of(lambda: cf.find_symmetries(problem, params).found and 0)
    jax.block_until_ready([gradient(problem, params), loss(problem, params)])

    leaves, structure = jax.tree.flatten(params)
    pairs = list(itertools.combinations(range(len(leaves)), 2))

    def pairwise_part(part):
        for one, other in part:
            moved = list(leaves)
            moved[one], moved[other] = 1.5 * leaves[one], leaves[other] / 1.5
            float(loss(problem, structure.unflatten(moved)))

    part = pairs[:: len(pairs) // 40]
    pairwise_part(part)
    found, ratios, naive, single = None, [], [], []
    for _ in range(REPEATS):
        single.append(seconds_of(lambda: gradient(problem, params)))
        start = time.perf_counter()
        found = cf.find_symmetries(problem, params)
        ratios.append((time.perf_counter() - start) / single[-1])
        whole = seconds_of(lambda: pairwise_part(part)) * len(pairs) / len(part)
        naive.append(whole / single[-1])
    count, units = sum(leaf.size for leaf in leaves), sum(item.units for item in found.found)
    ours, theirs = statistics.median(ratios), statistics.median(naive)
    text = f"""# The cost of finding symmetries

A ReLU network of {LAYERS} layers with biases, {count:,} parameters, {SAMPLES} samples, on
{jax.devices()[0].platform} in double precision; medians of {REPEATS} (`make bench`). One gradient
took {statistics.median(single):.2f} s.

| | in gradients | finds |
|---|--:|---|
| `find_symmetries` | {ours:.0f} | {len(found)} symmetries of {units:,} units |
| every pair of leaves, transformed ({len(pairs)} losses) | {theirs:.0f} | none |

Pairs of leaves are not enough: biases have to join, and a unit is part of a leaf. Of the gradients,
{found.gradient_evaluations} are evaluated; the rest is building random points and transformed
params. The first call took {first:.0f} s with compilation.
"""
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
