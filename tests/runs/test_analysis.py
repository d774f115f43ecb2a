"""The configuration of a run on one's own problem, and what tells problems apart."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import counterflow as cf
from counterflow.runs.analysis import Analysis, digest_of

ANALYSIS = Analysis("some/my_model.py:problem", "0123", 1e-3, 1e-2, 100)
PARAMS = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}


def loss(params, data):
    return jnp.sum(data * params["a"] ** 2) * params["b"]


PROBLEM = cf.Problem(loss, jnp.array([1.0, 0.5]), weight_decay=0.1)


def test_an_analysis_is_read_back():
    assert Analysis.from_json(ANALYSIS.to_json()) == ANALYSIS
    assert ANALYSIS.name.startswith("my_model-problem-")
    assert ANALYSIS.name != replace(ANALYSIS, steps=101).name
    with pytest.raises(ValueError, match=r"has no \['colour'\]"):
        Analysis.from_json('{"model": "x", "colour": "red"}')


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"learning_rate": -1.0}, "`learning_rate` must be positive"),
        ({"steps": 0}, "`steps` must be 1 whole number"),
        ({"orders": (1, 2)}, "must contain 0 .gradient flow., which"),
        ({"orders": (0, 0)}, "one or more different values"),
        ({"orders": (0, 9)}, "beyond 8"),
        ({"records": 0}, "`records` must be"),
        ({"tolerance": 0.0}, "`tolerance` must be positive"),
        ({"rtol": 0.5}, "`rtol` must be from 1e-14"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(changed, expected):
    ANALYSIS.require_valid()
    with pytest.raises(ValueError, match=expected):
        replace(ANALYSIS, **changed).require_valid()


def test_a_digest_tells_problems_apart_and_not_roundings():
    digests = {
        digest_of(PROBLEM, PARAMS),
        digest_of(PROBLEM, PARAMS, "text"),
        digest_of(PROBLEM, PARAMS | {"b": jnp.array(3.5)}),
        digest_of(cf.Problem(loss, PROBLEM.data, weight_decay=0.2), PARAMS),
        digest_of(cf.Problem(loss, jnp.array([1.0, 0.6]), weight_decay=0.1), PARAMS),
    }
    assert len(digests) == 5
    nearly = cf.Problem(loss, PROBLEM.data * (1 + 4 * np.finfo(float).eps), weight_decay=0.1)
    assert digest_of(nearly, PARAMS) == digest_of(PROBLEM, PARAMS)


def test_a_vector_field_has_a_digest_too():
    field = cf.Problem.from_gradient(lambda theta: -theta)
    assert digest_of(field, jnp.ones(2)) != digest_of(field, jnp.zeros(2))
