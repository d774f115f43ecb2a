"""A full batch in chunks: the same numbers as in one piece, and memory for one chunk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
import zoo
from counterflow.networks.normalized import normalize
from users import import_as_users_do

GENERATOR = np.random.default_rng(5)
PARAMS = {
    "first": jnp.asarray(GENERATOR.normal(size=(6, 10)) / 3),
    "second": jnp.asarray(GENERATOR.normal(size=(10, 3)) / 3),
}


def samples(count):
    inputs = GENERATOR.normal(size=(count, 6))
    return {"inputs": inputs, "classes": GENERATOR.integers(0, 3, size=count)}


def entropy(logits, classes):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), classes[:, None], axis=1))


def loss(params, chunk):
    logits = jax.nn.silu(chunk["inputs"] @ params["first"]) @ params["second"]
    return entropy(logits, chunk["classes"])


def normalized_loss(params, chunk):
    hidden = normalize(jnp.asarray(chunk["inputs"]) @ params["first"], (0,), 1e-8)
    return entropy(jnp.tanh(hidden) @ params["second"], chunk["classes"])


DATA = samples(50)
ONE_PIECE = cf.Problem(loss, DATA, weight_decay=0.1)


def on_disk(data, folder):
    for name, array in data.items():
        np.save(folder / f"{name}.npy", array)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in data}


@pytest.mark.parametrize("size", [1, 16, 25, 50, 80])
def test_loss_and_derivatives_are_those_of_one_piece(size):
    chunks = cf.Problem.from_chunks(loss, DATA, size, weight_decay=0.1)
    np.testing.assert_allclose(chunks.loss(PARAMS), ONE_PIECE.loss(PARAMS), rtol=1e-14)
    gradient = jax.jit(chunks.gradient)(PARAMS)
    assert zoo.distance(gradient, ONE_PIECE.gradient(PARAMS)) < 1e-13
    product = jax.jit(chunks.hessian_vector_product)(PARAMS, gradient)
    assert zoo.distance(product, ONE_PIECE.hessian_vector_product(PARAMS, gradient)) < 1e-13


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_counter_terms_are_those_of_one_piece(place, tmp_path):
    data = DATA if place == "memory" else on_disk(DATA, tmp_path)
    chunks = cf.Problem.from_chunks(loss, data, 16, weight_decay=0.1)
    expected = cf.counter_terms(ONE_PIECE, PARAMS, 3)
    for term, other in zip(cf.counter_terms(chunks, PARAMS, 3), expected, strict=True):
        assert zoo.distance(term, other) < 1e-13  # and warnings are errors


def test_a_comparison_is_that_of_one_piece():
    chunks = cf.Problem.from_chunks(loss, DATA, 16, weight_decay=0.1)
    options = {"learning_rate": 0.1, "steps": 5, "records": 1, "predict": False}
    ours, expected = (cf.compare(p, PARAMS, **options) for p in (chunks, ONE_PIECE))
    np.testing.assert_allclose(ours.error, expected.error, rtol=1e-6, atol=1e-13)


def temporary_bytes(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("derivative", ["gradient", "hessian_vector_product", "counter_term"])
def test_memory_does_not_grow_with_the_number_of_chunks(derivative):
    def computed(problem, params):
        if derivative == "gradient":
            return problem.gradient(params)
        if derivative == "hessian_vector_product":
            return problem.hessian_vector_product(params, params)
        return cf.counter_terms(problem, params, 2)

    size = 128
    few, many, whole = (
        temporary_bytes(computed, cf.Problem.from_chunks(loss, samples(count), chunk), PARAMS)
        for count, chunk in ((4 * size + 5, size), (64 * size + 5, size), (64 * size, 64 * size))
    )
    # Beyond the start of each chunk, an integer, nothing is kept.
    assert many <= few + 64 * 16
    assert whole > 5 * many


def test_data_on_disk_stay_there(tmp_path):
    data = on_disk(DATA, tmp_path)
    chunks = cf.Problem.from_chunks(loss, data, 16, weight_decay=0.1)
    assert jax.tree.leaves(chunks.data) == []
    gradient = jax.jit(chunks.gradient)
    assert zoo.distance(gradient(PARAMS), ONE_PIECE.gradient(PARAMS)) < 1e-13
    assert hash(chunks.function) == hash(cf.Problem.from_chunks(loss, data, 16).function)
    assert chunks.function == cf.Problem.from_chunks(loss, data, 16).function
    assert chunks.function != cf.Problem.from_chunks(loss, DATA, 16).function


def test_data_on_disk_are_read_chunk_by_chunk_in_the_dtype_of_jax(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(10, dtype=">i2"))
    read = np.load(tmp_path / "x.npy", mmap_mode="r")
    problem = cf.Problem.from_chunks(lambda theta, x: jnp.mean((x - theta) ** 2), read, 4)
    np.testing.assert_allclose(problem.gradient(jnp.array(4.0)), -1.0, rtol=1e-14)


def test_a_problem_built_twice_is_compiled_once():
    traced = []

    def counted(params, chunk):
        traced.append(1)
        return loss(params, chunk)

    compiled = jax.jit(cf.Problem.loss)
    compiled(cf.Problem.from_chunks(counted, DATA, 16), PARAMS)
    first = len(traced)
    compiled(cf.Problem.from_chunks(counted, DATA, 16), PARAMS)
    assert len(traced) == first


# --- what is refused ------------------------------------------------------------------------

(cf_of_users,) = import_as_users_do("counterflow")


def zero_readout(params, chunk):
    """Of batch normalization only the gradient tells where the last weights vanish."""
    return normalized_loss(params | {"second": 0 * params["second"] + params["zero"]}, chunk)


@pytest.mark.parametrize(
    ("function", "params"),
    [
        (normalized_loss, PARAMS),
        (lambda params, chunk: len(chunk["inputs"]) * loss(params, chunk), PARAMS),
        (zero_readout, PARAMS | {"zero": jnp.zeros((10, 3))}),
    ],
    ids=["batch normalization", "sum", "batch normalization before zeros"],
)
@pytest.mark.parametrize("size", [1, 20])
def test_a_loss_that_is_no_mean_over_samples_is_refused(function, params, size):
    problem = cf.Problem.from_chunks(function, DATA, size)
    with pytest.raises(ValueError, match=r"mean over the samples of a chunk.*`Problem\(loss, data"):
        cf.counter_term(problem, params, 0)


def test_the_report_on_a_problem_tells_it():
    report = cf.check_problem(cf.Problem.from_chunks(normalized_loss, DATA, 20), PARAMS)
    assert not report.ok
    assert "mean over the samples of a chunk" in report["samples"].message


build = cf_of_users.Problem.from_chunks


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: build("loss", DATA, 4), TypeError, r"a function loss\(params, chunk\), got str"),
        (lambda: build(lambda p: 0.0, DATA, 4), TypeError, r"must accept loss\(params, chunk\)"),
        (lambda: build(loss, None, 4), ValueError, "`data` must hold at least one array, got none"),
        (
            lambda: build(loss, {"a": np.ones(3), "b": np.ones(4)}, 4),
            ValueError,
            r"as many samples in every array, got 3 in \['a'\], 4 in \['b'\]",
        ),
        (lambda: build(loss, DATA, 0), ValueError, "`chunk_size` must be at least 1, got 0"),
        (lambda: build(loss, DATA, 2.5), TypeError, "`chunk_size` must be an integer, got 2.5"),
        (
            lambda: build(lambda p, chunk: chunk["inputs"] @ p["first"], DATA, 4).loss(PARAMS),
            ValueError,
            "`loss` must return one float.*take the mean or the sum",
        ),
    ],
)
def test_bad_input_is_told(call, error, text):
    with pytest.raises(error, match=text):
        call()
