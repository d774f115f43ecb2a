"""The memory of a run on all images: descent, flows of order 0 and 1, and predicted errors.

    python benchmarks/memory.py [--data-dir FOLDER]

Each case has a process of its own, whose high-water mark is its memory, with data and libraries:
`counterflow reproduce figure2` on MNIST's images, with few records, which need all the memory that
many do; and beside it one gradient by PyTorch. Without MNIST's files nothing is measured. Results:
`benchmarks/results/memory.json`.
"""

import argparse
import json
import tempfile
from pathlib import Path

from common import PACKAGES, PAPER_WIDTHS, images_of, in_process, peak_bytes, write

IMAGES = 60_000
STEPS, RECORDS, RESTART = 60, 6, 20


def run_case(folder):
    """The paper's network through the command that a user would type."""
    from counterflow.cli.main import main as command
    from counterflow.cli.memory import keep_freed_memory

    keep_freed_memory()  # as the command does
    with tempfile.TemporaryDirectory() as runs:
        options = (
            "--data mnist --size standard --learning-rates 0.01 "
            f"--weight-decays 0.01 --steps {STEPS} --records {RECORDS} --restart {RESTART} "
            "--orders 0 1 --quiet"
        ).split()
        code = command(["reproduce", "figure2", *options, "--data-dir", folder, "--folder", runs])
    if code:
        raise RuntimeError(f"the command must end with 0, got {code}")
    return peak_bytes()


def torch_case(folder):
    """One gradient by PyTorch, with the images as doubles and nothing beside them."""
    from itertools import pairwise

    import numpy as np
    import torch
    from one_gradient import torch_gradient

    _, inputs, targets = images_of(IMAGES, folder)
    generator = np.random.default_rng(0)
    params = [
        torch.from_numpy(generator.normal(size=shape) / np.sqrt(shape[0]))
        for shape in pairwise(PAPER_WIDTHS)
    ]
    torch_gradient(params, torch.from_numpy(inputs), torch.from_numpy(targets.argmax(axis=1)))
    return peak_bytes()


CASES = {"counterflow": run_case, "PyTorch": torch_case}


def main(folder):
    rows = []
    for name in CASES:
        case = {"name": name, "folder": str(folder.resolve())}
        rows.append({"name": name} | in_process(__file__, case))
        print(f"{name}: {rows[-1]['bytes'] / 2**30:.2f} GiB", flush=True)
    settings = {"images": IMAGES, "steps": STEPS, "records": RECORDS, "restart": RESTART}
    write("memory", settings | {"rows": rows}, (*PACKAGES, "torch"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--data-dir", type=Path, help="where the files of MNIST are")
    options = parser.parse_args()
    if options.case:
        known = json.loads(options.case)
        print(json.dumps({"bytes": CASES[known.pop("name")](**known)}))
    elif options.data_dir is None:
        print("--data-dir must name a folder with the files of MNIST: nothing is measured without")
    else:
        main(options.data_dir)
