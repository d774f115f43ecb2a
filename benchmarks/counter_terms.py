"""Time and memory of the counter terms, in multiples of one gradient, beside PyTorch's autograd.

    make bench

Every case runs in a process of its own, where it is timed in turns with the gradient it is compared
with. Memory of JAX programs is what the compiled program allocates beside its arguments (temporary
and output buffers); of PyTorch, the growth of the process's high-water mark. A case is skipped once
the one before it took longer than the budget. Results: `benchmarks/counter_terms.md`.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from itertools import pairwise
from math import factorial
from pathlib import Path

WIDTHS = (784, 128, 128, 10)
SAMPLES = 5000
PAPER_WIDTHS = (784, 100, 100, 10)
PAPER_SAMPLES = 2000
REPEATS = 7
MEMORY_LIMIT = 16 * 2**30
RESULTS = Path(__file__).with_suffix(".md")


def random_batch(samples, widths):
    import numpy as np

    generator = np.random.default_rng(0)
    inputs = generator.uniform(-1, 1, (samples, widths[0]))
    targets = np.eye(widths[-1])[generator.integers(0, widths[-1], samples)]
    return inputs, targets


def interleaved(gradient, function, repeats=REPEATS):
    """Median ratio of two calls' times, each pair timed back to back."""
    gradient(), function()
    ratios, seconds = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        gradient()
        middle = time.perf_counter()
        function()
        end = time.perf_counter()
        ratios.append((end - middle) / (middle - start))
        seconds.append(middle - start)
    return statistics.median(ratios), statistics.median(seconds)


# JAX


def jax_case(kind, order, widths, samples):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    import counterflow as cf
    from counterflow.counter_terms import lie, taylor
    from counterflow.networks.paper_network import cross_entropy, glorot_uniform

    data = tuple(map(jnp.asarray, random_batch(samples, widths)))
    problem, params = cf.Problem(cross_entropy, data, weight_decay=1e-2), glorot_uniform(widths)
    functions = {
        "taylor": lambda p, q: taylor.counter_terms(p.gradient, q, order + 1)[1:],
        "lie": lambda p, q: lie.counter_terms(p.gradient, q, order + 1)[1:],
        "orbit": lambda p, q: cf.EquationOfMotion(p, 1e-2, order, "orbit").velocity(q),
        "velocity": lambda p, q: cf.EquationOfMotion(p, 1e-2, order).velocity(q),
    }

    def compiled(function):
        start = time.perf_counter()
        program = jax.jit(function).lower(problem, params).compile()
        seconds = time.perf_counter() - start
        memory = program.memory_analysis()
        size = memory.temp_size_in_bytes + memory.output_size_in_bytes
        return lambda: jax.block_until_ready(program(problem, params)), seconds, size

    gradient, _, gradient_size = compiled(lambda p, q: p.gradient(q))
    function, compile_seconds, size = compiled(functions[kind])
    ratio, gradient_seconds = interleaved(gradient, function)
    return {
        "time": ratio,
        "memory": size / gradient_size,
        "compile_seconds": compile_seconds,
        "gradient_seconds": gradient_seconds,
        "gradient_bytes": gradient_size,
    }


# PyTorch: Theorem 3.3 by nested autograd, directional derivatives by double backward.


def torch_case(order):
    import torch

    torch.set_default_dtype(torch.float64)
    inputs, targets = (torch.tensor(array) for array in random_batch(SAMPLES, WIDTHS))
    torch.manual_seed(0)
    params = [(torch.rand(a, b) * 2 - 1) * (6 / (a + b)) ** 0.5 for a, b in pairwise(WIDTHS)]

    def loss(params):
        hidden = inputs @ params[0]
        hidden = (hidden * torch.sigmoid(hidden)) @ params[1]
        centred = hidden - hidden.mean(0, keepdim=True)
        normal = centred / (centred**2).mean(0, keepdim=True).sqrt()
        return -(targets * torch.log_softmax(normal @ params[2], 1)).sum(1).mean()

    def field(params):
        gradients = torch.autograd.grad(loss(params), params, create_graph=True)
        return [g + 1e-2 * p for g, p in zip(gradients, params, strict=True)]

    def along(function, direction):
        def derivative(params):
            values = function(params)
            dual = [torch.zeros_like(v, requires_grad=True) for v in values]
            pulled = torch.autograd.grad(values, params, dual, create_graph=True)
            return torch.autograd.grad(pulled, dual, direction(params), create_graph=True)

        return derivative

    def summed(functions, weights):
        def total(params):
            terms = [[w * x for x in f(params)] for f, w in zip(functions, weights, strict=True)]
            return [sum(leaves) for leaves in zip(*terms, strict=True)]

        return total

    fields = [field]

    def derivatives(length, total):
        if length == 1:
            return fields[total]
        terms = [along(derivatives(length - 1, total - k), fields[k]) for k in range(total + 1)]
        return summed(terms, [1] * len(terms))

    for alpha in range(order + 1):
        orders = range(2, alpha + 3)
        fields.append(
            summed(
                [derivatives(i, alpha - i + 2) for i in orders],
                [(-1) ** i / factorial(i) for i in orders],
            )
        )

    def leaves():
        return [p.clone().requires_grad_() for p in params]

    def gradient():
        point = leaves()
        return torch.autograd.grad(loss(point), point)

    def function():
        point = leaves()
        return [[x.detach() for x in f(point)] for f in fields[1:]]

    # Where memory runs out, PyTorch is to say so instead of taking the machine down.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    start = peak()
    gradient()
    gradient_size = peak() - start
    start = peak()
    try:
        function()
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        return {"failed": f"> {MEMORY_LIMIT // 2**30} GiB"}
    size = peak() - start + gradient_size
    ratio, gradient_seconds = interleaved(gradient, function, repeats=3)
    return {
        "time": ratio,
        "memory": size / gradient_size,
        "gradient_seconds": gradient_seconds,
        "gradient_bytes": gradient_size,
    }


