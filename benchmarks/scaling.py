"""One gradient with the data over several devices: time, bytes moved, and what that means beyond.

    python benchmarks/scaling.py [--on-paper]

The devices are virtual: 1, 2 and 4 of them share this machine's cores, so that their time shows
what cutting up costs, not what it gains. How much they have to tell each other is counted in the
compiled program, and does not depend on the machine. From that and from a device and a network that
are assumed (`ASSUMED`), the time at larger numbers is computed, not measured: with `--on-paper`,
this alone, from what was measured before. Results: `benchmarks/results/scaling.json`.
"""

import argparse
import json
import math
import os
import re

from common import (
    PAPER_WIDTHS as WIDTHS,
    RESULTS,
    in_process,
    interleaved,
    medians,
    random_batch,
    write,
)

DEVICES = (1, 2, 4)
IMAGES = 12_000
ROUNDS = 7
COLLECTIVE = re.compile(r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all)(-start)?\(")
BYTES = {"f64": 8, "f32": 4, "s64": 8, "s32": 4, "pred": 1}

# A device that makes 30 double-precision TFLOP/s, links of 200 GB/s inside a host of eight and of
# 25 GB/s per device between hosts, and the time that a collective takes whatever its size.
ASSUMED = {
    "flops": 30e12,
    "memory": 80e9,
    "inside": {"bandwidth": 200e9, "latency": 20e-6},
    "between": {"bandwidth": 25e9, "latency": 60e-6},
}
BEYOND = (
    {"name": "the paper's network, 60,000 images", "params": 89_400, "samples": 60_000},
    {"name": "10⁷ parameters, 10⁶ samples", "params": 10**7, "samples": 10**6},
    {"name": "10⁹ parameters, 10⁶ samples", "params": 10**9, "samples": 10**6},
)
PLACES = ({"devices": 1}, {"devices": 8}, {"devices": 512})


def told(program):
    """How many collectives a compiled program has, and the bytes of what they sum."""
    count, total = 0, 0
    for line in program.as_text().splitlines():
        found = COLLECTIVE.search(line)
        if found is None:
            continue
        count += 1
        for kind, shape in re.findall(r"(\w+)\[([\d,]*)\]", found[1]):
            total += BYTES[kind] * math.prod(int(n) for n in shape.split(",") if n)
    return {"collectives": count, "bytes": total}


def measure(case):
    """One case, in a process of its own."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={case['devices']}"
    import jax
    import numpy as np

    import counterflow as cf
    from counterflow.networks.paper_network import cross_entropy, glorot_uniform

    jax.config.update("jax_enable_x64", True)
    data = random_batch(case["samples"], WIDTHS)
    mesh = jax.make_mesh((case["devices"],), ("samples",))
    problem = cf.Problem(cross_entropy, cf.shard(data, mesh), weight_decay=1e-3)
    params = glorot_uniform(WIDTHS)
    motion = cf.EquationOfMotion(problem, 1e-2, 1)
    programs = {
        "gradient": (jax.jit(cf.Problem.gradient), problem),
        "velocity of order 1": (jax.jit(cf.EquationOfMotion.velocity), motion),
    }
    found = {"moved": {}, "norms": {}}
    for name, (function, of) in programs.items():
        found["moved"][name] = told(function.lower(of, params).compile())
        leaves = jax.tree.leaves(function(of, params))
        found["norms"][name] = [float(np.linalg.norm(leaf)) for leaf in leaves]
    seconds = interleaved(
        {
            name: lambda f=function, of=of: jax.block_until_ready(f(of, params))
            for name, (function, of) in programs.items()
        },
        ROUNDS,
    )
    return found | {"seconds": medians(seconds)}


def copies():
    """How many times the params a comparison keeps, and how many more a step takes meanwhile."""
    import jax
    import jax.numpy as jnp

    import counterflow as cf
    from counterflow.networks.paper_network import cross_entropy, glorot_uniform
    from counterflow.runs.training import Training

    jax.config.update("jax_enable_x64", True)
    problem = cf.Problem(cross_entropy, random_batch(64, WIDTHS), weight_decay=1e-3)
    training = Training(1e-2, 1e-3, None, 10, 1, (0, 1), predict=True)
    run = training.lock_step(problem, glorot_uniform(WIDTHS))
    sizes = [jnp.size(leaf) for leaf in jax.tree.leaves(run.state)]
    return sum(sizes) / sum(leaf.size for leaf in jax.tree.leaves(glorot_uniform(WIDTHS)))


def beyond(case, devices, kept, collectives):
    """The seconds of one gradient, as far as arithmetic and links decide, and its memory.

    Kept are vectors like the params; data and activations, of which each device has its share of
    the samples, depend on the network and are left out.
    """
    work = 6 * case["params"] * case["samples"] / devices / ASSUMED["flops"]
    hosts = -(-devices // 8)
    link = ASSUMED["between" if hosts > 1 else "inside"]
    moved = 8 * case["params"]
    through = 2 * (devices - 1) / devices * moved  # what a ring moves through every link
    takes = {
        "computing": work,
        "links": through / link["bandwidth"],
        "latency": collectives * link["latency"] * (devices > 1),
    }
    communication = takes["links"] + takes["latency"]
    fits = kept * moved < ASSUMED["memory"]
    return {
        "case": case["name"],
        "devices": devices,
        "hosts": hosts,
        "through": through,
        "computing": work,
        "communication": communication,
        "efficiency": work / (work + communication),
        "kept": kept * moved,
        "fits": fits,
        "limit": max(takes, key=takes.__getitem__) if fits else "memory",
    }


def measured_here():
    """One gradient on each number of devices, how far apart they are, and what is kept."""
    measured = []
    for devices in DEVICES:
        found = {"devices": devices} | in_process(__file__, {"devices": devices, "samples": IMAGES})
        measured.append(found)
        moved = found["moved"]["gradient"]
        print(
            f"{devices} devices: {found['seconds']['gradient'] * 1e3:.0f} ms a gradient, "
            f"{moved['bytes']:,} bytes in {moved['collectives']} collectives",
            flush=True,
        )
    apart = max(
        abs(here / there - 1)
        for found in measured
        for name, norms in found["norms"].items()
        for here, there in zip(norms, measured[0]["norms"][name], strict=True)
    )
    return {"samples": IMAGES, "measured": measured, "apart": apart, "copies": copies()}


def on_paper(here):
    """What follows from that beyond this machine."""
    collectives = here["measured"][-1]["moved"]["gradient"]["collectives"]
    computed = [
        beyond(case, place["devices"], here["copies"], collectives)
        for case in BEYOND
        for place in PLACES
    ]
    return {"assumed": ASSUMED, "computed": computed}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on-paper", action="store_true", help="measure nothing")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measure(options.case)))
        return
    if options.on_paper:
        stored = json.loads((RESULTS / "scaling.json").read_text(encoding="utf-8"))
        here, where = stored["results"], stored["machine"]
    else:
        here, where = measured_here(), None
    write("scaling", here | on_paper(here), where=where)


if __name__ == "__main__":
    main()
