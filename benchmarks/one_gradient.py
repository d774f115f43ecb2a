"""The time of one gradient of the paper's network, beside other ways and the matrix-multiply limit.

    python benchmarks/one_gradient.py [--data-dir FOLDER]

On the images of MNIST, or on random ones where those cannot be had. The limit is the time of the
eight matrix products that forward and backward pass of the network, written down straightforwardly,
consist of, each by the faster of JAX and NumPy; a second limit has PyTorch's products to choose
from as well. All is timed in turns within one process, in double precision; the gradients have to
agree. Three more processes measure compilation: without JAX's cache on disk, with an empty one and
with a full one. Results: `benchmarks/results/one_gradient.json`.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from common import (
    PACKAGES,
    PAPER_WIDTHS as WIDTHS,
    images_of,
    in_process,
    interleaved,
    medians,
    write,
)

ROUNDS = {60_000: 5, 2_000: 3}  # of timing, by images
TORCH = "PyTorch"
STEPS, LEARNING_RATE = 5, 0.1  # of the loop
TOLERANCE = 1e-12
PAUSE = 0.05
LEAST = 20_000  # images per timing, by several calls if need be


# The straightforward network, thrice: linear, swish, linear, batch normalization, linear, softmax.


def jax_loss(params, data):
    import jax
    import jax.numpy as jnp

    inputs, targets = data
    hidden = jax.nn.silu(inputs @ params["input"]) @ params["hidden"]
    mean = jnp.mean(hidden, axis=0, keepdims=True)
    variance = jnp.var(hidden, axis=0, keepdims=True)
    normal = (hidden - mean) / jnp.sqrt(variance)
    return -jnp.mean(jnp.sum(targets * jax.nn.log_softmax(normal @ params["readout"]), axis=1))


def torch_gradient(params, inputs, classes):
    import torch
    from torch.nn import functional

    point = [leaf.requires_grad_() for leaf in params]
    hidden = functional.silu(inputs @ point[0]) @ point[1]
    # An ε has to be positive; this one adds nothing.
    normal = functional.batch_norm(hidden, None, None, training=True, eps=1e-300)
    return torch.autograd.grad(functional.cross_entropy(normal @ point[2], classes), point)


def numpy_gradient(params, inputs, targets):
    first, second, third = params
    count = len(inputs)
    before = inputs @ first
    sigmoid = 1 / (1 + np.exp(-before))
    activations = before * sigmoid
    hidden = activations @ second
    centred = hidden - hidden.mean(axis=0)
    deviation = np.sqrt((centred**2).mean(axis=0))
    normal = centred / deviation
    logits = normal @ third
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    d_logits = (exponentials / exponentials.sum(axis=1, keepdims=True) - targets) / count
    d_normal = d_logits @ third.T
    d_third = normal.T @ d_logits
    along = (normal * d_normal).mean(axis=0)
    d_hidden = (d_normal - d_normal.mean(axis=0) - normal * along) / deviation
    d_second = activations.T @ d_hidden
    d_before = d_hidden @ second.T
    d_before *= sigmoid * (1 + before - activations)
    return inputs.T @ d_before, d_second, d_third


def gradients(inputs, targets, start):
    """Functions by name and way of calling: one gradient, or the params after a loop of steps."""
    import jax
    import jax.numpy as jnp
    import torch

    import counterflow as cf
    from counterflow.counter_terms.update_rule import descend
    from counterflow.networks.blocks import in_blocks
    from counterflow.networks.paper_network import LAYERS, cross_entropy

    params = dict(zip(LAYERS, map(jnp.asarray, start), strict=True))
    data = tuple(map(jnp.asarray, (inputs, targets)))
    blocks, order = in_blocks(inputs)  # as the library's runs hold their data
    problem = cf.Problem(cross_entropy, (blocks, jnp.asarray(targets[order])))
    whole = cf.Problem(cross_entropy, (*data, jnp.asarray(np.ascontiguousarray(inputs.T))))

    def loop_of(gradient):
        def step(data, point):
            return descend(point, gradient(data, point), LEARNING_RATE)

        return lambda data, params: jax.lax.fori_loop(0, STEPS, lambda _, p: step(data, p), params)

    def compiled(function, data):
        program = jax.jit(function)

        def call():
            done = jax.block_until_ready(program(data, params))
            return [done[layer] for layer in LAYERS]

        return call

    def straightforward(data, params):
        return jax.grad(jax_loss)(params, data)

    leaves = [torch.from_numpy(leaf) for leaf in start]
    tensors = torch.from_numpy(inputs), torch.from_numpy(targets.argmax(axis=1))
    return {
        ("counterflow", "loop"): compiled(loop_of(cf.Problem.gradient), problem),
        ("counterflow", "call"): compiled(cf.Problem.gradient, problem),
        ("counterflow, not in blocks", "loop"): compiled(loop_of(cf.Problem.gradient), whole),
        ("JAX", "loop"): compiled(loop_of(straightforward), data),
        ("JAX", "call"): compiled(straightforward, data),
        (TORCH, "call"): lambda: torch_gradient(leaves, *tensors),
        ("NumPy", "call"): lambda: numpy_gradient(start, inputs, targets),
    }


def differences(functions, inputs, targets, start):
    """How far each gradient is from NumPy's, and each loop's path from that of NumPy's steps."""

    def minus(tree, scale, other):
        return [a - scale * np.asarray(b) for a, b in zip(tree, other, strict=True)]

    def size(tree):
        return np.sqrt(sum(np.sum(np.square(leaf)) for leaf in tree))

    end = start
    for _ in range(STEPS):
        end = minus(end, LEARNING_RATE, numpy_gradient(end, inputs, targets))
    expected = {"call": numpy_gradient(start, inputs, targets), "loop": minus(start, 1, end)}
    found = {}
    for (name, way), function in functions.items():
        result = minus(start, 1, function()) if way == "loop" else function()
        error = size(minus(expected[way], 1, result)) / size(expected[way])
        if not error <= TOLERANCE:
            raise ValueError(
                f"all gradients must agree to {TOLERANCE:g}, but that of {name} ({way}) differs "
                f"from NumPy's by {error:g}"
            )
        found[name, way] = float(error)
    return found


