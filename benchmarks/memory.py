"""The memory of a run on all images: descent, flows of order 0 and 1, and predicted errors.

    python benchmarks/memory.py [--data-dir FOLDER]

Each case has a process of its own, whose high-water mark is its memory: `counterflow reproduce
figure2` on MNIST's images, with few records, which need all the memory that many do; and beside it
one gradient by PyTorch. Without MNIST's files nothing is measured. Results:
`benchmarks/results/memory.json`.
"""

import argparse
import json
import tempfile
from pathlib import Path

from common import PACKAGES, PAPER_WIDTHS, images_of, in_process, peak_bytes, write

IMAGES = (15_000, 30_000, 60_000)
STEPS, RECORDS, RESTART = 60, 6, 20


def run_case(images, folder):
    """The paper's network through the command that a user would type."""
    from counterflow.cli.main import main as command

    with tempfile.TemporaryDirectory() as runs:
        options = (
            f"--data mnist --size standard --samples {images} --learning-rates 0.01 "
            f"--weight-decays 0.01 --steps {STEPS} --records {RECORDS} --restart {RESTART} "
            "--orders 0 1 --quiet"
        ).split()
        code = command(["reproduce", "figure2", *options, "--data-dir", folder, "--folder", runs])
    if code:
        raise RuntimeError(f"the command must end with 0, got {code}")
    return peak_bytes()


def torch_case(images, folder):
    """One gradient by PyTorch, with the images as doubles and nothing beside them."""
    import numpy as np
    import torch
    from one_gradient import torch_gradient

    from counterflow.networks.paper_network import glorot_uniform

    _, inputs, targets = images_of(images, folder)
    params = [torch.from_numpy(np.array(leaf)) for leaf in glorot_uniform(PAPER_WIDTHS).values()]
    torch_gradient(params, torch.from_numpy(inputs), torch.from_numpy(targets.argmax(axis=1)))
    return peak_bytes()


CASES = {"counterflow": run_case, "PyTorch": torch_case}


def main(folder):
    rows = []
    for images in IMAGES:
        for name in CASES:
            case = {"name": name, "images": images, "folder": str(folder.resolve())}
            found = in_process(__file__, case)
            rows.append({"name": name, "images": images, "bytes": found["bytes"]})
            print(f"{images:,} images, {name}: {found['bytes'] / 2**30:.2f} GiB", flush=True)
    settings = {"steps": STEPS, "records": RECORDS, "restart": RESTART}
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
