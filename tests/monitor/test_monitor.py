"""The monitor: its numbers against closed forms, its costs, and that it never ends a training."""

import math
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import counterflow as cf
from counterflow.monitor import monitor as module
from counterflow.monitor.monitor import Monitor
from counterflow.monitor.quantities import DESCRIPTIONS

RATES, DECAY = np.array([0.5, 2.0, 8.0]), 0.1
QUADRATIC = cf.Problem(lambda theta: jnp.sum(jnp.asarray(RATES) * theta**2) / 2, None, DECAY)
START = jnp.array([1.0, -2.0, 0.5])
QUARTIC = cf.Problem(lambda theta: jnp.sum(theta**4) / 4)


def train(monitor, problem, params, learning_rate, steps):
    """Plain gradient descent as users write it, watched."""
    gradient = jax.jit(cf.Problem.gradient)
    for step in range(steps + 1):
        monitor(step, params)
        params = jax.tree.map(
            lambda leaf, slope: leaf - learning_rate * slope, params, gradient(problem, params)
        )
    return params


# --- the numbers ----------------------------------------------------------------------------


def test_a_record_agrees_with_the_closed_forms_of_a_quadratic():
    eta, steps = 0.05, 40
    monitor = Monitor(QUADRATIC, eta, every=steps, budget=math.inf)
    train(monitor, QUADRATIC, START, eta, steps)
    h, theta = RATES + DECAY, np.asarray(START)
    first, last = monitor.records[0], monitor.records[steps]
    norm = np.linalg.norm
    assert first == pytest.approx(
        {
            "loss": np.sum(RATES * theta**2) / 2,
            "learning_rate": eta,
            "params_norm": norm(theta),
            "gradient_norm": norm(h * theta),
            "counter_term_ratio": eta / 2 * norm(h**2 * theta) / norm(h * theta),
            "sharpness": 8.1,
            "learning_rate_times_sharpness": 8.1 * eta,
        },
        rel=1e-12,
    )
    descent = (1 - eta * h) ** steps * theta
    flow = np.exp(-h * eta * steps) * theta
    propagated = eta / 2 * eta * steps * h**2 * flow
    assert last["local_error"] == pytest.approx(eta / 2 * norm(h * (theta - descent)), rel=1e-12)
    assert last["measured_error"] == pytest.approx(norm(flow - descent), rel=0.02)
    assert last["propagated_error"] == pytest.approx(norm(propagated), rel=0.01)
    mismatch = norm(propagated - flow + descent) / norm(flow - descent)
    assert last["mismatch"] == pytest.approx(mismatch, abs=0.02)
    for kind in ("local", "propagated", "measured"):
        relative = last[f"{kind}_error"] / norm(descent)
        assert last[f"relative_{kind}_error"] == pytest.approx(relative, rel=1e-12)
    assert monitor.notes == {}


