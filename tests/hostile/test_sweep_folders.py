"""Folders that are said to be sweeps: an error in words, at once and in little memory."""

import json
import os

import pytest
from hypothesis import given, strategies as st

import counterflow as cf
from counterflow.cli import main
from memory import peak_memory

WHOLE = {
    "format": "1",
    "name": "a sweep",
    "command": "counterflow sweep",
    "runs": {"η = 1": {"swept": {"learning_rates": [1.0]}, "folder": "run-1"}},
    "failed": {"η = 1": "it failed"},
}
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3)
    ),
    max_leaves=5,
)


def told(folder, content):
    """What `counterflow report` makes of a sweep with this content: done, or an error in words."""
    (folder / "sweep.json").write_bytes(content)
    return main(["report", str(folder)])


@given(part=st.sampled_from([*WHOLE, "folder", "swept"]), value=VALUES)
def test_whatever_a_part_is_it_is_read_or_told(part, value, tmp_path, capsys):
    changed = json.loads(json.dumps(WHOLE))
    (changed if part in changed else changed["runs"]["η = 1"])[part] = value
    code = told(tmp_path, json.dumps(changed).encode())
    said = capsys.readouterr()
    assert code in (0, 1)
    assert said.out.startswith("report: ") if code == 0 else said.err.startswith("counterflow: ")


@given(content=st.binary(max_size=40))
def test_whatever_the_file_is_it_is_told(content, tmp_path, capsys):
    assert told(tmp_path, content) == 1
    assert capsys.readouterr().err.startswith("counterflow: cannot read the sweep in ")


@pytest.mark.parametrize("folder", ["..", ".", "", "a/..", "\0"])
def test_a_run_is_never_looked_for_elsewhere(folder, tmp_path):
    changed = WHOLE | {"runs": {"η = 1": {"swept": {}, "folder": folder}}}
    (tmp_path / "sweep.json").write_text(json.dumps(changed))
    with pytest.raises(cf.StoreError, match="'folder' is missing or no name"):
        cf.open_sweep(tmp_path)


def test_nothing_endless_is_read(tmp_path):
    with peak_memory() as peak:
        (tmp_path / "sweep.json").write_bytes(b"[" * 200_000)
        with pytest.raises(cf.StoreError):
            cf.open_sweep(tmp_path)
        os.truncate(tmp_path / "sweep.json", 2**40)
        with pytest.raises(cf.StoreError, match="more than the"):
            cf.open_sweep(tmp_path)
    assert peak() < 2**24
