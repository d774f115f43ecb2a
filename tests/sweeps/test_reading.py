"""Sweeps from TOML files: which runs they have, and how a file that is wrong is refused."""

from pathlib import Path

import pytest

from counterflow.runs.configuration import Configuration, default_configuration
from counterflow.sweeps.plan import SweepError
from counterflow.sweeps.reading import MOST_BYTES, read_sweep

EXAMPLE = Path(__file__).parents[2] / "examples" / "paper_grid.toml"


@pytest.fixture
def read(tmp_path):
    """The sweep of a text."""

    def read(text):
        path = tmp_path / "my sweep.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_sweep(path)

    return read


# --- what there is to run -------------------------------------------------------------------------


def test_a_grid_is_every_combination(read):
    plan = read("[grid]\nseed = [1, 2]\nrecords = [3, 4, 5]\n[settings]\nsamples = 40")
    assert [run.name for run in plan.runs] == [
        f"seed = {seed}, records = {records}" for seed in (1, 2) for records in (3, 4, 5)
    ]
    configurations = [Configuration(**run.settings) for run in plan.runs]
    assert configurations[-1] == Configuration(seed=2, records=5, samples=40)
    assert plan.name == "my-sweep"
    assert plan.model is None


def test_a_list_goes_together_and_with_every_point_of_the_grid(read):
    plan = read(
        "[[list]]\nlearning_rates = 1\nsteps = 200\n[[list]]\nlearning_rates = [0.1, 0.01]\n"
        "steps = [300, 400]\n[grid]\nweight_decays = [1e-2, 1e-3]"
    )
    assert [run.name for run in plan.runs] == [
        "η = 1, steps = 200, λ = 0.01",
        "η = 1, steps = 200, λ = 0.001",
        "η = 0.1 0.01, steps = 300 400, λ = 0.01",
        "η = 0.1 0.01, steps = 300 400, λ = 0.001",
    ]
    # Numbers as the command line would have them: another type would be another run.
    settings = plan.runs[0].settings
    assert repr(settings["learning_rates"]) == "(1.0,)"
    assert settings["steps"] == (200,)


def test_the_other_settings_are_those_of_the_size_and_the_data(read):
    plan = read('[grid]\nsize = ["quick", "standard"]\ndata = ["digits", "mnist"]')
    assert [Configuration(**run.settings) for run in plan.runs] == [
        default_configuration(size, data)
        for size in ("quick", "standard")
        for data in ("digits", "mnist")
    ]


def test_ones_own_problem_is_found_beside_the_file(read, tmp_path):
    plan = read('model = "m.py:problem"\n[settings]\nsteps = 5\n[grid]\nlearning_rate = [1, 0.5]')
    assert plan.model == f"{tmp_path / 'm.py'}:problem"
    assert plan.runs[0].settings == {
        "learning_rate": 1.0,
        "steps": 5,
        "orders": (0, 1, 2),
        "records": 40,
        "tolerance": 1e-2,
        "rtol": None,
        "method": None,
    }


def test_what_makes_no_sense_is_left_for_its_run_to_say(read):
    plan = read("[grid]\nlearning_rates = [0.1, -1, nan, inf]\n[settings]\nsteps = 200")
    refusals = 0
    for run in plan.runs:
        try:
            Configuration(**run.settings).require_valid()
        except ValueError as error:
            refusals += "learning_rate" in str(error)
    assert refusals == 3


