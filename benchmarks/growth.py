"""How cost grows: with parameters, samples and steps, each fitted with an exponent.

    python benchmarks/growth.py

The exponent is the slope of a straight line through the upper half of the points, both axes
logarithmic. Against parameters the network is a perceptron: that of the paper, which works with the
covariance of its activations, is made for more samples than units. Against steps each descent has a
process of its own, whose high-water mark is its memory. How cost grows with the order is fitted to
what `counter_terms.py` finds, by docs/cost.py. Results: `benchmarks/results/growth.json`.
"""

import argparse
import json
from itertools import pairwise

import numpy as np
from common import (
    PAPER_WIDTHS,
    in_process,
    interleaved,
    medians,
    peak_bytes,
    random_batch,
    write,
)

HIDDEN = (70, 125, 220, 395, 705, 1250, 2235)  # 10⁴ to 10⁷ parameters
SAMPLES = (1000, 2000, 4000, 8000, 16_000, 32_000)
STEPS = (1000, 3000, 10_000)
PERCEPTRON_SAMPLES = 256
DESCENT_WIDTHS, DESCENT_SAMPLES = (64, 32, 32, 10), 100
LEARNING_RATE = 1e-2
ROUNDS, SECONDS = 3, 0.3  # rounds of timing at least, and for how long at least


def exponent(points, x, y):
    """The slope of log y against log x over the upper half of the points."""
    upper = points[len(points) // 2 :]
    logarithms = [np.log([point[name] for point in upper]) for name in (x, y)]
    return float(np.polyfit(*logarithms, 1)[0])


def study(x, columns, points, **settings):
    """The points of one question with the exponents of its columns."""
    exponents = {column: exponent(points, x, column) for column in columns}
    text = ", ".join(f"{column} {value:.2f}" for column, value in exponents.items())
    print(f"exponents against {x}: {text}", flush=True)
    return settings | {"against": x, "points": points, "exponents": exponents}


def parameters_of(widths):
    return sum(a * b for a, b in pairwise(widths))


def paper_problem(samples, widths=PAPER_WIDTHS):
    import jax.numpy as jnp

    import counterflow as cf
    from counterflow.networks.paper_network import cross_entropy, glorot_uniform

    data = tuple(map(jnp.asarray, random_batch(samples, widths)))
    return cf.Problem(cross_entropy, data), glorot_uniform(widths)


def perceptron_problem(samples, widths):
    import jax.numpy as jnp

    import counterflow as cf
    from counterflow.networks.perceptron import Perceptron

    network = Perceptron(widths, "tanh")
    data = tuple(map(jnp.asarray, random_batch(samples, widths)))
    return cf.Problem(network, data), network.initial_params()


def compiled(function, problem, params):
    import jax

    program = jax.jit(function).lower(problem, params).compile()
    return lambda: jax.block_until_ready(program(problem, params))


def velocity(order, method):
    import counterflow as cf

    return lambda p, q: cf.EquationOfMotion(p, LEARNING_RATE, order, method).velocity(q)


# Seconds of a gradient and of velocities, against the size of the network and of the data.

COLUMNS = ("gradient", "taylor_1", "orbit_2")


def velocity_seconds(problem, params):
    import counterflow as cf

    functions = (cf.Problem.gradient, velocity(1, "taylor"), velocity(2, "orbit"))
    calls = [compiled(function, problem, params) for function in functions]
    return medians(interleaved(dict(zip(COLUMNS, calls, strict=True)), ROUNDS, at_least=SECONDS))


def show(name, point):
    times = [f"{column} {1e3 * point[column]:.2f} ms" for column in COLUMNS]
    print(f"{point[name]:,} {name}: {', '.join(times)}", flush=True)


def against_parameters():
    points = []
    for width in HIDDEN:
        widths = (width, width, width, PAPER_WIDTHS[-1])
        seconds = velocity_seconds(*perceptron_problem(PERCEPTRON_SAMPLES, widths))
        points.append({"parameters": parameters_of(widths), "widths": widths, **seconds})
        show("parameters", points[-1])
    return study("parameters", COLUMNS, points, samples=PERCEPTRON_SAMPLES)


def against_samples():
    points = []
    for samples in SAMPLES:
        points.append({"samples": samples, **velocity_seconds(*paper_problem(samples))})
        show("samples", points[-1])
    return study("samples", COLUMNS, points, widths=PAPER_WIDTHS)


# Descent, against its number of steps.


def descent_case(steps):
    import jax

    jax.config.update("jax_enable_x64", True)
    import counterflow as cf

    problem, params = paper_problem(DESCENT_SAMPLES, DESCENT_WIDTHS)
    descent = cf.GradientDescent(problem, LEARNING_RATE)
    before = peak_bytes()
    times = LEARNING_RATE * np.array([0, steps])
    seconds = interleaved({"descent": lambda: cf.solve(descent, params, times)}, ROUNDS)
    return {"seconds": medians(seconds)["descent"], "bytes": peak_bytes() - before}


def against_steps():
    points = []
    for steps in STEPS:
        points.append({"steps": steps, **in_process(__file__, {"steps": steps})})
        text = "{steps:,} steps: {seconds:.3f} s, {0:.0f} MiB with compilation"
        print(text.format(points[-1]["bytes"] / 2**20, **points[-1]), flush=True)
    # What it would be if every step were kept.
    kept = 8 * parameters_of(DESCENT_WIDTHS)
    settings = {"widths": DESCENT_WIDTHS, "samples": DESCENT_SAMPLES, "bytes_of_params": kept}
    return study("steps", ("seconds", "bytes"), points, **settings)


def main():
    import jax

    jax.config.update("jax_enable_x64", True)
    results = {
        "parameters": against_parameters(),
        "samples": against_samples(),
        "steps": against_steps(),
    }
    write("growth", results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(descent_case(**json.loads(options.case))))
    else:
        main()
