"""Every option that `--help` shows has an effect on what is stored, or on what is printed."""

import gzip
import hashlib
import os
import re
import socket
import struct
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from command_line import TINY, assert_same_series, reproduce
from counterflow.cli import main, processes
from counterflow.data import mnist as mnist_module
from counterflow.data.digits import digits
from counterflow.data.mnist import File, Source
from counterflow.networks.paper_network import cross_entropy, glorot_uniform
from counterflow.runs.run import open_run

PROVED = set()
# What needs several processes, or Ray, is shown where these are started, by the test named.
ELSEWHERE = {
    "reproduce --processes": "cluster/test_reproduce.py::"
    "test_two_processes_find_what_one_finds_where_the_samples_cannot_be_shared",
    "run --processes": "cluster/test_processes.py::"
    "test_one_process_writes_and_notes_how_many_there_were",
    "run --patience": "cluster/test_processes.py::"
    "test_one_that_dies_or_hangs_ends_the_others_and_the_run_goes_on",
    "sweep --ray": "cluster/test_sweep.py::test_an_address_without_a_cluster_is_named",
    "sweep --cpus": "cluster/test_sweep.py::test_more_processors_than_there_are_is_refused",
    "sweep --retries": "cluster/test_sweep.py::"
    "test_without_retries_a_killed_worker_is_a_failure_that_is_listed",
    "sweep --folder": "cli/test_sweep.py::test_the_same_command_again_finds_everything",
    "sweep --quiet": "cli/test_sweep.py::test_a_quiet_sweep_prints_only_how_it_ended",
    "sweep --data-dir": "cli/test_sweep.py::test_the_data_of_a_sweep_are_those_in_its_data_dir",
}


def effect_of(*options):
    """Notes that a test shows the effect of options, each with its command."""
    PROVED.update(options)
    return lambda test: test