# One process per case.


def run_case(case):
    if case["kind"] == "torch":
        return torch_case(case["order"])
    return jax_case(case["kind"], case["order"], tuple(case["widths"]), case["samples"])


def measure(kind, order, timeout, widths=WIDTHS, samples=SAMPLES):
    case = json.dumps({"kind": kind, "order": order, "widths": widths, "samples": samples})
    command = [sys.executable, __file__, "--case", case]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def series(kind, orders, budget, **options):
    """The cases of one method by order, until one takes longer than the budget."""
    results = {}
    for order in orders:
        results[order] = measure(kind, order, budget, **options)
        result = results[order] or {"failed": "over budget"}
        print(f"{kind} {order}: {result.get('failed') or round(result['time'], 1)}", flush=True)
        if "failed" in result:
            break
    return results


def cell(results, order, key, digits=1):
    result = results.get(order) or {}
    return result.get("failed", "—") if key not in result else f"{result[key]:.{digits}f}"


def report(budget):
    orders = range(7)
    taylor = series("taylor", orders, budget)
    lie = series("lie", orders, budget)
    torch = series("torch", orders, budget)
    orbit = series("orbit", orders, budget)
    velocity = series("velocity", orders, budget, widths=PAPER_WIDTHS, samples=PAPER_SAMPLES)
    base, torch_base = taylor[0], torch[0]
    parameters = sum(a * b for a, b in pairwise(WIDTHS))
    lines = [
        "# Cost of the counter terms",
        "",
        "Made by `make bench`; the numbers are ratios to one gradient of the same framework, timed",
        f"in turns in the same process (median of {REPEATS}, of 3 for PyTorch). The paper's",
        "network with widths",
        f"{'-'.join(map(str, WIDTHS))} ({parameters:,} parameters), {SAMPLES:,} samples, float64.",
        f"One gradient: counterflow {1e3 * base['gradient_seconds']:.0f} ms and",
        f"{base['gradient_bytes'] / 2**20:.0f} MiB, PyTorch"
        f" {1e3 * torch_base['gradient_seconds']:.0f} ms and",
        f"{torch_base['gradient_bytes'] / 2**20:.0f} MiB. A dash: not finished within"
        f" {budget:.0f} s, compilation included, or not tried after such a one; PyTorch's address",
        f"space was limited to {MEMORY_LIMIT // 2**30} GiB.",
        "",
        "## All counter terms up to ξ̃_α",
        "",
        "`taylor` and `lie` are counterflow's methods; PyTorch evaluates the same sum as `lie` by",
        "nested autograd.",
        "",
        "| α | taylor: time | memory | compile (s) | lie: time | memory | compile (s) |"
        " PyTorch: time | memory |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for order in orders:
        cells = [cell(m, order, k) for m in (taylor, lie) for k in ("time", "memory")]
        cells.insert(2, cell(taylor, order, "compile_seconds"))
        cells.append(cell(lie, order, "compile_seconds"))
        cells += [cell(torch, order, "time"), cell(torch, order, "memory")]
        lines.append(f"| {order} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## The velocity by `orbit`, from gradients alone",
        "",
        "| order γ | time | memory | gradients |",
        "|--:|--:|--:|--:|",
    ]
    for order in orders:
        cells = [cell(orbit, order, "time"), cell(orbit, order, "memory"), str(order + 1)]
        lines.append(f"| {order} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## The velocity by `taylor`, the paper's network on"
        f" {PAPER_SAMPLES:,} images ({'-'.join(map(str, PAPER_WIDTHS))})",
        "",
        "| order γ | time | memory | compile (s) |",
        "|--:|--:|--:|--:|",
    ]
    for order in orders:
        cells = [cell(velocity, order, k) for k in ("time", "memory", "compile_seconds")]
        lines.append(f"| {order} | " + " | ".join(cells) + " |")
    packages = ("counterflow", "jax", "jaxlib", "torch", "numpy")
    lines += [
        "",
        "## Where",
        "",
        f"{processor()}, {os.cpu_count()} cores; Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in packages)
        + ".",
        "",
    ]
    RESULTS.write_text("\n".join(lines), encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


def processor():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, default=60, help="seconds per case (default: 60)")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run_case(json.loads(options.case))))
    else:
        report(options.budget)
