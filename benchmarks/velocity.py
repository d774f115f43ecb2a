"""The velocity of the equation of motion, γ = 1, on all images: by every way, and for two at once.

    python benchmarks/velocity.py [--data-dir FOLDER]

All ways but the last two are exact to rounding: they differ in what they compute twice. `orbit` is
another flow of the same order. Two runs at once, with other learning rates or weight decays, would
share the products with images, as one of twice the width: how long those take is measured, too. On
the images of MNIST in blocks, or on random ones where those cannot be had; in turns, within one
process. Results: `benchmarks/results/velocity.json`.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
from common import PAPER_WIDTHS as WIDTHS, images_of, interleaved, medians, write

import counterflow as cf
from counterflow.cli.memory import keep_freed_memory
from counterflow.networks.blocks import in_blocks
from counterflow.networks.paper_network import cross_entropy, glorot_uniform

ROUNDS, IMAGES, LEARNING_RATE = 7, 60_000, 1e-2


def along(function, point, vector):
    """The derivative of a function along a vector, in forward mode."""
    return jax.jvp(function, (point,), (vector,))[1]


def flow(gradient, product):
    """The velocity `−g − η/2 H g` of a gradient and its derivative along itself."""
    return jax.tree.map(lambda g, h: -g - LEARNING_RATE / 2 * h, gradient, product)


def shared(problem, params):
    return cf.EquationOfMotion(problem, LEARNING_RATE, 1, "taylor").velocity(params)


def apart(problem, params):
    gradient = jax.lax.optimization_barrier(problem.gradient(params))
    return flow(gradient, along(problem.gradient, params, gradient))


def reverse(problem, params):
    """Half the gradient of the squared gradient, by reverse mode over reverse mode."""
    gradient, back = jax.vjp(problem.gradient, params)
    return flow(gradient, back(gradient)[0])


def orbit(problem, params):
    return cf.EquationOfMotion(problem, LEARNING_RATE, 1, "orbit").velocity(params)


WAYS = {
    "taylor: forward mode over the gradient, both in one": shared,
    "the gradient, then forward mode over it": apart,
    "reverse mode over the gradient, both in one": reverse,
    "orbit: two gradients": orbit,
    "a gradient": cf.Problem.gradient,
}
SAME = 1e-12  # how far exact ways may be from one another


def ways(problem, params):
    """Seconds of each way, in a process that keeps its memory, as commands do."""

    def compiled(function):
        program = jax.jit(function)
        return lambda: jax.block_until_ready(program(problem, params))

    calls = {name: compiled(function) for name, function in WAYS.items()}
    first, *others = (calls[name]() for name in list(WAYS)[:3])
    for other in others:
        for name, leaf in first.items():
            error = float(jnp.linalg.norm(other[name] - leaf) / jnp.linalg.norm(leaf))
            if not error < SAME:
                raise ValueError(f"all ways must agree to {SAME:g}, but two differ by {error:g}")
    return medians(interleaved(calls, ROUNDS))


def products(blocks, params):
    """Seconds of the products with all images, forward and back, for one run and for two."""

    def both(weights):
        values, back = jax.vjp(blocks.times, weights)
        return back(values)

    def compiled(weights):
        program = jax.jit(both)
        return lambda: jax.block_until_ready(program(weights))

    one = params["input"]
    two = jnp.concatenate([one, one + 1], axis=1)
    return medians(interleaved({"one": compiled(one), "two": compiled(two)}, ROUNDS))


def main(folder):
    keep_freed_memory()
    jax.config.update("jax_enable_x64", True)
    data, inputs, targets = images_of(IMAGES, folder)
    blocks, order = in_blocks(inputs)
    problem = cf.Problem(cross_entropy, (blocks, jnp.asarray(targets[order])))
    params = glorot_uniform(WIDTHS)
    seconds = ways(problem, params)
    for name, time in seconds.items():
        print(f"{name}: {1e3 * time:.0f} ms, {time / seconds['a gradient']:.2f} gradients")
    width = products(blocks, params)
    print(f"products for two runs at once over those for one: {width['two'] / width['one']:.2f}")
    results = {"data": data, "images": IMAGES, "seconds": seconds, "products": width}
    write("velocity", results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="where the files of MNIST are")
    main(parser.parse_args().data_dir)