def shown_help(*command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_every_option_in_help_is_tested_here(capsys):
    commands = re.findall(r"• (\w+)", shown_help(capsys=capsys))
    assert commands == ["reproduce", "run", "sweep", "init", "report", "export", "version"]
    option = re.compile(r"^[^\w\n-]*(?:-\w, )?(--[a-z][a-z-]*)", re.MULTILINE)
    shown = {
        f"{command} {name}"
        for command in commands
        for name in option.findall(shown_help(command, capsys=capsys))
        if name != "--help"
    }
    assert shown == PROVED | ELSEWHERE.keys()
    for option, place in ELSEWHERE.items():
        file, _, test = place.partition("::")
        text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
        assert f"\ndef {test}(" in text, option
        assert f'"{option.split()[1]}"' in text, option


# --- the runs that options are compared with ---------------------------------------------------

MIDDLE = "η = 0.01, λ = 0.01, seed 7"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where everything is run, so that each configuration is computed once."""
    return tmp_path_factory.mktemp("options") / "runs"


@pytest.fixture(scope="module")
def run(folder):
    """Runs an experiment with options after, or instead of, those of all tests here."""

    def run(experiment, *options, before=TINY):
        return reproduce(folder, experiment, *before, *options, "--quiet")

    return run


@pytest.fixture(scope="module")
def figure2(run):
    return run("figure2")


@pytest.fixture(scope="module")
def figure3(run):
    return run("figure3")


@pytest.fixture(scope="module")
def equilibrium(run):
    return run("equilibrium")


def initial_loss(data, samples=40, hidden_widths=(4, 3), seed=7):
    """The loss that a training starts from, without the command line."""
    params = glorot_uniform((data.inputs.shape[1], *hidden_widths, 10), seed)
    return float(cross_entropy(params, (data.inputs[:samples], data.targets[:samples])))


def assert_decays(known, learning_rate, weight_decay, steps):
    """Asserts that θ_⊥ shrinks by 1 − ηλ in every step, as nothing but η, λ and k decides."""
    size = known("descent", "perpendicular")
    exact = (1 - learning_rate * weight_decay) ** known.steps
    np.testing.assert_allclose(size / size[0], exact, rtol=1e-12)
    assert known.steps[-1] == steps


# --- what is computed ---------------------------------------------------------------------------


@effect_of("reproduce --samples", "reproduce --hidden-widths")
def test_samples_and_hidden_widths_decide_what_is_trained(run, figure3):
    # Both in one run, for the sake of one compilation: the loss tells them apart.
    options = "--samples 30 --hidden-widths 5 2 --learning-rates 0.1 --steps 6"
    changed = run("figure3", *options.split())
    expected = {
        (samples, widths): initial_loss(digits(), samples, widths)
        for samples in (40, 30)
        for widths in ((4, 3), (5, 3), (4, 2), (5, 2))
    }
    assert len({round(loss, 6) for loss in expected.values()}) == len(expected)
    for made, settings in ((figure3, (40, (4, 3))), (changed, (30, (5, 2)))):
        descent = made.trainings["η = 0.1, λ = 0.001, seed 7"]
        assert descent("descent", "loss")[0] == pytest.approx(expected[settings], rel=1e-12)
        readout = (descent("descent", "sum_of_weights") / descent("descent", "perpendicular")) ** 2
        np.testing.assert_allclose(readout, 10 * settings[1][1])


@effect_of("reproduce --seed")
def test_seed_decides_where_training_starts(run, figure2):
    changed = run("figure2", "--seed", "5")
    (known,) = changed.trainings.values()
    assert known.training.seed == 5
    for made, seed in ((known, 5), (figure2.trainings[MIDDLE], 7)):
        expected = initial_loss(digits(), seed=seed)
        assert made("descent", "loss")[0] == pytest.approx(expected, rel=1e-12)


@effect_of("reproduce --learning-rates", "reproduce --weight-decays", "reproduce --steps")
def test_learning_rates_weight_decays_and_steps_are_those_of_descent(run):
    rates, decays, steps = (0.2, 0.05), (0.3, 0.02), (5, 7)
    options = {"--learning-rates": rates, "--weight-decays": decays, "--steps": steps}
    words = [str(word) for option, values in options.items() for word in (option, *values)]
    made = run("table1", *words)
    assert list(made.trainings) == [f"η = {η}, λ = {λ}, seed 7" for η in rates for λ in decays]
    for (name, known), expected in zip(
        made.trainings.items(),
        [(η, λ, k) for η, k in zip(rates, steps, strict=True) for λ in decays],
        strict=True,
    ):
        assert_decays(known, *expected)
        # Of the weight decays the first is that at which errors are predicted.
        assert np.isfinite(known.flow(0, "local_prediction")).any() == (expected[1] == 0.3), name


@effect_of("reproduce --large-learning-rate", "reproduce --large-steps")
def test_the_large_learning_rate_and_its_steps_are_those_of_one_more_training(run, figure3):
    changed = run("figure3", "--large-learning-rate", "2.5", "--large-steps", "3")
    assert_decays(figure3.trainings["η = 1, λ = 0.001, seed 7"], 1.0, 1e-3, 4)
    assert_decays(changed.trainings["η = 2.5, λ = 0.001, seed 7"], 2.5, 1e-3, 3)
    assert "η = 1, λ = 0.001, seed 7" not in changed.trainings


@effect_of("reproduce --orders")
def test_orders_are_those_of_the_flows(run, figure2):
    changed = run("figure2", "--orders", "0", "1", "2")
    assert figure2.processes == ("descent", "flow 0", "flow 1")
    assert changed.processes == ("descent", "flow 0", "flow 1", "flow 2")
    errors = [changed.trainings[MIDDLE].flow(order, "error")[-1] for order in (0, 1, 2)]
    assert errors[0] > 30 * errors[1] > 300 * errors[2] > 0


@effect_of("reproduce --records")
def test_records_are_how_often_a_run_is_compared(run, figure2):
    changed = run("figure2", "--records", "8")
    assert changed.trainings[MIDDLE].steps.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    few = figure2.trainings[MIDDLE]
    assert few.steps.tolist() == [0, 3, 5, 8]
    for process, quantity in (("descent", "loss"), ("flow 0", "error")):
        many = changed.trainings[MIDDLE](process, quantity)
        np.testing.assert_allclose(few(process, quantity), many[few.steps], rtol=1e-6)


@effect_of("reproduce --restart")
def test_restart_is_where_the_prediction_starts_from_the_measured_error(run, figure2):
    changed = run("figure2", "--restart", "5")
    for made, restart in ((figure2, 3), (changed, 5)):
        known = made.trainings[MIDDLE]
        predicted = known.flow(0, "restarted_local_prediction")
        np.testing.assert_array_equal(np.isnan(predicted), known.steps < restart)
        at = known.steps.tolist().index(restart)
        assert predicted[at] == known.flow(0, "error")[at]
        assert predicted[-1] != known.flow(0, "error")[-1]


@effect_of("reproduce --rtol")
def test_rtol_is_how_exactly_flows_are_solved(run, figure2):
    changed = run("figure2", "--rtol", "1e-3")
    exact, rough = (made.trainings[MIDDLE] for made in (figure2, changed))
    assert (rough("descent", "loss") == exact("descent", "loss")).all()
    for order in (0, 1):
        costs = [made.statistics[f"flow {order}"] for made in (exact, rough)]
        assert costs[1]["gradient_evaluations"] < costs[0]["gradient_evaluations"]
        errors = [made.flow(order, "error")[-1] for made in (exact, rough)]
        assert errors[0] != errors[1]


@effect_of("reproduce --seeds")
def test_seeds_are_those_of_further_trainings(run):
    made = run("seeds", "--seeds", "9", "3")
    assert [known.training.seed for known in made.trainings.values()] == [7, 9, 3]
    for known in made.trainings.values():
        expected = initial_loss(digits(), seed=known.training.seed)
        assert known("descent", "loss")[0] == pytest.approx(expected, rel=1e-12)


@effect_of("reproduce --long-steps", "reproduce --long-samples")
def test_long_steps_and_long_samples_are_those_of_the_long_run(run, equilibrium):
    longer = run("equilibrium", "--long-steps", "44")
    fewer = run("equilibrium", "--long-samples", "20")
    found = [made.results["equilibrium"] for made in (equilibrium, longer, fewer)]
    assert [one["steps"][-1] for one in found] == [30, 44, 30]
    assert [one["samples"] for one in found] == [40, 40, 20]
    # Whatever the length of the run, it starts with the same steps on the same images.
    assert found[0]["radius"][0] == pytest.approx(found[1]["radius"][0], rel=1e-3)
    assert found[0]["radius"][-1] != found[2]["radius"][-1]


@effect_of("reproduce --size")
def test_size_changes_the_settings_that_are_not_given(run, capsys):
    at = TINY.index("--records")
    made = run("figure2", "--size", "standard", before=[*TINY[:at], *TINY[at + 2 :]])
    assert (made.configuration.size, made.configuration.records) == ("standard", 100)
    assert made.configuration.steps == (6, 8, 8)
    assert len(made.trainings[MIDDLE].steps) == 9
    for size, steps, records in (
        ("quick", "200 500 500", 40),
        ("standard", "500 2000 2000", 100),
        ("full", "500 5000 50000", 100),
    ):
        capsys.readouterr()
        text = " ".join(shown_help("reproduce", "--size", size, capsys=capsys).split())
        assert f"(default: {steps})" in text
        assert f"(default: {size})" in text
        assert f"saved. (default: {records})" in text


# --- the data -----------------------------------------------------------------------------------


def encoded(array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


class SmallImages:
    """A data set in the format of MNIST's files, 50 images of 5 × 4 pixels, in a folder."""

    def __init__(self, name, seed, folder, mirror):
        generator = np.random.default_rng(seed)
        self.images = generator.integers(0, 256, (50, 5, 4), dtype=np.uint8)
        self.labels = generator.permutation(np.arange(50, dtype=np.uint8) % 10)
        self.folder = folder
        folder.mkdir()
        self.inputs = self.images.reshape(50, 20) / 127.5 - 1
        self.targets = np.eye(10)[self.labels]
        files = [
            self._write("train-images-idx3-ubyte.gz", self.images),
            self._write("train-labels-idx1-ubyte.gz", self.labels),
        ]
        self.source = Source(name, (mirror,), *files)

    def _write(self, name, array):
        contents = encoded(array)
        packed = gzip.compress(contents, mtime=0)
        (self.folder / name).write_bytes(packed)
        digests = [hashlib.sha256(data).hexdigest() for data in (packed, contents)]
        return File(name, array.shape, digests[0], f"sha256:{digests[1]}")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """MNIST and Fashion-MNIST, each with 50 small images in a folder, and a mirror that is down."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        mirror = f"http://127.0.0.1:{unused.getsockname()[1]}/"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(mnist_module, "cache_folder", lambda name: tmp_path / "cache" / name)
    found = {}
    for seed, (name, constant) in enumerate(
        {"mnist": "MNIST", "fashion-mnist": "FASHION_MNIST"}.items()
    ):
        found[name] = SmallImages(name, seed, tmp_path / name, mirror)
        monkeypatch.setattr(mnist_module, constant, found[name].source)
    return found


def first_angle(data, learning_rate=0.1, weight_decay=0.01):
    """The angle that the first step turns the hidden layer by, without the command line."""
    batch = data.inputs[:40], data.targets[:40]
    params = glorot_uniform((data.inputs.shape[1], 4, 3, 10))
    before, gradient = params["hidden"], jax.grad(cross_entropy)(params, batch)["hidden"]
    after = before - learning_rate * (gradient + weight_decay * before)
    cosine = np.sum(before * after) / np.linalg.norm(before) / np.linalg.norm(after)
    return float(np.arccos(cosine))


@effect_of("reproduce --data", "reproduce --data-dir")
def test_data_and_data_dir_decide_which_images_are_trained_on(run, small, equilibrium):
    made = {"digits": equilibrium}
    for name, images in small.items():
        made[name] = run("equilibrium", "--data", name, "--data-dir", str(images.folder))
    expected = {
        name: first_angle(images) for name, images in (small | {"digits": digits()}).items()
    }
    assert len({round(angle, 6) for angle in expected.values()}) == 3
    for name, one in made.items():
        assert one.configuration.data == name
        assert one.results["equilibrium"]["angle"][0] == pytest.approx(expected[name], rel=1e-6)


def test_data_that_cannot_be_downloaded_are_asked_for_by_name(tmp_path, small, capsys):
    command = ["reproduce", "figure5", *TINY, "--data", "mnist", "--folder", str(tmp_path / "runs")]
    assert main(command) == 1
    errors = capsys.readouterr().err
    for word in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "--data-dir"):
        assert word in errors
    assert small["mnist"].source.mirrors[0] in errors
    # What was said helps: the same command with the folder goes on in the same run.
    made = reproduce(tmp_path / "runs", *command[1:-2], "--data-dir", str(small["mnist"].folder))
    assert set(made.results) == {"symmetries", "figure5"}


# --- where, and what is seen ---------------------------------------------------------------------


@effect_of("reproduce --folder")
def test_folder_is_where_the_run_is(figure2, tmp_path):
    made = reproduce(tmp_path / "deep" / "er", "figure2", *TINY, "--quiet")
    assert made.folder.parent == tmp_path / "deep" / "er"
    assert made.folder.name == figure2.folder.name
    assert_same_series(made, figure2)


@effect_of("reproduce --quiet")
def test_quiet_prints_only_verdicts_and_where_the_report_is(tmp_path, capsys):
    for quiet in ([], ["--quiet"]):
        made = reproduce(tmp_path / f"quiet {len(quiet)}", "figure2", *TINY, *quiet)
        lines = capsys.readouterr().out.splitlines()
        progress = [line for line in lines if re.match(r"\[\d", line)]
        table = [line for line in lines if line[:1] in tuple("┏┃┡│└")]
        assert len(table) >= 7
        assert any("figure2" in line for line in table)
        assert any("holds" in line for line in table)
        assert lines[-2:] == [
            f"report: {made.folder / 'report.html'}",
            f"figures: {made.folder / 'figures'}",
        ]
        compiled = [line for line in lines if re.match(r"compiled \d+ programs in \d+ s", line)]
        assert len(compiled) == (not quiet)
        checked = [line for line in lines if line.startswith("the hidden layer is scale-inv")]
        assert len(checked) == (not quiet)
        slow = [line for line in lines if "gradients/s" in line]  # where a record takes long
        known = (progress, compiled, checked, slow, table)
        assert len(lines) == sum(map(len, known)) + 3
        if quiet:
            assert progress == slow == []
        else:
            assert progress[0] == "[1/2] symmetries"
            assert re.fullmatch(r"\[1/2\] symmetries: done in \d+ s", progress[1])
            assert progress[2] == f"[2/2] {MIDDLE}"
            assert re.fullmatch(rf"\[2/2\] {MIDDLE}: done in \d+ s", progress[3])


@effect_of("reproduce --patience")
def test_patience_is_how_long_jax_waits_for_an_answer(figure2, monkeypatch):
    """One of two processes, without the other: what it asks of JAX, which does the waiting."""
    asked = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **named: asked.update(named))
    monkeypatch.setattr(processes, "_end_with_the_parent", lambda pipe: None)
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    monkeypatch.setenv(processes.ADDRESS, "127.0.0.1:1")
    monkeypatch.setenv(processes.NUMBER, "0")
    for patience in ("7", "8"):
        printed = [os.open(os.devnull, os.O_WRONLY) for _ in range(2)]
        monkeypatch.setenv(processes.DESCRIPTORS, " ".join(map(str, (0, *printed))))
        options = ["--quiet", "--processes", "2", "--patience", patience]
        again = reproduce(figure2.folder.parent, "figure2", *TINY, *options)
        sys.stdout.close()
        sys.stderr.close()
        assert again.folder == figure2.folder
        assert asked["heartbeat_timeout_seconds"] == int(patience)


@effect_of("export --folder")
def test_export_goes_where_its_folder_says(figure2, tmp_path, capsys):
    assert main(["export", str(figure2.folder), "--folder", str(tmp_path / "new" / "er")]) == 0
    paths = [tmp_path / "new" / "er" / name for name in ("series.csv", "series.nc")]
    assert capsys.readouterr().out.splitlines() == [str(path) for path in paths]
    assert all(path.is_file() for path in paths)
    assert not (figure2.folder / "series.csv").exists()


# --- one's own problem ---------------------------------------------------------------------------

OWN = """
import jax.numpy as jnp

import counterflow as cf

problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4, weight_decay=0.1), jnp.array([1.0, 0.5])
"""
FEW = {"--learning-rate": "0.1", "--steps": "6", "--records": "3", "--orders": "0 1"}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Runs an analysis with options other than those of all tests here."""
    place = tmp_path_factory.mktemp("own")
    (place / "own.py").write_text(OWN, encoding="utf-8")

    def run(folder="runs", quiet=True, **changed):
        options = FEW | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
        words = [word for name, value in options.items() for word in (name, *value.split())]
        command = ["run", f"{place / 'own.py'}:problem", *words, "--folder", str(place / folder)]
        assert main([*command, *(["--quiet"] if quiet else [])]) == 0
        made = max((place / folder).iterdir(), key=lambda path: path.stat().st_mtime_ns)
        return open_run(made)

    return run


