"""Which symmetries do networks have? What theory expects, and what `find_symmetries` finds."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from ..data.digits import digits
from ..networks.convolutional import ConvolutionalNetwork
from ..networks.normalized import NormalizedNetwork
from ..networks.paper_network import cross_entropy, glorot_uniform
from ..networks.perceptron import Perceptron
from ..networks.transformer import TransformerBlock
from ..problem.problem import Problem
from ..symmetries.find_symmetries import find_symmetries
from ..symmetries.rescale import Rescale
from ..symmetries.scale import Scale
from ..symmetries.symmetry import Symmetry
from ..symmetries.translation import Translation
from .cases import Progress, Verdict, results_of, silent, with_tuples


@dataclass(frozen=True)
class Architecture:
    """A network on scikit-learn's digits, and the symmetries that its layers imply.

    Attributes:
        loss: Its loss, a function of params and data.
        params: Its initial params.
        expected: The symmetries, finest first: what is invariant per unit is not listed as a whole.
        unused: The leaves on which the loss cannot depend.
    """

    loss: Callable[..., Any]
    params: PyTree
    expected: tuple[Symmetry, ...]
    unused: tuple[str, ...] = ()


_PIXELS, _SIDE, _CLASSES = 64, 8, 10


def _perceptron(activation: str, bias: bool, *expected: Symmetry) -> Architecture:
    network = Perceptron((_PIXELS, 12, 14, _CLASSES), activation, bias)
    return Architecture(network, network.initial_params(), expected)


def _normalized(
    normalization: str, *expected: Symmetry, epsilon: float = 0.0, unused: tuple[str, ...] = ()
) -> Architecture:
    network = NormalizedNetwork((_PIXELS, 16, _CLASSES), normalization, epsilon)
    return Architecture(network, network.initial_params(), expected, unused)


def _neighbours(first: str, second: str, *, bias: bool) -> Rescale:
    """A hidden layer's incoming weights, and its bias, against its outgoing weights, per unit."""
    incoming, outgoing = f"{first}/weight", f"{second}/weight"
    axis = {incoming: 1, outgoing: 0}
    if not bias:
        return Rescale(incoming, outgoing, axis)
    return Rescale((f"{first}/bias", incoming), outgoing, {f"{first}/bias": 0} | axis)


# The readout before a softmax, per input unit, and its bias.
_SOFTMAX = Translation("layer2/weight", axis=0)
_SOFTMAX_BIAS = Translation("layer2/bias")
_WITHOUT_BIAS = (
    _SOFTMAX,
    _neighbours("layer0", "layer1", bias=False),
    _neighbours("layer1", "layer2", bias=False),
    Rescale("layer0/weight", "layer2/weight"),
)
# A bias joins the group of its layer; between layers that are not neighbours, so do those between.
_WITH_BIAS = (
    _SOFTMAX,
    _SOFTMAX_BIAS,
    _neighbours("layer0", "layer1", bias=True),
    _neighbours("layer1", "layer2", bias=True),
    Rescale(("layer0/bias", "layer0/weight", "layer1/bias"), "layer2/weight"),
)


