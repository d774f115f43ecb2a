"""What numbers depend on besides their configuration, and what is said when it differs."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from counterflow.runs import environment as module
from counterflow.runs.environment import commit, differences, environment, fingerprint


@pytest.fixture(autouse=True, scope="module")
def started():
    """JAX reads flags and files of the machine when it starts: before they are changed here."""
    jax.device_count()


def test_versions_and_machine_are_named():
    found = environment()
    assert found["jax"] == version("jax")
    assert found["counterflow"] == version("counterflow")
    assert found["python"] == platform.python_version()
    assert found["machine"] == platform.machine()


def test_the_fingerprint_also_has_processor_cores_and_flags(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5})
    monkeypatch.setenv("XLA_FLAGS", "--xla_some_flag")
    found = fingerprint()
    assert found.items() > environment().items()
    assert found["cores"] == "3"
    assert found["XLA_FLAGS"] == "--xla_some_flag"
    monkeypatch.delenv("XLA_FLAGS")
    assert differences(found, fingerprint()) == ["XLA_FLAGS was --xla_some_flag, is "]


def test_libraries_of_models_are_noted_where_they_are_in_use(monkeypatch):
    for name in ("torch", "flax", "optax"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = fingerprint()
    assert not {"torch", "flax", "optax", "threads of torch"} & before.keys()
    torch = SimpleNamespace(__version__="2.9.0", get_num_threads=lambda: 3)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "optax", SimpleNamespace())  # a user's own file
    first = fingerprint()
    assert first.items() - before.items() == {
        ("torch", "2.9.0"),
        ("threads of torch", "3"),
        ("optax", ""),
    }
    torch.__version__ = "2.13.0"
    assert differences(first, fingerprint()) == ["torch was 2.9.0, is 2.13.0"]


def test_the_processor_is_the_model_that_linux_names(monkeypatch):
    text = "processor : 0\nmodel name\t: A Processor @ 2.10GHz\nmodel name\t: A Processor\n"
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: text)
    assert fingerprint()["processor"] == "A Processor @ 2.10GHz"


@pytest.mark.parametrize("named", [False, True], ids=["no file", "no model in it"])
def test_without_a_model_name_python_is_asked(monkeypatch, named):
    def read(path, encoding):
        if not named:
            raise FileNotFoundError(path)
        return "processor : 0\nBogoMIPS : 50.00\n"

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert fingerprint()["processor"] == "arm"


def git(folder, *arguments):
    name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *name, *arguments], check=True, capture_output=True)


def test_the_commit_is_that_of_the_source_code(tmp_path, monkeypatch):
    source = tmp_path / "environment.py"
    source.write_text("1")
    monkeypatch.setattr(module, "__file__", str(source))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit() == ""  # not a repository
    git(tmp_path, "init")
    git(tmp_path, "add", "environment.py")
    git(tmp_path, "commit", "-m", "first")
    clean = commit()
    assert len(clean) == 12
    assert set(clean) <= set("0123456789abcdef")
    source.write_text("2")
    assert commit() == f"{clean}-dirty"


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() == ""


def test_differences_are_named_in_words():
    before, now = {"jax": "1", "cores": "2", "gone": "x"}, {"jax": "2", "cores": "2", "new": "y"}
    assert differences(before, before) == []
    assert differences(before, now) == [
        "gone was x, is unknown",
        "jax was 1, is 2",
        "new was unknown, is y",
    ]
