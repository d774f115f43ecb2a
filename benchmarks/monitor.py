"""What a monitor costs in a training loop: the same steps with and without it, in turns.

    python benchmarks/monitor.py

The paper's network on scikit-learn's digits, plain gradient descent as a Python loop over a
compiled step; and, where PyTorch is installed, a network with a batch normalization as a loop of
PyTorch. Each with a `Monitor` with its defaults and all symmetries found. Every interval is run
three times from the same params, without the monitor, with it, and without it again, the mean of
which counts; within that with it, the seconds of the monitor itself are added up. How far the
intervals are apart is stated as the least and the largest overhead of one. Compilation comes
before, in a monitor whose budget is not limited, which says what each part costs. Results, the
loop in JAX first: `benchmarks/results/monitor.json`.
"""

import importlib.util
import math
import time

from common import PACKAGES, median_ratio, write

LEARNING_RATE, WEIGHT_DECAY = 1e-2, 1e-3
EVERY, RECORDS = 1000, 10
IDLE_CALLS = 100_000


def seconds_of(function):
    """What a function returns, and the seconds that it takes."""
    begin = time.perf_counter()
    result = function()
    return result, time.perf_counter() - begin


class JaxLoop:
    """The paper's network, and a step of descent in JAX."""

    name, widths = "JAX", (64, 32, 16, 10)

    def __init__(self):
        import jax
        import jax.numpy as jnp

        import counterflow as cf
        from counterflow.data.digits import digits
        from counterflow.networks.paper_network import cross_entropy, glorot_uniform

        data = tuple(map(jnp.asarray, (digits().inputs, digits().targets)))
        self.problem = cf.Problem(cross_entropy, data, weight_decay=WEIGHT_DECAY)
        self.params = glorot_uniform(self.widths)
        self.wait = lambda: jax.block_until_ready(self.params)

        @jax.jit
        def update(problem, params):
            gradient = problem.gradient(params)
            return jax.tree.map(lambda a, b: a - LEARNING_RATE * b, params, gradient)

        self.update = update

    def step(self):
        self.params = self.update(self.problem, self.params)

    def read(self):
        return self.params

    def save(self):
        return self.params

    def restore(self, saved):
        self.params = saved


class TorchLoop:
    """A network with a batch normalization, and a step of descent in PyTorch."""

    name, widths = "PyTorch", (64, 32, 10)

    def __init__(self):
        import torch
        from torch import nn

        import counterflow.torch
        from counterflow.data.digits import digits

        pixels, hidden, classes = self.widths
        self.inputs = torch.tensor(digits().inputs)
        self.targets = torch.tensor(digits().targets).argmax(dim=1)
        torch.manual_seed(0)
        self.module = nn.Sequential(
            nn.Linear(pixels, hidden, bias=False),
            nn.BatchNorm1d(hidden, track_running_stats=False),
            nn.Tanh(),
            nn.Linear(hidden, classes),
        ).double()
        self.loss = nn.CrossEntropyLoss()
        self.problem, _ = counterflow.torch.problem(
            self.module, self.loss, self.inputs, self.targets, weight_decay=WEIGHT_DECAY
        )
        self.read = lambda: counterflow.torch.params(self.module)
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )

    def step(self):
        self.optimizer.zero_grad()
        self.loss(self.module(self.inputs), self.targets).backward()
        self.optimizer.step()

    def wait(self):
        pass  # nothing is left to do

    def save(self):
        return {name: part.clone() for name, part in self.module.state_dict().items()}

    def restore(self, saved):
        self.module.load_state_dict(saved)


def interval(loop, start):
    """The seconds of an interval from the start without a monitor."""
    loop.restore(start)
    begin = time.perf_counter()
    for _ in range(EVERY):
        loop.step()
    loop.wait()
    return time.perf_counter() - begin