@pytest.fixture(scope="module")
def usual(own):
    return own()


def only(run):
    (known,) = run.trainings.values()
    return known


@effect_of("run --learning-rate", "run --steps", "run --records")
def test_the_settings_of_a_run_are_those_of_descent(own, usual):
    assert only(usual).steps.tolist() == [0, 2, 4, 6]
    changed = only(own(learning_rate="0.2", steps="9", records="9"))
    assert changed.steps.tolist() == list(range(10))
    theta = np.array([1.0, 0.5])
    for loss in changed("descent", "loss"):
        assert loss == pytest.approx(np.sum(theta**4) / 4, rel=1e-12)
        theta = theta - 0.2 * (theta**3 + 0.1 * theta)


@effect_of("run --orders", "run --method")
def test_the_orders_and_the_method_of_a_run_are_those_of_its_flows(own, usual):
    assert usual.processes == ("descent", "flow 0", "flow 1")
    changed = own(orders="0 2 1", method="orbit")
    assert changed.processes == ("descent", "flow 0", "flow 1", "flow 2")
    # At order one, `orbit` takes one gradient more, `taylor` a product with the Hessian.
    exact, orbit = (only(run).flow(1, "error")[-1] for run in (usual, changed))
    assert exact != pytest.approx(orbit, rel=1e-2)


@effect_of("run --tolerance", "run --rtol")
def test_tolerances_are_those_of_bounds_and_of_flows(own, usual):
    changed = own(tolerance="0.03", rtol="1e-3")
    bounds = [run.results["propagated bound"]["learning_rate"] for run in (usual, changed)]
    assert bounds[1] > 1.3 * bounds[0]
    costs = [only(run).statistics["flow 0"]["gradient_evaluations"] for run in (usual, changed)]
    assert costs[1] < costs[0]


@effect_of("run --folder", "run --quiet")
def test_the_folder_of_a_run_and_what_is_printed(own, usual, capsys):
    capsys.readouterr()
    made = own("elsewhere", quiet=False)
    assert made.folder.parent.name == "elsewhere"
    assert made.folder.name == usual.folder.name
    assert_same_series(made, usual)
    assert "[1/" in capsys.readouterr().out
    own("quiet")
    assert "[1/" not in capsys.readouterr().out
