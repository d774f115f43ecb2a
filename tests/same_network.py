"""One network in plain JAX, with its data; written in anything else it must give the same.

Linear, swish, linear, batch normalization over the full batch, linear, softmax; no biases. The ε of
the normalization is small but not 0, which some libraries refuse.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import counterflow as cf
from counterflow.data.digits import digits
from counterflow.experiments.analyse import analyse, prepared
from counterflow.experiments.carry_out import Watcher, findings
from counterflow.experiments.registry import OWN
from counterflow.networks.normalized import normalize
from counterflow.networks.paper_network import LAYERS, glorot_uniform
from counterflow.runs.analysis import Analysis, digest_of

EPSILON = 1e-8
WIDTHS = (64, 12, 8, 10)
SAMPLES = 200
WEIGHT_DECAY = 0.01


def data():
    """Inputs and the numbers of the classes."""
    dataset = digits()
    return dataset.inputs[:SAMPLES], np.argmax(dataset.targets[:SAMPLES], axis=1)


def weights():
    """The initial weights `input`, `hidden` and `readout`, each of shape (inputs, outputs)."""
    return glorot_uniform(WIDTHS)


def logits(params, inputs):
    hidden = jax.nn.silu(inputs @ params["input"]) @ params["hidden"]
    return normalize(hidden, (0,), EPSILON) @ params["readout"]


def cross_entropy(params, data):
    inputs, classes = data
    chosen = jax.nn.log_softmax(logits(params, inputs))[jnp.arange(len(classes)), classes]
    return -jnp.mean(chosen)


def problem():
    return cf.Problem(cross_entropy, data(), WEIGHT_DECAY)


def curves_and_verdict(problem, params, method):
    options = {"learning_rate": 0.05, "steps": 20, "orders": (0, 1), "records": 4}
    comparison = cf.compare(problem, params, **options, method=method, predict=False)
    convergence = cf.EquationOfMotion(problem, 0.05, 1, method).convergence(params, terms=2)
    return comparison, convergence.verdict


@functools.cache
def reference(method):
    return curves_and_verdict(problem(), weights(), method)


def assert_same(other, params, leaves, method="taylor"):
    """Asserts that a problem gives the gradients, error curves and verdict of `problem()`.

    Args:
        other: The problem.
        params: Its initial params, made of `weights()`.
        leaves: What is `input`, `hidden` and `readout` in its params, with the shapes of
            `weights()`: a function that returns the three.
        method: How velocities are computed.
    """
    start = weights()
    assert len(jax.tree.leaves(params)) == len(start)
    for name, theirs in zip(LAYERS, leaves(params), strict=True):
        np.testing.assert_array_equal(start[name], theirs)
    np.testing.assert_allclose(other.loss(params), problem().loss(start), rtol=1e-14)
    expected = problem().gradient(start)
    for name, theirs in zip(LAYERS, leaves(other.gradient(params)), strict=True):
        ours = expected[name]
        assert np.linalg.norm(theirs - ours) <= 1e-12 * np.linalg.norm(ours)

    expected, verdict = reference(method)
    curves, their_verdict = curves_and_verdict(other, params, method)
    assert np.all(np.max(expected.error, axis=1) > 1e-6)  # curves that are seen, not rounding
    np.testing.assert_allclose(curves.error, expected.error, rtol=1e-6, atol=1e-13)
    assert their_verdict == verdict


def claims(problem, params, folder):
    """What a small run by `counterflow run` finds: whether claims hold, and the verdict."""
    settings = {"orders": (0, 1), "records": 2, "method": "orbit"}
    digest = digest_of(problem, params)
    asked = Analysis("same.py:problem", digest, WEIGHT_DECAY, 0.05, 4, **settings)
    analysis, checks = prepared(asked, problem, params)
    run = analyse(analysis, problem, params, checks, folder, "a command", Watcher(), lambda: False)
    found = {one.name: one for one in findings(run, OWN)}
    # Not what derivatives there are, which differs, and in any order, as names do.
    held = {name: sorted(claim.holds for claim in one.claims) for name, one in found.items()}
    del held["problem"]
    return held, run.results["convergence"]["verdict"]