def test_the_shipped_example_is_the_papers_six_pairs():
    plan = read_sweep(EXAMPLE)
    configurations = [Configuration(**run.settings) for run in plan.runs]
    pairs = [(one.learning_rates, one.weight_decays) for one in configurations]
    assert pairs == [((rate,), (decay,)) for rate in (0.1, 0.01, 0.001) for decay in (0.01, 0.001)]
    quick = default_configuration()
    for one in configurations:
        one.require_valid()
        assert one.steps == (quick.steps[quick.learning_rates.index(one.learning_rates[0])],)


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a sweep must have a [grid] or a [[list]]"),
        ("grid = 3", "`grid` must be a table"),
        ("[grid]", "`grid` must be a table of fields with their values, got {}"),
        ("[grid]\nseed = []", "[grid] `seed` must be a list of the values to take, got []"),
        ("[grid]\nseed = 3", "[grid] `seed` must be a list of the values to take, got 3"),
        ("[grid]\nseed = [3, 3]", "[grid] `seed` must be different values, got [3, 3]"),
        ("[grid]\nlearning_rates = [nan, nan]", "[grid] `learning_rates` must be different"),
        ("[grid]\nseed = [1.5]", "[grid]: `seed` must be a whole number, got 1.5"),
        ("[grid]\nseed = [true]", "[grid]: `seed` must be a whole number, got True"),
        ("[grid]\nseed = ['1']", "[grid]: `seed` must be a whole number, got '1'"),
        ("[grid]\nrtol = ['small']", "[grid]: `rtol` must be a number, got 'small'"),
        ("[grid]\nseed = [2024-01-01]", "[grid]: `seed` must be a whole number, got datetime"),
        ("[grid]\nhidden_widths = [[3]]", "`hidden_widths` must be a list of 2 whole numbers"),
        ("[grid]\nhidden_widths = [3, 4]", "`hidden_widths` must be a list of 2 whole numbers"),
        ("[grid]\norders = [[0, 1.5]]", "`orders` must be a list of whole numbers, got [0, 1.5]"),
        ("[grid]\ndata = ['imagenet']", "`data` must be one of digits, mnist, fashion-mnist"),
        ("[grid]\nsize = ['huge']", "`size` must be one of quick, standard, full, got 'huge'"),
        ("[grid]\nsedd = [1]", "[grid]: there is no field `sedd`: did you mean seed?"),
        ("[grid]\nlearning_rate = [1]", "did you mean learning_rates?"),
        ("[grid]\n'a.b' = [1]", "there is no field `a.b`: known are size, data,"),
        ("seed = 3\n[grid]\nsteps = [1]", "a field of all runs belongs into [settings]"),
        ("girds = 3", "there is no `girds` in a sweep: did you mean grid?"),
        ("list = 3\n[grid]\nseed = [1]", "`list` must be tables, each begun by [[list]]"),
        ("list = []\n[grid]\nseed = [1]", "`list` must be tables, each begun by [[list]]"),
        ("[[list]]\n[grid]\nseed = [1]", "[[list]] number 1 must have a field, and is empty"),
        ("[[list]]\nseed = 'x'", "[[list]] number 1: `seed` must be a whole number, got 'x'"),
        ("[[list]]\nseed = 1\n[[list]]\nseed = 1", "is the same as 'seed = 1'"),
        ("[[list]]\nseed = 7\n[[list]]\nrecords = 40", "every run must be another one"),
        ("[[list]]\nseed = 1\n[grid]\nseed = [2]", "`seed` must be given once, and is in [grid]"),
        ("[settings]\nseed = 1\n[grid]\nseed = [2]", "and is in [settings] and in [grid]"),
        ("settings = 1\n[grid]\nseed = [2]", "[settings] must be a table of fields, got 1"),
        ("[settings]\nsead = 1\n[grid]\nrecords = [2]", "[settings]: there is no field `sead`"),
        ("[grid]\nseed = [1]\nseed = [2]", "this is not TOML: Cannot overwrite a value"),
        ("[grid\nseed = [1]", "this is not TOML:"),
        (b"\xff\xfe", "the file must be text in UTF-8"),
        ("a = " + "[" * 20_000, "the file"),
        (b"#" * (MOST_BYTES + 1), "the file must have at most 1,000,000 bytes"),
        (f"[grid]\nseed = {list(range(5000))}\nrecords = [1, 2, 3]", "at most 10,000 runs, got 15"),
        ("name = 3\n[grid]\nseed = [1]", "`name` must be at most 64 letters"),
        ("name = '../up'\n[grid]\nseed = [1]", "`name` must be at most 64 letters"),
        ("name = ''\n[grid]\nseed = [1]", "`name` must be at most 64 letters"),
        (f"name = '{'a' * 65}'\n[grid]\nseed = [1]", "`name` must be at most 64 letters"),
        ("experiments = []\n[grid]\nseed = [1]", "`experiments` must be a list of different"),
        ("experiments = 'figure2'\n[grid]\nseed = [1]", "`experiments` must be a list of"),
        ("experiments = ['figur2']\n[grid]\nseed = [1]", "`experiments` must be of figure1,"),
        ("experiments = [['figure2']]\n[grid]\nseed = [1]", "`experiments` must be of figure1,"),
        ("experiments = ['seeds', 'seeds']\n[grid]\nseed = [1]", "`experiments` must be a list"),
        ("model = 3\n[grid]\nsteps = [1]", "`model` must be FILE.py:NAME"),
        ("model = 'm.py'\n[grid]\nsteps = [1]", "`model` must be FILE.py:NAME"),
        ("model = 'm.py:p'\n[grid]\nsteps = [1]", "every run must have learning_rate, got"),
        ("model = 'm.py:p'\n[grid]\nseed = [1]", "there is no field `seed`: known are learning_"),
        ("model = 'm.py:p'\n[grid]\nweight_decay = [1]", "`weight_decay` belongs to the problem"),
        ("model = 'm.py:p'\n[grid]\ndigest = ['a']", "there is no field `digest`"),
        ("model = 'm.py:p'\nexperiments = ['figure2']\n[grid]\nsteps = [1]", "leave one of them"),
        ("model = 'm.py:p'\n[grid]\nmethod = ['lie']", "`method` must be one of taylor, orbit"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_field(text, message, read):
    with pytest.raises(SweepError) as refused:
        read(text)
    said = str(refused.value)
    assert "my sweep.toml: " in said
    assert message in said


def test_a_file_that_is_not_there_is_named(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(SweepError, match="there is no file"):
            read_sweep(path)


@pytest.mark.parametrize("field", ["large_learning_rate", "long_steps"])
def test_numbers_beyond_all_bounds_are_refused(read, field):
    with pytest.raises(SweepError, match=rf"`{field}` must be a .*number, got 10{{59}}…"):
        read(f"[grid]\n{field} = [{10**400}]")