def architectures() -> dict[str, Architecture]:
    """The networks by name."""
    convolutional = ConvolutionalNetwork(_SIDE, filters=(4, 6), classes=_CLASSES)
    transformer = TransformerBlock(_SIDE, width=8, head=4, hidden=12, classes=_CLASSES)
    readout = Translation("readout", axis=0)
    return {
        "the paper's network": Architecture(
            cross_entropy,
            glorot_uniform((_PIXELS, 12, 14, _CLASSES)),
            (readout, Scale("hidden", axis=1)),
        ),
        "linear network": _perceptron("linear", False, *_WITHOUT_BIAS),
        "ReLU network": _perceptron("relu", False, *_WITHOUT_BIAS),
        "ReLU network with biases": _perceptron("relu", True, *_WITH_BIAS),
        "leaky ReLU network with biases": _perceptron("leaky relu", True, *_WITH_BIAS),
        "tanh network with biases": _perceptron("tanh", True, _SOFTMAX, _SOFTMAX_BIAS),
        "batch normalization": _normalized(
            "batch", readout, Scale("weight", axis=1), unused=("bias",)
        ),
        "batch normalization with ε = 1e-5": _normalized(
            "batch", readout, epsilon=1e-5, unused=("bias",)
        ),
        "layer normalization": _normalized(
            "layer",
            readout,
            Translation("weight", axis=0),
            Translation("bias"),
            Scale(("bias", "weight")),
        ),
        "weight normalization": _normalized("weight", readout, Scale("weight", axis=1)),
        "convolutional network with batch normalization": Architecture(
            convolutional,
            convolutional.initial_params(),
            (
                readout,
                Scale("first", axis=3),
                Rescale(("gain", "shift"), "second", {"gain": 0, "shift": 0, "second": 2}),
                Rescale("readout", "second", {"readout": 0, "second": 3}),
                Rescale(("gain", "shift"), "readout"),
            ),
        ),
        "transformer block with layer normalization": Architecture(
            transformer,
            transformer.initial_params(),
            (
                # What goes into a normalization is invariant per input unit; what comes out of it
                # sums to zero, so that all that reads it is invariant per output unit.
                *(Translation(name, 0) for name in ("embedding", "position", "output", "down")),
                *(Translation(name, 1) for name in ("query", "key", "value", "up", "readout")),
                readout,
                Rescale("key", "query", {"key": 1, "query": 1}),
                Rescale("output", "value", {"output": 0, "value": 1}),
                Rescale(("bias", "up"), "down", {"bias": 0, "up": 1, "down": 0}),
                # Everything that is added up before the last normalization.
                Scale(("down", "embedding", "output", "position")),
                Scale(("down", "embedding", "position", "value")),
                Scale(("bias", "embedding", "output", "position", "up")),
            ),
        ),
    }


@dataclass(frozen=True)
class Architectures:
    """The settings.

    Attributes:
        images: How many of scikit-learn's digits the losses are means over.
        tolerance: The largest residual allowed.
    """

    images: int = 200
    tolerance: float = 1e-6


@dataclass(frozen=True)
class Row:
    """What was expected of one network, and what was found.

    Attributes:
        architecture: Which network.
        expected: The symmetries that its layers imply, as they are written.
        found: The symmetries found.
        residuals: Their residuals.
        unused: The leaves found to be of no consequence.
        as_expected: Whether they are the same, nothing missing and nothing more.
    """

    architecture: str
    expected: tuple[str, ...]
    found: tuple[str, ...]
    residuals: tuple[float, ...]
    unused: tuple[str, ...]
    as_expected: bool


@dataclass(frozen=True)
class Result(Verdict):
    """What was measured, and whether the claims hold."""

    settings: Architectures
    rows: tuple[Row, ...]

    @property
    def claims(self) -> dict[str, bool]:
        residuals = [residual for row in self.rows for residual in row.residuals]
        return {
            "what is found is what is expected, no more and no less": all(
                row.as_expected for row in self.rows
            ),
            "every symmetry found holds to 1e-13": max(residuals, default=0.0) < 1e-13,
        }


def run(settings: Architectures, folder: Path, progress: Progress = silent) -> Result:
    """The result, computed where it is not yet in the folder.

    Args:
        settings: The settings.
        folder: Where `architectures.json` is kept; interrupted runs go on from there.
        progress: Called with what comes next and how many networks are done and to do.
    """
    cases = {name: partial(_find, settings, name) for name in architectures()}
    found = results_of(folder / "architectures.json", asdict(settings), cases, progress)
    return result_of(settings, found)


def result_of(settings: Architectures, found: dict[str, Any]) -> Result:
    """The result of settings from the results of their cases, by name."""
    return Result(settings, tuple(Row(**with_tuples(row)) for row in found.values()))


def _find(settings: Architectures, name: str) -> dict[str, Any]:
    data, network = digits(), architectures()[name]
    arrays = tuple(jnp.asarray(part[: settings.images]) for part in (data.inputs, data.targets))
    problem = Problem(network.loss, data=arrays)
    found = find_symmetries(problem, network.params, tolerance=settings.tolerance)
    same = set(found) == set(network.expected) and found.unused == network.unused
    return asdict(
        Row(
            architecture=name,
            expected=tuple(map(repr, network.expected)),
            found=tuple(map(repr, found)),
            residuals=tuple(item.residual for item in found.found),
            unused=found.unused,
            as_expected=same,
        )
    )