def test_the_measured_error_of_an_optax_loop_is_that_of_compare():
    eta, steps = 0.01, 50
    problem = cf.Problem(QUARTIC.function, weight_decay=DECAY)
    monitor = Monitor(problem, eta, every=steps, budget=math.inf)
    optimizer = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(eta))
    params, state = START, optimizer.init(START)

    @jax.jit
    def update(params, state):
        updates, state = optimizer.update(jax.grad(QUARTIC.loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    for step in range(2 * steps + 1):
        monitor(step, params)
        params, state = update(params, state)
    comparison = cf.compare(problem, START, eta, steps=steps, orders=(0,), predict=False)
    record = monitor.records[steps]
    assert record["measured_error"] == pytest.approx(comparison.error[0, -1], rel=0.03)
    assert record["mismatch"] < 0.1
    assert monitor.records[2 * steps]["mismatch"] < 0.05


def test_momentum_shows_as_a_mismatch():
    eta, steps = 0.01, 100
    monitor = Monitor(QUARTIC, eta, every=steps, budget=math.inf)
    theta, velocity = START, jnp.zeros(3)
    for step in range(steps + 1):
        monitor(step, theta)
        velocity = 0.5 * velocity - eta * QUARTIC.gradient(theta)
        theta = theta + velocity
    assert monitor.records[steps]["mismatch"] > 0.8
    assert monitor.records[steps]["measured_error"] > 5 * monitor.records[steps]["propagated_error"]


def test_a_scale_invariant_layer_agrees_with_its_closed_forms():
    eta, theta = 0.5, jnp.array([0.6, 0.8]) * 2
    problem = cf.Problem(lambda p: p["a"][0] / jnp.sqrt(p["a"] @ p["a"]) + p["b"] ** 2)
    monitor = Monitor(problem, eta, every=1, symmetries=[cf.Scale("a")], budget=0)
    params = {"a": theta, "b": jnp.array(1.0)}
    monitor(0, params)
    slope = np.asarray(problem.gradient(params)["a"])
    monitor(1, {"a": jnp.array([0.0, 3.0]), "b": jnp.array(1.0)})
    first, second = monitor.records[0], monitor.records[1]
    assert first["a/norm"] == pytest.approx(2)
    assert first["a/effective_learning_rate"] == pytest.approx(eta / 4)
    # The gradient is perpendicular to the layer.
    turned = math.atan(eta * np.linalg.norm(slope) / 2)
    assert first["a/angular_update"] == pytest.approx(turned, rel=1e-12)
    assert "a/angle" not in first
    assert second["a/angle"] == pytest.approx(math.atan2(0.6, 0.8))


def test_symmetries_are_found_at_the_first_record():
    inputs = jnp.asarray(np.random.default_rng(1).normal(size=(10, 2)))

    def loss(params):
        return jnp.mean((jax.nn.relu(inputs @ params["in"]) @ params["out"] - 1) ** 2)

    params = {"in": jnp.array([[1.0, -1.0], [0.5, 2.0]]), "out": jnp.array([[1.0], [2.0]])}
    monitor = Monitor(cf.Problem(loss), 0.1, symmetries="find", budget=0)
    monitor(0, params)
    charges = np.array([1 + 0.25 - 1, 1 + 4 - 4])
    expected = np.sqrt(np.mean(charges**2))
    assert monitor.records[0]["in:out/charge"] == pytest.approx(expected, rel=1e-12)
    assert monitor.notes == {}


def test_what_an_epsilon_makes_nearly_symmetric_is_watched_and_told():
    def nearly(params):
        length = jnp.sqrt(params["a"] @ params["a"] + 1e-5)
        return (params["a"][0] / length + params["b"]) ** 2

    params = {"a": jnp.array([1.2, 1.6]), "b": jnp.array(1.0)}
    monitor = Monitor(cf.Problem(nearly), 0.1, symmetries="find", budget=0)
    monitor(0, params)
    assert monitor.records[0]["a/effective_learning_rate"] == pytest.approx(0.1 / 4)
    (item,) = cf.find_symmetries(cf.Problem(nearly), params).nearly
    expected = f"nearly a symmetry: Scale('a'), residual {item.residual:.0e}"
    assert monitor.notes == {0: expected}


def test_of_symmetries_that_share_a_name_the_first_is_watched():
    def loss(params):
        return jnp.sum(jnp.sin(params - params[:1] - params[:, :1] + params[0, 0]))

    monitor = Monitor(cf.Problem(loss), 0.1, symmetries="find", budget=0)
    monitor(0, jnp.eye(3) + 0.5)
    assert "params/charge" in monitor.records[0]
    assert monitor.notes[0] == "not watched: Translation('', axis=1), another has its name"


# --- what it costs --------------------------------------------------------------------------


def test_the_budget_is_kept_and_used():
    every, budget, eta = 50, 0.5, 0.01
    monitor = Monitor(QUARTIC, eta, every=every, budget=budget)
    train(monitor, QUARTIC, START, eta, 20 * every)
    predicted = [step for step, record in monitor.records.items() if "mismatch" in record]
    assert 3 <= len(predicted) < 20
    assert monitor.gradient_evaluations <= 1.1 * budget * 21 * every
    assert monitor.overhead == monitor.gradient_evaluations / (20 * every)
    # That it waits is told once.
    (step,) = monitor.notes
    assert "mismatch" not in monitor.records[step]
    waits = r"the prediction waits for its budget: it needs about (\d+) gradients, (\d+) are saved"
    told = re.fullmatch(waits, monitor.notes[step])
    assert told is not None
    assert int(told[1]) > int(told[2])


def test_without_a_budget_a_record_takes_three_gradients():
    monitor = Monitor(QUARTIC, 0.01, every=10, budget=0)
    train(monitor, QUARTIC, START, 0.01, 30)
    assert monitor.gradient_evaluations == 3 * 4
    assert "local_error" in monitor.records[30]
    assert not {"sharpness", "mismatch"} & set(monitor.records[30])
    assert monitor.notes == {}  # as it was asked for


def test_everything_is_compiled_once():
    traces = []

    def loss(theta):
        traces.append(None)
        return jnp.sum(theta**4) / 4

    problem = cf.Problem(loss)
    slope = jax.jit(jax.grad(lambda theta: jnp.sum(theta**4) / 4))
    monitor = Monitor(problem, 0.01, every=10, budget=math.inf)
    theta, counts = START, []
    for step in range(61):
        monitor(step, theta, learning_rate=0.01 if step < 30 else 0.02)
        counts.append(len(traces))
        theta = theta - (0.01 if step < 30 else 0.02) * slope(theta)
    assert all("mismatch" in monitor.records[step] for step in range(10, 61, 10))
    assert counts[10] == counts[-1] > 0


def test_steps_in_between_touch_nothing():
    monitor = Monitor(QUARTIC, 0.01, every=10)
    reads = []

    def read():
        reads.append(None)
        return START

    for step in range(21):
        monitor(step, read)
    assert len(reads) == 3
    monitor(21, object())
    assert list(monitor.records) == [0, 10, 20]


# --- how it is called -----------------------------------------------------------------------


def test_a_module_that_can_be_called_is_params_all_the_same():
    layer = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    monitor = Monitor(cf.Problem(lambda linear: jnp.sum(linear(jnp.ones(2)) ** 2)), 0.1, budget=0)
    monitor(0, layer)
    assert monitor.records[0]["loss"] == pytest.approx(float(layer(jnp.ones(2))[0]) ** 2)


def test_params_that_are_changed_in_place_are_kept():
    eta = 0.01
    in_place, plain = (Monitor(QUARTIC, eta, every=20, budget=math.inf) for _ in range(2))
    theta = np.array(START)
    for step in range(41):
        in_place(step, theta)
        theta -= eta * theta**3
    train(plain, QUARTIC, START, eta, 40)
    assert in_place.records[40] == pytest.approx(plain.records[40], rel=1e-6)


def test_a_learning_rate_that_changes_in_between_has_no_errors():
    monitor = Monitor(QUARTIC, 0.02, every=20, budget=math.inf)
    theta = START / 2
    for step in range(81):
        rate = 0.02 if step < 20 else 0.01 if step < 50 else 0.005 if step < 80 else 0.0
        monitor(step, theta, jnp.asarray(rate))
        theta = theta - rate * QUARTIC.gradient(theta)
    # The rate of 20 steps, not the one that follows.
    assert monitor.records[20]["mismatch"] < 0.2
    assert monitor.records[20]["learning_rate"] == 0.01
    assert monitor.records[40]["mismatch"] < 0.2
    assert not {"local_error", "mismatch"} & set(monitor.records[60])
    assert "learning rate changed" in monitor.notes[60]
    assert monitor.records[80]["mismatch"] < 0.2
    assert monitor.records[80]["counter_term_ratio"] == 0


def test_the_log_and_the_dataset_hold_the_same_floats():
    logged = {}
    monitor = Monitor(QUARTIC, 0.01, every=10, log=logged.__setitem__, budget=math.inf)
    train(monitor, QUARTIC, START, 0.01, 20)
    assert logged == monitor.records
    assert all(type(value) is float for record in logged.values() for value in record.values())
    dataset = monitor.to_xarray()
    assert list(dataset.step.values) == [0, 10, 20]
    assert set(dataset.data_vars) == set(monitor.records[20]) <= set(DESCRIPTIONS)
    assert np.isnan(dataset.mismatch[0])
    assert float(dataset.loss[2]) == logged[20]["loss"]
    assert "3 records, the last at step 20" in repr(monitor)


def test_a_vector_field_has_neither_loss_nor_sharpness():
    field = cf.Problem.from_gradient(lambda z: jnp.array([z[0] + z[1], z[1] - z[0]]))
    monitor = Monitor(field, 0.01, every=5, budget=math.inf, predict=False)
    train(monitor, field, jnp.array([1.0, 0.0]), 0.01, 5)
    assert not {"loss", "sharpness", "mismatch"} & set(monitor.records[5])
    assert "local_error" in monitor.records[5]
    assert monitor.notes == {}


# --- it never ends a training ---------------------------------------------------------------


def test_a_loop_that_diverges_is_recorded_to_the_end():
    monitor = Monitor(QUARTIC, 1.0, every=5, budget=math.inf)
    theta = np.array([3.0])
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(21):
            monitor(step, theta)
            theta = theta - theta**3
    assert list(monitor.records) == [0, 5, 10, 15, 20]
    assert math.isnan(monitor.records[20]["loss"])
    assert "diverged" in monitor.notes[20]


def test_what_fails_is_left_out_and_told(monkeypatch):
    def fail(*arguments):
        raise FloatingPointError("no such luck")

    monkeypatch.setattr(module, "sharpness", fail)
    monitor = Monitor(QUARTIC, 0.01, every=10, budget=math.inf)
    train(monitor, QUARTIC, START, 0.01, 10)
    assert "mismatch" in monitor.records[10]
    assert monitor.notes[10] == "the sharpness failed: no such luck"


def test_a_prediction_that_takes_too_many_steps_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "_guess", lambda stiffness: -80.0)
    monitor = Monitor(QUADRATIC, 0.05, every=40, budget=math.inf)
    train(monitor, QUADRATIC, START, 0.05, 40)
    assert "too many steps" in monitor.notes[40]
    assert "propagated_error" not in monitor.records[40]


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learning_rate": 0.0}, "`learning_rate` must be a positive"),
        ({"learning_rate": -0.1}, "`learning_rate` must be a positive"),
        ({"every": 0}, "`every` must be from 1"),
        ({"budget": -1.0}, "`budget` must be a number of at least 0"),
        ({"budget": math.nan}, "`budget` must be a number of at least 0"),
        ({"symmetries": "hidden"}, "`symmetries` must be 'find' or a list"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Monitor(QUARTIC, **({"learning_rate": 0.1} | arguments))


def test_a_step_must_be_later_than_the_last():
    monitor = Monitor(QUARTIC, 0.1, every=10, budget=0)
    monitor(7, START)
    for step in (7, 3):
        with pytest.raises(ValueError, match=rf"must increase .*, got {step} after 7"):
            monitor(step, START)
    with pytest.raises(TypeError, match=r"`step` must be an integer, .* got 8\.5"):
        monitor(8.5, START)


@pytest.mark.parametrize("other", [{"a": jnp.ones(3)}, jnp.ones(4), jnp.ones(3, jnp.float32)])
def test_params_of_another_shape_are_refused(other):
    monitor = Monitor(QUARTIC, 0.1, every=1, budget=0)
    monitor(0, START)
    with pytest.raises(ValueError, match="must be like those of the first record"):
        monitor(1, other)


def test_params_that_are_no_floats_are_refused_at_the_first_record():
    with pytest.raises(TypeError, match="pytree of float arrays"):
        Monitor(QUARTIC, 0.1)(0, jnp.ones(3, int))


def test_what_is_no_symmetry_is_refused_at_the_first_record():
    with pytest.raises(ValueError, match="must leave the loss unchanged"):
        Monitor(QUARTIC, 0.1, symmetries=[cf.Scale("")])(0, START)


def test_two_symmetries_of_one_name_are_refused():
    problem = cf.Problem(lambda p: jnp.sum(p / jnp.sqrt(jnp.sum(p**2, axis=0, keepdims=True))))
    both = [cf.Scale("", axis=1), cf.Scale("")]
    with pytest.raises(ValueError, match="must not share the name 'params'"):
        Monitor(problem, 0.1, symmetries=both)(0, jnp.eye(2) + 0.5)
