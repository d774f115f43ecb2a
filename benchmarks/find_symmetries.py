"""The cost of finding the symmetries of a large network, in multiples of one gradient.

    python benchmarks/find_symmetries.py

A ReLU network of 20 layers with biases and about a million parameters. Beside it, what a user would
do instead: scale one leaf of every pair up, the other down, and look whether the loss changes.
Pairs are not enough: biases have to join, and a unit is part of a leaf. Results:
`benchmarks/results/find_symmetries.json`.
"""

import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
from common import interleaved, median_ratio, medians, write

LAYERS, WIDTH, CLASSES, SAMPLES, REPEATS = 20, 225, 10, 1000, 5
TOLERANCE = 1e-10  # of a loss that does not change


def main():
    jax.config.update("jax_enable_x64", True)
    import counterflow as cf
    from counterflow.networks.perceptron import Perceptron

    random = np.random.default_rng(0)
    inputs = jnp.asarray(random.standard_normal((SAMPLES, WIDTH)))
    targets = jnp.asarray(np.eye(CLASSES)[random.integers(0, CLASSES, SAMPLES)])
    network = Perceptron((*[WIDTH] * LAYERS, CLASSES), "relu", bias=True)
    problem = cf.Problem(network, data=(inputs, targets))
    # With biases of zero, pairs of leaves that are no symmetry would look like one.
    params = {
        name: layer | {"bias": jnp.asarray(0.1 * random.standard_normal(layer["bias"].shape))}
        for name, layer in network.initial_params().items()
    }
    gradient, loss = jax.jit(cf.Problem.gradient), jax.jit(cf.Problem.loss)
    start = time.perf_counter()
    found = cf.find_symmetries(problem, params)
    first = time.perf_counter() - start
    print(f"the first call: {first:.0f} s with compilation", flush=True)

    leaves, structure = jax.tree.flatten(params)
    pairs = list(itertools.combinations(range(len(leaves)), 2))
    part = pairs[:: len(pairs) // 40]

    def loss_after(one, other):
        moved = list(leaves)
        moved[one], moved[other] = 1.5 * leaves[one], leaves[other] / 1.5
        return float(loss(problem, structure.unflatten(moved)))

    before = float(loss(problem, params))
    unchanged = sum(abs(loss_after(*pair) - before) <= TOLERANCE * before for pair in pairs)

    functions = {
        "gradient": lambda: jax.block_until_ready(gradient(problem, params)),
        "find_symmetries": lambda: cf.find_symmetries(problem, params),
        "part of the pairs": lambda: [loss_after(*pair) for pair in part],
    }
    seconds = interleaved(functions, REPEATS)
    whole = len(pairs) / len(part)
    results = {
        "layers": LAYERS,
        "parameters": sum(leaf.size for leaf in leaves),
        "samples": SAMPLES,
        "repeats": REPEATS,
        "gradient_seconds": medians(seconds)["gradient"],
        "first_call_seconds": first,
        "gradient_evaluations": found.gradient_evaluations,
        "methods": [
            {
                "name": "find_symmetries",
                "time": median_ratio(seconds, "find_symmetries", "gradient"),
                "symmetries": len(found),
                "units": sum(item.units for item in found.found),
            },
            {
                "name": f"every pair of leaves, transformed ({len(pairs)} losses)",
                "time": median_ratio(seconds, "part of the pairs", "gradient") * whole,
                "symmetries": unchanged,
                "units": unchanged,
            },
        ],
    }
    for method in results["methods"]:
        text = "{name}: {time:.0f} gradients, {symmetries} symmetries of {units:,} units"
        print(text.format(**method), flush=True)
    write("find_symmetries", results)


if __name__ == "__main__":
    main()
