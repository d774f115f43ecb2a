"""What is named as a model, at random: an error in words, at once."""

import os

import pytest
from hypothesis import given, strategies as st

from counterflow.cli.models import load_model
from counterflow.cli.working import CommandError

TEXT = st.text(max_size=30)
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(lambda text: text.encode(errors="ignore")),
    st.sampled_from(
        [
            b"\0",
            b"problem = 1\0",
            b"\xff\xfe" * 9,
            b"# coding: latin-1\nproblem = '\xe9'",
            b"# coding: nothing\n",
            b"(" * 300,
            b"-" * 100_000 + b"1",
            b"x = " + b"(" * 5000 + b")" * 5000,
            b"problem = " + b"9" * 5000,
            b"raise SystemExit(0)",
            b"import sys; sys.exit('away')",
            b"raise BaseException",
            b"problem = lambda: 1 / 0",
            b"def __getattr__(name): raise RuntimeError(name)",
            b"problem = type",
            b"import nothing_of_this_name",
        ]
    ),
)


def refused(named):
    """Asserts that no model has this name, and that someone who typed it is told why."""
    with pytest.raises(CommandError) as error:
        load_model(named)
    assert str(error.value)


@given(named=TEXT | st.tuples(TEXT, TEXT).map(":".join) | TEXT.map("{}.py:problem".format))
def test_names_at_random_are_no_models(named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(named)


@given(content=CONTENTS, attribute=st.sampled_from(["problem", "é", " ", "__doc__", "x.y", "\0"]))
def test_files_at_random_are_no_models(content, attribute, tmp_path):
    path = tmp_path / "model.py"
    path.write_bytes(content)
    refused(f"{path}:{attribute}")


def test_what_is_no_plain_python_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "nowhere.py").symlink_to("nothing")
    (tmp_path / "model.txt").write_text("problem = 1")
    (tmp_path / "model.so").write_bytes(b"\x7fELF")
    (tmp_path / "model.pyc").write_bytes(b"\0" * 20)
    with (tmp_path / "sparse.py").open("wb") as file:
        file.truncate(2**40)
    for path in tmp_path.iterdir():
        refused(f"{path}:problem")
    for named in ("/dev/zero", "/dev/stdin", "x" * 5000, "a/" * 5000, "/", "..", "~", "\0"):
        refused(f"{named}:problem")
        refused(f"{named}.py:problem")


def test_a_file_in_another_encoding_is_read_as_python_reads_it(tmp_path):
    path = tmp_path / "latin.py"
    path.write_bytes(
        b"# coding: latin-1\nimport counterflow as cf\nname = '\xe9'\n"
        b"problem = cf.Problem(lambda params: (params ** 2).sum()), __import__('jax').numpy.ones(2)"
    )
    assert "name = 'é'" in load_model(f"{path}:problem").source