# The limit


def products(inputs, start):
    """The products of forward and backward pass: pairs of factors, by name and kind of data."""
    first, second, third = start
    generator = np.random.default_rng(1)
    wide, other, narrow = (
        generator.uniform(-1, 1, (len(inputs), width)) for width in (*WIDTHS[1:3], WIDTHS[3])
    )
    return {
        ("X W1", ""): (inputs, first),
        ("A W2", ""): (wide, second),
        ("Z W3", ""): (wide, third),
        ("dL W3ᵀ", ""): (narrow, third.T),
        ("Zᵀ dL", ""): (wide.T, narrow),
        ("dH W2ᵀ", ""): (wide, second.T),
        ("Aᵀ dH", ""): (wide.T, other),
        ("Xᵀ dA", ""): (inputs.T, wide),
        ("Xᵀ dA", ", data transposed"): (np.ascontiguousarray(inputs.T), wide),
    }


def multiplications(inputs, start):
    """Functions by product and by who computes it."""
    import jax
    import jax.numpy as jnp
    import torch

    def by_numpy(left, right):
        out = np.empty((len(left), right.shape[1]))
        return lambda: np.matmul(left, right, out=out)

    def by_jax(left, right):
        # A transposed factor is transposed inside of the program, which then need not copy it.
        turned = [not factor.flags.c_contiguous for factor in (left, right)]
        stored = [
            jnp.asarray(factor.T if turn else factor)
            for factor, turn in zip((left, right), turned, strict=True)
        ]

        @jax.jit
        def program(left, right):
            return (left.T if turned[0] else left) @ (right.T if turned[1] else right)

        return lambda: jax.block_until_ready(program(*stored))

    def by_torch(left, right):
        out = torch.empty((len(left), right.shape[1]), dtype=torch.float64)
        left, right = torch.from_numpy(left), torch.from_numpy(right)
        return lambda: torch.mm(left, right, out=out)

    functions = {}
    for (name, kind), factors in products(inputs, start).items():
        functions[name, f"JAX{kind}"] = by_jax(*factors)
        functions[name, f"NumPy{kind}"] = by_numpy(*factors)
        functions[name, f"{TORCH}{kind}"] = by_torch(*factors)
    return functions


def others(times):
    """The times of JAX and NumPy alone."""
    return {who: time for who, time in times.items() if not who.startswith(TORCH)}


# Cases


