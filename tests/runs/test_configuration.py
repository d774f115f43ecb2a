"""One configuration: as JSON, on the command line, and in the name of its run."""

from dataclasses import FrozenInstanceError, fields, replace
from itertools import product
from typing import get_args

import pytest
import tyro

from counterflow.runs.configuration import Configuration, Data, Size, default_configuration

# Every setting other than by default.
OTHER = {
    "size": "full",
    "data": "fashion-mnist",
    "samples": 500,
    "hidden_widths": (5, 4),
    "seed": 3,
    "learning_rates": (0.3, 1e-5),
    "weight_decays": (0.1 + 0.2,),  # all of its digits count
    "steps": (300, 400),
    "large_learning_rate": 2.5,
    "large_steps": 7,
    "orders": (0, 1, 5),
    "records": 12,
    "restart": 30,
    "rtol": 1e-9,
    "seeds": (),
    "long_steps": 17,
    "long_samples": 18,
}
DEFAULTS = [default_configuration(*chosen) for chosen in product(get_args(Size), get_args(Data))]


def test_json_keeps_every_setting():
    other = Configuration(**OTHER)
    assert set(OTHER) == {field.name for field in fields(Configuration)}
    assert all(getattr(other, name) != getattr(Configuration(), name) for name in OTHER)
    for configuration in (other, *DEFAULTS):
        assert Configuration.from_json(configuration.to_json()) == configuration


def test_a_setting_that_is_not_in_the_json_has_its_default():
    assert Configuration.from_json('{"seed": 3}') == Configuration(seed=3)


def test_a_setting_of_another_version_is_named():
    with pytest.raises(ValueError, match=r"no \['colour', 'width'\]: .*another version.*'seed'"):
        Configuration.from_json('{"width": 1, "seed": 2, "colour": 3}')


def test_the_command_line_sets_every_setting():
    typed = []
    for name, value in OTHER.items():
        typed += [f"--{name.replace('_', '-')}"]
        typed += map(str, value) if isinstance(value, tuple) else [str(value)]
    assert tyro.cli(Configuration, args=typed) == Configuration(**OTHER)


def test_a_configuration_is_frozen():
    with pytest.raises(FrozenInstanceError):
        Configuration().seed = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_every_setting_is_in_the_name():
    names = {Configuration().name, Configuration(**OTHER).name}
    names |= {replace(Configuration(), **{name: value}).name for name, value in OTHER.items()}
    assert len(names) == len(OTHER) + 2
    assert Configuration(seed=3).name == Configuration(seed=3).name
    assert Configuration().name.startswith("digits-quick-")
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in names)


@pytest.mark.parametrize("configuration", DEFAULTS, ids=lambda chosen: chosen.name[:-9])
def test_every_default_is_valid(configuration):
    configuration.require_valid()


def test_the_smallest_settings_are_valid():
    tiny = {"learning_rates": (1e-3,), "steps": (2,), "restart": 1, "records": 1, "seeds": ()}
    Configuration(**tiny, samples=2, hidden_widths=(1, 1), orders=(1, 0)).require_valid()


COUNT = r"whole numbers? from 1 to 2147483646, got "
POSITIVE = "must be positive, got "
DIFFERENT = "must be one or more different values, got "
BAD = [
    ({"hidden_widths": (0, 3)}, rf"2 {COUNT}\(0, 3\)"),
    ({"steps": (200, 500)}, rf"3 {COUNT}\(200, 500\)"),
    ({"steps": (200, 500, 2**31)}, rf"3 {COUNT}\(200, 500, 2147483648\)"),
    ({"learning_rates": (), "steps": ()}, rf"{DIFFERENT}\(\)"),
    ({"learning_rates": (0.1, 0.1), "steps": (200, 500)}, rf"{DIFFERENT}\(0.1, 0.1\)"),
    ({"learning_rates": (0.1, 0.0, 0.2)}, f"{POSITIVE}0$"),
    ({"learning_rates": (0.1, float("inf"), 0.2)}, f"{POSITIVE}inf"),
    ({"weight_decays": ()}, rf"{DIFFERENT}\(\)"),
    ({"weight_decays": (0.1, 0.1)}, rf"{DIFFERENT}\(0.1, 0.1\)"),
    ({"weight_decays": (-0.5,)}, f"{POSITIVE}-0.5"),
    ({"large_learning_rate": float("nan")}, f"{POSITIVE}nan"),
    ({"large_learning_rate": 0.1}, "must be larger than all of `learning_rates`, got 0.1: "),
    ({"learning_rates": (0.1, 0.2, 0.3)}, "from the largest on"),
    ({"rtol": 0.0}, "must be from 1e-14.*, got 0$"),
    ({"rtol": 0.5}, "to 0.01, got 0.5$"),
    ({"weight_decays": (2.0,)}, "must be below 1, got 2:"),
    ({"orders": ()}, rf"{DIFFERENT}\(\)"),
    ({"orders": (0, 1, 1)}, rf"{DIFFERENT}\(0, 1, 1\)"),
    ({"orders": (0, 2)}, r"must contain 0 .* and 1 .*, got \(0, 2\)"),
    ({"orders": (-1, 0, 1)}, r"beyond 8, got \(-1, 0, 1\)"),
    ({"large_steps": 0}, rf"1 {COUNT}0"),
    ({"records": 0}, rf"1 {COUNT}0"),
    ({"restart": 0}, rf"1 {COUNT}0"),
    ({"restart": 200}, r"before the end of every run, got 200 with steps \(200, 500, 500\)"),
    ({"long_steps": -1}, rf"1 {COUNT}-1"),
    ({"long_samples": 0}, rf"1 {COUNT}0"),
    ({"samples": 1}, "must be at least 2, got 1: the network normalizes"),
    ({"long_samples": 1}, "must be at least 2, got 1"),
    ({"seed": -1}, "must be different numbers that are not negative, got -1 and"),
    ({"seeds": (7,)}, r"must be different numbers that are not negative, got 7 and \(7,\)"),
    ({"seeds": (-2, 3)}, "not negative"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=str)
def test_a_bad_setting_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message) as refused:
        replace(Configuration(), **change).require_valid()
    assert f"`{next(iter(change))}`" in str(refused.value)


@pytest.mark.parametrize("name", ["size", "data"])
def test_an_unknown_choice_is_refused_with_what_there_is(name):
    configuration = Configuration()
    # Not by its constructor, which checks types under test.
    object.__setattr__(configuration, name, "other")
    with pytest.raises(ValueError, match=rf"`{name}` must be one of \('.*'\), got 'other'"):
        configuration.require_valid()
