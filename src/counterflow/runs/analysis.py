"""The configuration of a run on one's own problem."""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import PurePath
from typing import Literal

import jax
import numpy as np
from jaxtyping import PyTree

from ..problem.problem import Problem
from ..problem.tree import named_leaves
from .configuration import (
    from_json,
    require_counts,
    require_orders,
    require_positive,
    require_rtol,
)

# Of the name of a model, so many characters are in the name of its run.
_LONGEST = 50


@dataclass(frozen=True)
class Analysis:
    """What is asked about one's own problem: everything the numbers of the run depend on.

    Attributes:
        model: Where the problem comes from, as `my_model.py:problem`.
        digest: What the problem and its initial params are, in a few letters; see `digest_of`.
        weight_decay: The weight decay λ of the problem.
        learning_rate: The learning rate η.
        steps: The steps of gradient descent.
        orders: The orders γ of the flows: 0 is gradient flow, 1 the paper's equation of motion.
        records: At how many of the steps it is compared and saved.
        tolerance: The error, relative to the norm of the initial params, up to which a flow is
            said to follow descent: for the learning-rate bounds.
        rtol: The relative tolerance of the flows; by default far below the error of each.
        method: How flows compute their velocity, `taylor` or `orbit`; by default the first counter
            term exactly, further ones from gradients alone.
    """

    model: str
    digest: str
    weight_decay: float
    learning_rate: float
    steps: int
    orders: tuple[int, ...] = (0, 1, 2)
    records: int = 40
    tolerance: float = 1e-2
    rtol: float | None = None
    method: Literal["taylor", "orbit"] | None = None

    def require_valid(self) -> None:
        """Raises unless every setting makes sense, naming the one that does not."""
        require_positive("learning_rate", self.learning_rate)
        require_counts("steps", (self.steps,), 1)
        require_orders(self.orders, {0})
        require_counts("records", (self.records,), 1)
        require_positive("tolerance", self.tolerance)
        require_rtol(self.rtol)

    @property
    def name(self) -> str:
        """A name that no other analysis has, for the folder of its run."""
        path, _, attribute = self.model.rpartition(":")
        settings = sha256(self.to_json().encode()).hexdigest()
        name = f"{PurePath(path).stem}-{attribute}"
        # It must not lead to another folder, nor do anything in a terminal.
        plain = "".join(c if c.isprintable() and c not in "/\\" else "_" for c in name)
        return f"{plain[:_LONGEST]}-{settings[:8]}"

    def to_json(self) -> str:
        """The analysis as JSON, which `from_json` reads."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> "Analysis":
        """The analysis that `to_json` wrote."""
        return from_json(Analysis, text)


def digest_of(problem: Problem, params: PyTree, source: str = "") -> str:
    """A few letters that are others where the problem, its params or its source are others.

    Of the data only what the loss and the gradient at the params make of them, to six digits, and
    of each leaf's part of the gradient five decimals, so that another machine finds the same.

    Args:
        problem: The problem.
        params: Its initial params.
        source: The text of the file that it comes from.
    """
    said = [source, repr(float(problem.weight_decay))]
    for path, leaf in named_leaves(params).items():
        said += [path, str(np.shape(leaf)), np.asarray(leaf).tobytes().hex()]
    gradient = jax.jit(Problem.gradient)(problem, params)
    norms = [float(np.linalg.norm(np.ravel(leaf))) for leaf in jax.tree.leaves(gradient)]
    loss = float(jax.jit(Problem.loss)(problem, params)) if problem.has_loss else 0.0
    total = float(np.linalg.norm(norms))
    said += [f"{value:.5e}" for value in (loss, total)]
    # Of what should be zero there is only rounding.
    said += [f"{value / total:.5f}" for value in norms if total > 0]
    return sha256("\n".join(said).encode()).hexdigest()[:12]
