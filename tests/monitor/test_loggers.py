"""The loggers of the page on the monitor, with modules that stand in for theirs."""

import re
import sys
import types
from pathlib import Path
from unittest import mock

import jax.numpy as jnp

import counterflow as cf


def block_of_the_page(imported):
    """The block of the page that imports something."""
    page = Path(__file__).parents[2] / "docs" / "monitor.md"
    blocks = re.findall(r"```py\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if imported in block)
    return block


def standing_in(**attributes):
    """A module of these attributes, in place of one that need not be installed."""
    found = types.ModuleType("a stand-in")
    vars(found).update(attributes)
    return found


def logged_by(block, modules):
    """The record at step 0 by the monitor that a block makes, with modules that stand in."""
    names = {"cf": cf, "problem": cf.Problem(lambda theta: jnp.sum(theta**4))}
    with mock.patch.dict(sys.modules, modules):  # no longer: others look for PyTorch there
        exec(block, names)
    names["monitor"](0, jnp.ones(2))
    return names["monitor"].records[0]


def test_the_writer_of_tensorboard_gets_every_number():
    written = {}

    class SummaryWriter:
        def add_scalar(self, tag, scalar_value, global_step=None):
            assert global_step == 0
            written[tag] = scalar_value

    standing = standing_in(SummaryWriter=SummaryWriter)
    modules = {
        "torch": standing_in(),
        "torch.utils": standing_in(),
        "torch.utils.tensorboard": standing,
    }
    record = logged_by(block_of_the_page("tensorboard"), modules)
    assert written == {f"counterflow/{name}": value for name, value in record.items()}
    assert record["loss"] > 0


def test_weights_and_biases_get_every_number():
    projects, written = [], {}

    def log(data, step=None):
        written[step] = data

    modules = {"wandb": standing_in(init=lambda project: projects.append(project), log=log)}
    record = logged_by(block_of_the_page("import wandb"), modules)
    assert projects == ["my project"]
    assert written == {0: record}
