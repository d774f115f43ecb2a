"""A result that takes long, on a real store: stopped, damaged or at once, it ends the same."""

from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np
import pytest

from counterflow.experiments.long_work import LongWork
from counterflow.runs.opening import writing
from counterflow.runs.training import Stopped

COUNT = 5
START = {"weights": jnp.array([1.0, 3.0])}


def halve(computed):
    """A part whose value depends on all parts before it; notes which were computed."""

    def part(index, state):
        computed.append(index)
        after = {"weights": state["weights"] / 2 + index}
        return {"sum": float(jnp.sum(after["weights"]))}, after

    return part


@contextmanager
def work_in(folder, told=None, stopping=lambda: False, said=None):
    with writing(folder, "a configuration", "a command", lambda words: None) as store:
        told, said = [] if told is None else told, [] if said is None else said
        work = LongWork(
            "long", store, lambda *far: told.append(far), stopping, lambda words: said.append(words)
        )
        yield work, store


@pytest.fixture
def whole(tmp_path):
    with work_in(tmp_path / "whole") as (work, _):
        return work.parts(COUNT, START, halve([]))


def test_stopped_after_every_part_it_computes_none_twice_and_ends_the_same(tmp_path, whole):
    computed, told = [], []
    for _ in range(COUNT):
        try:
            with work_in(tmp_path / "run", told, lambda: True) as (work, store):
                found = work.parts(COUNT, START, halve(computed))
                store.add_result("long", found["sum"].tolist(), work.earlier)
        except Stopped:
            continue
    assert computed == list(range(COUNT))
    assert told == [(index + 1, COUNT, "") for index in range(COUNT)]
    np.testing.assert_array_equal(found["sum"], whole["sum"])
    assert work.earlier == pytest.approx(float(np.sum(found["seconds"][:-1])))
    # With the result, the state on the way to it is gone.
    assert list((tmp_path / "run" / "states").iterdir()) == []


def test_where_a_state_is_damaged_the_one_before_is_taken(tmp_path, whole):
    def until_three():
        return len(computed) == 3

    computed, said = [], []
    with pytest.raises(Stopped), work_in(tmp_path, stopping=until_three) as (work, _):
        work.parts(COUNT, START, halve(computed))
    (last,) = (tmp_path / "states").glob("long-2.*")
    last.write_bytes(last.read_bytes()[:-1])
    with work_in(tmp_path, said=said) as (work, _):
        found = work.parts(COUNT, START, halve(computed))
    assert computed == [0, 1, 2, 2, 3, 4]
    assert "going on from the state before it, with 2 parts done" in said[0]
    np.testing.assert_array_equal(found["sum"], whole["sum"])


def test_work_without_parts_says_how_far_it_is_and_can_be_stopped(tmp_path):
    told = []
    with work_in(tmp_path, told) as (work, _):
        work.tell("halfway")
    assert told == [(0, 0, "halfway")]
    with pytest.raises(Stopped), work_in(tmp_path, stopping=lambda: True) as (work, _):
        work.tell("halfway")
