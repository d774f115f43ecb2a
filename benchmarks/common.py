"""What the benchmarks share: timing in turns, a process per case, and the files of results."""

import argparse
import json
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

PAPER_WIDTHS = (784, 100, 100, 10)
RESULTS = Path(__file__).with_name("results")
PACKAGES = ("counterflow", "jax", "jaxlib", "numpy")


def random_batch(samples, widths):
    """Uniform inputs and random one-hot targets, as NumPy arrays in double precision."""
    import numpy as np

    generator = np.random.default_rng(0)
    inputs = generator.uniform(-1, 1, (samples, widths[0]))
    targets = np.eye(widths[-1])[generator.integers(0, widths[-1], samples)]
    return inputs, targets


def images_of(count, folder):
    """MNIST's first images; where they cannot be had, random ones, of which no pixel is blank."""
    from counterflow.data.dataset import DataError, load

    try:
        dataset = load("mnist", None if folder is None else Path(folder))
    except DataError as error:
        print(f"{error}\nrandom images instead", file=sys.stderr)
        return "random pixels", *random_batch(count, PAPER_WIDTHS)
    return "MNIST", dataset.inputs[:count], dataset.targets[:count]


def network_on_images(description, add_options=lambda parser: None):
    """The options of a benchmark on images, and the paper's network on these, at its start."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import counterflow as cf
    from counterflow.data.dataset import load
    from counterflow.networks.blocks import in_blocks
    from counterflow.networks.paper_network import cross_entropy, glorot_uniform

    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--data-dir", type=Path)
    add_options(parser)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    dataset = load(options.data, options.data_dir)
    inputs, targets = dataset.inputs[: options.samples], dataset.targets[: options.samples]
    options.samples = len(inputs)
    hidden = 32 if options.data == "digits" else 100
    params = glorot_uniform((inputs.shape[1], hidden, hidden, targets.shape[1]))
    if options.data == "digits":
        data = inputs, targets, np.ascontiguousarray(inputs.T)
    else:  # as the library's runs hold them
        blocks, order = in_blocks(inputs)
        data = blocks, targets[order]
    problem = cf.Problem(cross_entropy, jax.tree.map(jnp.asarray, data), weight_decay=1e-3)
    return options, problem, params


# Time


def interleaved(functions, rounds, *, at_least=0.0, pause=0.0):
    """The seconds of each function, a list by name, called in turns after one call of each.

    Args:
        functions: Functions by name; each returns when its work is done.
        rounds: How many rounds, at least.
        at_least: Rounds go on until this many seconds have passed.
        pause: Seconds to wait before each call. Threads of OpenMP and OpenBLAS spin for a while
            after their work, on the cores of whoever comes next.
    """
    for function in functions.values():
        function()
    seconds = {name: [] for name in functions}
    begin = time.perf_counter()
    done = 0
    while done < rounds or time.perf_counter() - begin < at_least:
        for name, function in functions.items():
            time.sleep(pause)
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
        done += 1
    return seconds


def medians(seconds):
    """The median of each list of seconds, by name."""
    return {name: statistics.median(times) for name, times in seconds.items()}


def median_ratio(seconds, name, reference):
    """The median over rounds of one function's time over another's in the same round."""
    pairs = zip(seconds[name], seconds[reference], strict=True)
    return statistics.median(one / other for one, other in pairs)


# Memory


def program_bytes(program):
    """What a compiled program allocates beside its arguments: temporary and output buffers."""
    memory = program.memory_analysis()
    return memory.temp_size_in_bytes + memory.output_size_in_bytes


def peak_bytes():
    """The high-water mark of this process's memory."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not `ru_maxrss`, which on Linux a process takes over from the one that started it.
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


# Processes


def in_process(script, case, timeout=None):
    """What `script --case …` prints as its last line, or nothing where it takes too long."""
    command = [sys.executable, script, "--case", json.dumps(case)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        raise RuntimeError(f"the case {case} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


# Results


def machine(*packages):
    """The processor, its cores, and the versions of Python and of packages."""
    from counterflow.runs.environment import fingerprint

    known = fingerprint()
    where = {"processor": known["processor"], "cores": int(known["cores"])}
    return where | {"python": known["python"]} | {name: version(name) for name in packages}


def write(name, results, packages=PACKAGES, *, where=None):
    """Writes `results/NAME.json`: the machine (this one, unless another is given), the results."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    found = {"machine": where or machine(*packages), "results": results}
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {path}", flush=True)