def watched_interval(loop, start, first, monitor):
    """The seconds of everything from the start, and those of the monitor alone."""
    loop.restore(start)
    begin, inside = time.perf_counter(), 0.0
    for step in range(first + 1, first + EVERY + 1):
        loop.step()
        if step % EVERY == 0:
            loop.wait()  # what the loop left to do is not the monitor's
        inside += seconds_of(lambda: monitor(step, loop.read))[1]  # noqa: B023
    return time.perf_counter() - begin, inside


def measured(loop):
    """What a monitor costs in a loop."""
    import counterflow as cf

    options = {"learning_rate": LEARNING_RATE, "every": EVERY, "symmetries": "find"}
    beginning = loop.save()
    loop.step()
    # Everything at every record: what compiles does so here, and each part has its price.
    everything = cf.Monitor(loop.problem, **options, budget=math.inf)
    parts, spent, at = [], 0, beginning
    for record in range(3):
        loop.restore(at)
        _, seconds = seconds_of(lambda: everything(record * EVERY, loop.read))  # noqa: B023
        parts.append({"gradients": everything.gradient_evaluations - spent, "seconds": seconds})
        spent = everything.gradient_evaluations
        interval(loop, at)
        at = loop.save()
    compilation = sum(part["seconds"] for part in parts[:2])
    print(f"{loop.name}: two records, compilation included: {compilation:.1f} s", flush=True)

    loop.restore(beginning)
    monitor = cf.Monitor(loop.problem, **options)
    monitor(0, loop.read)
    seconds = {"without": [], "with": [], "inside": []}
    at = beginning
    for record in range(RECORDS):
        first = record * EVERY
        before = interval(loop, at)
        watched, inside = watched_interval(loop, at, first, monitor)
        reached = loop.save()
        alone = (before + interval(loop, at)) / 2
        at = reached
        for name, value in (("without", alone), ("with", watched), ("inside", inside)):
            seconds[name].append(value)
        text = f"{alone:.2f} s, watched {watched:.2f} s, of which the monitor {inside:.2f} s"
        print(f"to step {first + EVERY}: {text}", flush=True)
    idle = cf.Monitor(loop.problem, LEARNING_RATE, every=10 * IDLE_CALLS)
    _, idle_seconds = seconds_of(lambda: [idle(step + 1, loop.read) for step in range(IDLE_CALLS)])
    total = {name: sum(times) for name, times in seconds.items()}
    pairs = zip(seconds["with"], seconds["without"], strict=True)
    overheads = [watched / alone - 1 for watched, alone in pairs]
    result = {
        "loop": loop.name,
        "every": EVERY,
        "records": RECORDS,
        "learning_rate": LEARNING_RATE,
        "widths": loop.widths,
        "overhead_in_gradients": monitor.overhead,
        "overhead_in_seconds": total["inside"] / (total["with"] - total["inside"]),
        "overhead_with_and_without": total["with"] / total["without"] - 1,
        "median_of_intervals": median_ratio(seconds, "with", "without") - 1,
        "least_and_largest_of_intervals": [min(overheads), max(overheads)],
        "predictions": sum("mismatch" in record for record in monitor.records.values()),
        "sharpnesses": sum("sharpness" in record for record in monitor.records.values()),
        "seconds": seconds,
        "microseconds_in_between": 1e6 * idle_seconds / IDLE_CALLS,
        "everything_at_every_record": parts,
        "first_two_records_with_compilation": compilation,
    }
    for name in ("overhead_in_gradients", "overhead_in_seconds", "overhead_with_and_without"):
        print(f"{name}: {result[name]:.1%}")
    print(f"of single intervals: {min(overheads):.1%} to {max(overheads):.1%}", flush=True)
    return result


def main():
    import jax

    jax.config.update("jax_enable_x64", True)
    has_torch = importlib.util.find_spec("torch") is not None
    loops = (JaxLoop, TorchLoop) if has_torch else (JaxLoop,)
    write("monitor", [measured(loop()) for loop in loops], (*PACKAGES, *["torch"][:has_torch]))


if __name__ == "__main__":
    main()
