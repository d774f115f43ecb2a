"""What a monitor costs in a training loop: the same steps with and without it, in turns.

    python benchmarks/monitor.py

The paper's network on scikit-learn's digits, plain gradient descent as a Python loop over a
compiled step, a `Monitor` with its defaults and all symmetries found. Every interval is run three
times from the same params, without the monitor, with it, and without it again, the mean of which
counts; within that with it, the seconds of the monitor itself are added up. Compilation comes
before, in a monitor whose budget is not limited, which says what each part costs. Results:
`benchmarks/results/monitor.json`.
"""

import math
import time

from common import median_ratio, write

WIDTHS, LEARNING_RATE, WEIGHT_DECAY = (64, 32, 16, 10), 1e-2, 1e-3
EVERY, RECORDS = 1000, 10
IDLE_CALLS = 100_000


def seconds_of(function):
    """What a function returns, and the seconds that it takes."""
    begin = time.perf_counter()
    result = function()
    return result, time.perf_counter() - begin


def main():
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    import counterflow as cf
    from counterflow.data.digits import digits
    from counterflow.networks.paper_network import cross_entropy, glorot_uniform

    data = tuple(map(jnp.asarray, (digits().inputs, digits().targets)))
    problem = cf.Problem(cross_entropy, data, weight_decay=WEIGHT_DECAY)
    start = glorot_uniform(WIDTHS)

    @jax.jit
    def update(problem, params):
        gradient = problem.gradient(params)
        return jax.tree.map(lambda a, b: a - LEARNING_RATE * b, params, gradient)

    def interval(params):
        for _ in range(EVERY):
            params = update(problem, params)
        return jax.block_until_ready(params)

    def watched_interval(params, first, monitor):
        """The params, the seconds of everything, and those of the monitor alone."""
        begin, inside = time.perf_counter(), 0.0
        for step in range(first + 1, first + EVERY + 1):
            params = update(problem, params)
            if step % EVERY == 0:
                jax.block_until_ready(params)  # what the loop left to do is not the monitor's
            inside += seconds_of(lambda: monitor(step, params))[1]  # noqa: B023
        return params, time.perf_counter() - begin, inside

    # Everything at every record: what compiles does so here, and each part has its price.
    jax.block_until_ready(update(problem, start))
    everything = cf.Monitor(problem, LEARNING_RATE, every=EVERY, symmetries="find", budget=math.inf)
    params, parts = start, []
    spent = 0
    for record in range(3):
        _, seconds = seconds_of(lambda: everything(record * EVERY, params))  # noqa: B023
        parts.append({"gradients": everything.gradient_evaluations - spent, "seconds": seconds})
        spent = everything.gradient_evaluations
        params = interval(params)
    compilation = sum(part["seconds"] for part in parts[:2])
    print(f"the first two records, compilation included: {compilation:.1f} s", flush=True)

    monitor = cf.Monitor(problem, LEARNING_RATE, every=EVERY, symmetries="find")
    params = start
    monitor(0, params)
    seconds = {"without": [], "with": [], "inside": []}
    for record in range(RECORDS):
        first = record * EVERY
        _, before = seconds_of(lambda: interval(params))  # noqa: B023
        after_it, watched, inside = watched_interval(params, first, monitor)
        _, after = seconds_of(lambda: interval(params))  # noqa: B023
        params, alone = after_it, (before + after) / 2
        for name, value in (("without", alone), ("with", watched), ("inside", inside)):
            seconds[name].append(value)
        text = f"{alone:.2f} s, watched {watched:.2f} s, of which the monitor {inside:.2f} s"
        print(f"to step {first + EVERY}: {text}", flush=True)
    idle = cf.Monitor(problem, LEARNING_RATE, every=10 * IDLE_CALLS)
    _, idle_seconds = seconds_of(lambda: [idle(step + 1, params) for step in range(IDLE_CALLS)])
    total = {name: sum(times) for name, times in seconds.items()}
    result = {
        "every": EVERY,
        "records": RECORDS,
        "learning_rate": LEARNING_RATE,
        "widths": WIDTHS,
        "overhead_in_gradients": monitor.overhead,
        "overhead_in_seconds": total["inside"] / (total["with"] - total["inside"]),
        "overhead_with_and_without": total["with"] / total["without"] - 1,
        "median_of_intervals": median_ratio(seconds, "with", "without") - 1,
        "predictions": sum("mismatch" in record for record in monitor.records.values()),
        "sharpnesses": sum("sharpness" in record for record in monitor.records.values()),
        "seconds": seconds,
        "microseconds_in_between": 1e6 * idle_seconds / IDLE_CALLS,
        "everything_at_every_record": parts,
        "first_two_records_with_compilation": compilation,
    }
    for name in ("overhead_in_gradients", "overhead_in_seconds", "overhead_with_and_without"):
        print(f"{name}: {result[name]:.1%}")
    write("monitor", [result])


if __name__ == "__main__":
    main()
