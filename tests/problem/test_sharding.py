"""Data spread over devices: the same numbers as on one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import counterflow as cf

# Devices that wait for each other for 40 seconds, as on a busy machine, would end the process.
FLAGS = (
    "--xla_force_host_platform_device_count=4 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=600"
)


def test_on_four_devices_everything_is_as_on_one():
    script = Path(__file__).with_name("sharded.py")
    found = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        env=os.environ | {"XLA_FLAGS": FLAGS},
        timeout=1800,
    )
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    for quantity, apart in told["apart"].items():
        assert apart < 1e-12, quantity
    # Fifteen samples are not cut into four parts, nor are three classes; eight features are.
    assert told["of 15 samples"] == ["P(None, 'samples')", "P()"]


def test_a_mesh_of_one_device_changes_nothing():
    mesh = jax.make_mesh((1,), ("samples",))
    data = cf.shard({"x": jnp.arange(3.0)}, mesh)
    problem = cf.Problem(lambda theta, data: jnp.sum((data["x"] - theta) ** 2), data)
    assert problem.mesh is None
    assert problem.gradient(jnp.array(1.0)) == 0


def test_what_is_no_mesh_is_refused():
    with pytest.raises(TypeError, match=r"`mesh` must be a `jax.sharding.Mesh`, got int"):
        cf.shard(jnp.arange(3.0), 2)
