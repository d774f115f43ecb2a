"""Sweeps as TOML, at random: a plan of runs, or an error that names the file and what it needs."""

import json

import pytest
from hypothesis import given, strategies as st

from counterflow.runs.analysis import Analysis
from counterflow.runs.configuration import Configuration
from counterflow.sweeps.plan import SweepError
from counterflow.sweeps.reading import MOST_BYTES, MOST_RUNS, read_sweep

FIELDS = sorted(Configuration.__dataclass_fields__ | Analysis.__dataclass_fields__)
KEYS = st.sampled_from([*FIELDS, "grid", "list", "settings", "name", "model", "experiments", "x"])
VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from(["quick", "digits", "taylor", "figure2", "my_model.py:problem", "../x:y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
TABLES = st.dictionaries(KEYS, st.lists(VALUES, max_size=3) | VALUES, max_size=3)
SWEEPS = st.fixed_dictionaries(
    {"grid": TABLES}, optional={"settings": TABLES, "list": st.lists(TABLES, max_size=2)}
)


def toml(value):
    """A value as TOML has it, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def looked_at(path, content):
    """The plan in a file, or nothing if it was refused in words."""
    path.write_bytes(content)
    try:
        plan = read_sweep(path)
    except SweepError as error:
        assert str(path) in str(error)  # noqa: PT017
        assert len(str(error)) < 3000  # noqa: PT017
        return None
    assert 0 < len(plan.runs) <= MOST_RUNS
    assert len({run.name for run in plan.runs}) == len(plan.runs)
    return plan


@given(st.binary(max_size=300))
def test_any_bytes(tmp_path, content):
    looked_at(tmp_path / "sweep.toml", content)


@given(SWEEPS | TABLES)
def test_any_toml(tmp_path, sweep):
    text = "\n".join(f"{key} = {toml(value)}" for key, value in sweep.items())
    looked_at(tmp_path / "sweep.toml", text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "content",
    [
        b"grid = " + b"[" * 100_000,
        b"[grid]\nseed = [" + b"1," * MOST_BYTES + b"]",
        b"[grid]\n" + b"\n".join(b"x%d = [1, 2]" % i for i in range(64)),
        b"[grid]\nseed = " + str(list(range(MOST_RUNS + 1))).encode(),
        b"[grid]\nseed = [1" + b"0" * 5000 + b"]",
    ],
)
def test_what_is_too_much_is_refused(tmp_path, content):
    assert looked_at(tmp_path / "sweep.toml", content) is None


def test_as_many_runs_as_are_allowed_are_planned(tmp_path):
    content = b"[grid]\nseed = " + str(list(range(MOST_RUNS))).encode()
    assert len(looked_at(tmp_path / "sweep.toml", content).runs) == MOST_RUNS
