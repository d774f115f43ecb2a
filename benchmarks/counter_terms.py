"""Time and memory of the counter terms, in multiples of one gradient, beside PyTorch's autograd.

    python benchmarks/counter_terms.py

Every case runs in a process of its own, where it is timed in turns with the gradient it is compared
with. Memory of JAX programs is what the compiled program allocates beside its arguments (temporary
and output buffers); of PyTorch, the growth of the process's high-water mark. A series ends with the
case that took longer than the budget. Results: `benchmarks/results/counter_terms.json`.
"""

import argparse
import json
import time
from itertools import pairwise
from math import factorial

from common import (
    PACKAGES,
    PAPER_WIDTHS,
    in_process,
    interleaved,
    median_ratio,
    medians,
    peak_bytes,
    program_bytes,
    random_batch,
    write,
)

WIDTHS, SAMPLES = PAPER_WIDTHS, 2000
# All counter terms up to ξ̃_order, by three methods; a velocity of an order has one fewer.
ORDERS = {"taylor": range(6), "lie": range(6), "torch": range(6), "orbit": range(1, 7)}
ROUNDS, SECONDS = 3, 0.3  # rounds of timing at least, and for how long at least
GRADIENTS = 10  # in each round
MEMORY_LIMIT = 16 * 2**30


def measured(gradient, function, gradient_size, size):
    # In a descent, gradients run one after another: not each after what has cleared the caches.
    functions = {"gradient": lambda: [gradient() for _ in range(GRADIENTS)], "function": function}
    seconds = interleaved(functions, ROUNDS, at_least=SECONDS)
    typical = medians(seconds)
    return {
        "time": GRADIENTS * median_ratio(seconds, "function", "gradient"),
        "memory": size / gradient_size,
        "rounds": len(seconds["gradient"]),
        "seconds": typical["function"],
        "bytes": size,
        "gradient_seconds": typical["gradient"] / GRADIENTS,
        "gradient_bytes": gradient_size,
    }


# JAX


def jax_case(kind, order):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    import counterflow as cf
    from counterflow.counter_terms import lie, taylor
    from counterflow.networks.paper_network import cross_entropy, glorot_uniform

    data = tuple(map(jnp.asarray, random_batch(SAMPLES, WIDTHS)))
    problem, params = cf.Problem(cross_entropy, data, weight_decay=1e-2), glorot_uniform(WIDTHS)
    functions = {
        "taylor": lambda p, q: taylor.counter_terms(p.gradient, q, order + 1)[1:],
        "lie": lambda p, q: lie.counter_terms(p.gradient, q, order + 1)[1:],
        "orbit": lambda p, q: cf.EquationOfMotion(p, 1e-2, order, "orbit").velocity(q),
    }

    def compiled(function):
        start = time.perf_counter()
        program = jax.jit(function).lower(problem, params).compile()
        seconds = time.perf_counter() - start
        call = lambda: jax.block_until_ready(program(problem, params))  # noqa: E731
        return call, program_bytes(program), seconds

    gradient, gradient_size, _ = compiled(lambda p, q: p.gradient(q))
    function, size, compile_seconds = compiled(functions[kind])
    result = measured(gradient, function, gradient_size, size)
    return result | {"compile_seconds": compile_seconds}


# PyTorch: Theorem 3.3 by nested autograd, directional derivatives by double backward.


def torch_case(order):
    import resource

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
    start = peak_bytes()
    gradient()
    gradient_size = peak_bytes() - start
    start = peak_bytes()
    try:
        function()
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        return {"failed": f"more than {MEMORY_LIMIT // 2**30} GiB"}
    size = peak_bytes() - start + gradient_size
    return measured(gradient, function, gradient_size, size)


# One process per case.


def run_case(case):
    if case["kind"] == "torch":
        return torch_case(case["order"])
    return jax_case(case["kind"], case["order"])


def series(kind, budget):
    """The cases of one method by order, until one takes longer than the budget."""
    rows = []
    for order in ORDERS[kind]:
        result = in_process(__file__, {"kind": kind, "order": order}, budget)
        rows.append({"order": order} | (result or {"failed": f"more than {budget:g} s"}))
        failed = rows[-1].get("failed")
        text = failed or "{time:.1f} gradients, memory of {memory:.1f}".format(**rows[-1])
        print(f"{kind} {order}: {text}", flush=True)
        if failed:
            break
    return rows


def main(budget):
    results = {
        "widths": WIDTHS,
        "parameters": sum(a * b for a, b in pairwise(WIDTHS)),
        "samples": SAMPLES,
        "budget_seconds": budget,
        "series": {kind: series(kind, budget) for kind in ORDERS},
    }
    write("counter_terms", results, (*PACKAGES, "torch"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, default=20, help="seconds per case (default: 20)")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run_case(json.loads(options.case))))
    else:
        main(options.budget)