def time_case(images, rounds, folder):
    import jax

    jax.config.update("jax_enable_x64", True)
    from counterflow.networks.paper_network import glorot_uniform

    data, inputs, targets = images_of(images, folder)
    start = [np.array(leaf) for leaf in glorot_uniform(WIDTHS).values()]
    functions, factors = gradients(inputs, targets, start), multiplications(inputs, start)
    errors = differences(functions, inputs, targets, start)
    calls = max(1, LEAST // images)

    def repeated(function):
        return lambda: [function() for _ in range(calls)]

    timed = {name: repeated(function) for name, function in (functions | factors).items()}
    typical = medians(interleaved(timed, rounds, pause=PAUSE))
    seconds = {name: time / calls for name, time in typical.items()}
    parts = []
    for product in dict.fromkeys(name for name, _ in factors):
        times = {who: seconds[name, who] for name, who in factors if name == product}
        parts.append({"product": product, "seconds": times})
    limit = sum(min(others(part["seconds"]).values()) for part in parts)
    with_torch = sum(min(part["seconds"].values()) for part in parts)
    rows = []
    for (name, way), error in errors.items():
        each = seconds[name, way] / (STEPS if way == "loop" else 1)
        rows.append(
            {
                "name": name,
                "way": way,
                "seconds": each,
                "percent_of_limit": 100 * limit / each,
                "percent_of_limit_with_torch": 100 * with_torch / each,
                "difference": error,
            }
        )
    limits = {"limit_seconds": limit, "limit_with_torch_seconds": with_torch}
    return {"data": data, "images": images, **limits, "products": parts, "gradients": rows}


def compile_case(images, cache, folder):
    import jax

    jax.config.update("jax_enable_x64", True)
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    import counterflow as cf
    from counterflow.networks.blocks import in_blocks
    from counterflow.networks.paper_network import cross_entropy, glorot_uniform

    _, inputs, targets = images_of(images, folder)
    blocks, _ = in_blocks(inputs)
    problem, params = cf.Problem(cross_entropy, (blocks, targets)), glorot_uniform(WIDTHS)
    start = time.perf_counter()
    lowered = jax.jit(cf.Problem.gradient).lower(problem, params)
    middle = time.perf_counter()
    lowered.compile()
    return {"trace_seconds": middle - start, "compile_seconds": time.perf_counter() - middle}


def blocks_case(images, folder):
    """What part of the pixels has ink, what part blocks leave, and how long making them takes."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from counterflow.networks.blocks import in_blocks

    _, inputs, _ = images_of(images, folder)
    start = time.perf_counter()
    blocks, _ = in_blocks(inputs)
    return {
        "seconds": time.perf_counter() - start,
        "ink": float(np.mean(inputs != np.min(inputs, axis=0))),
        "left": sum(part.values.size for part in blocks.parts) / inputs.size,
    }


def run_case(case):
    kinds = {"time": time_case, "compile": compile_case, "blocks": blocks_case}
    return kinds[case.pop("kind")](**case)


def compilation(images, where):
    """Seconds of compilation without a cache on disk, with an empty one, and with a full one."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"no cache": None, "empty cache": folder, "full cache": folder}
        rows = []
        for name, cache in caches.items():
            case = {"kind": "compile", "images": images, "cache": cache, "folder": where}
            rows.append({"cache": name} | in_process(__file__, case))
            text = "compilation, {cache}: {compile_seconds:.2f} s after {trace_seconds:.2f} s"
            print(text.format(**rows[-1]), "of tracing", flush=True)
    return rows


def report(size):
    print(
        f"{size['images']:,} images of {size['data']}: the limit is "
        f"{1e3 * size['limit_seconds']:.1f} ms, with PyTorch's products "
        f"{1e3 * size['limit_with_torch_seconds']:.1f} ms"
    )
    for part in size["products"]:
        times = [f"{who} {1e3 * time:.1f} ms" for who, time in part["seconds"].items()]
        print(f"  {part['product']:7}", "; ".join(times))
    for row in size["gradients"]:
        print(
            f"  {row['name']:26} {row['way']} {1e3 * row['seconds']:8.1f} ms, "
            f"{row['percent_of_limit']:3.0f} % of the limit, "
            f"{row['percent_of_limit_with_torch']:3.0f} % of that with PyTorch's products",
            flush=True,
        )


def main(folder):
    where = None if folder is None else str(folder.resolve())
    sizes = []
    for images, rounds in ROUNDS.items():
        case = {"kind": "time", "images": images, "rounds": rounds, "folder": where}
        sizes.append({"rounds": rounds} | in_process(__file__, case))
        report(sizes[-1])
    case = {"kind": "blocks", "images": max(ROUNDS), "folder": where}
    blocks = in_process(__file__, case)
    text = "{ink:.0%} of the pixels have ink, blocks leave {left:.0%}, sorted in {seconds:.1f} s"
    print(text.format(**blocks), flush=True)
    results = {
        "widths": WIDTHS,
        "blocks": blocks,
        "steps_of_loop": STEPS,
        "sizes": sizes,
        "compilation": compilation(max(ROUNDS), where),
    }
    write("one_gradient", results, (*PACKAGES, "torch"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--data-dir", type=Path, help="where the files of MNIST are")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run_case(json.loads(options.case))))
    else:
        main(options.data_dir)
