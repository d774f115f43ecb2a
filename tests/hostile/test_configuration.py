"""Configurations as JSON, at random: the same comes back, or an error says what was required."""

import json
import string

import pytest
from hypothesis import given, strategies as st

from counterflow.runs.analysis import Analysis
from counterflow.runs.configuration import Configuration
from counterflow.runs.fields import conforms
from counterflow.runs.training import Training

COUNTS = st.integers(1, 2**31)
NUMBERS = st.floats(allow_nan=False)
TEXT = st.text(max_size=20)
# By their settings: the type checker of the tests takes random numbers of its own.
KNOWN = st.fixed_dictionaries(
    {},
    optional={
        "samples": st.none() | COUNTS,
        "hidden_widths": st.tuples(COUNTS, COUNTS),
        "seed": st.integers(0, 2**62),
        "learning_rates": st.lists(NUMBERS, max_size=4).map(tuple),
        "steps": st.lists(COUNTS, max_size=4).map(tuple),
        "rtol": st.none() | NUMBERS,
    },
).map(lambda settings: (Configuration, settings)) | st.fixed_dictionaries(
    {
        "model": TEXT,
        "digest": TEXT,
        "weight_decay": NUMBERS,
        "learning_rate": NUMBERS,
        "steps": COUNTS,
        "orders": st.lists(st.integers(0, 9), max_size=4).map(tuple),
        "method": st.sampled_from(["taylor", "orbit", None]),
    }
).map(lambda settings: (Analysis, settings))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | st.sampled_from([10**400, -1, "quick", "mnist", "taylor", float("nan"), float("inf")]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted(Configuration.__dataclass_fields__ | Analysis.__dataclass_fields__)
KINDS = (Configuration, Analysis)


def refused(kind, text):
    """Whether a text is refused, in words that are to be printed."""
    try:
        found = kind.from_json(text)
    except ValueError as error:
        assert 0 < len(str(error)) < 2000  # noqa: PT017
        return True
    assert json.loads(found.to_json()) is not None
    return False


@given(known=KNOWN)
def test_what_was_written_comes_back(known):
    kind, settings = known
    expected = kind(**settings)
    assert kind.from_json(expected.to_json()) == expected


@given(text=st.text(max_size=60) | st.text(string.printable, max_size=60))
def test_text_that_is_no_configuration_is_refused(text):
    for kind in KINDS:
        assert refused(kind, text) or text.strip() == "{}"


@given(value=VALUES)
def test_any_other_json_is_refused(value):
    for kind in KINDS:
        assert refused(kind, json.dumps(value)) or value == {}


@given(known=KNOWN, name=st.sampled_from(NAMES), value=VALUES)
def test_a_value_of_another_type_is_refused_by_its_name(known, name, value):
    kind, settings = known
    try:
        found = kind.from_json(json.dumps(settings | {name: value}))
    except ValueError as error:
        assert name in str(error)  # noqa: PT017
    else:
        read = json.loads(found.to_json())[name]
        assert read == value or value != value or isinstance(value, list)


@given(settings=st.dictionaries(st.sampled_from(sorted(Training.__dataclass_fields__)), VALUES))
def test_settings_of_a_training_are_taken_or_refused(settings):
    try:
        Training.from_settings(settings)
    except ValueError as error:
        assert str(error)  # noqa: PT017


@pytest.mark.parametrize("opening", ["[", '{"seed":'])
def test_nesting_without_end_is_refused(opening):
    for kind in KINDS:
        assert refused(kind, opening * 100_000)
        assert refused(kind, '{"seed": ' + "[" * 100_000 + "]" * 100_000 + "}")


def test_numbers_without_end_are_refused():
    assert refused(Configuration, '{"seed": ' + "9" * 5000 + "}")
    assert refused(Configuration, '{"seed": ' + "9" * 4000 + "}")
    assert refused(Configuration, '{"rtol": 1' + "0" * 400 + "}")


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (True, int, False),
        (1, bool, False),
        (1, float, True),
        (1.0, int, False),
        ([], tuple[int, ...], True),
        ([1], tuple[int, int], False),
        ([1, "2"], tuple[int, ...], False),
        ({"a": 1}, dict[str, int], True),
        ({1: 1}, dict[str, int], False),
        (None, int | None, True),
        (b"bytes", str, False),
    ],
)
def test_a_type_is_told_from_its_neighbours(value, hint, expected):
    assert conforms(value, hint) == expected
