"""A training problem: a loss or a vector field, its data and its weight decay."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, PyTree

from .chunks import chunks_of
from .function import describe, require_function, require_scalar
from .model import ModelLoss
from .noun import noun, set_fields, static
from .numbers import require_size, require_weight_decay
from .samples import as_arrays, require_pair
from .sharding import automatic, mesh_of, whole
from .tree import add_scaled


@noun
class Problem:
    """A loss `f(θ)` with weight decay λ, and its gradient `g(θ) = ∇f(θ) + λθ`.

    A problem is a pytree: `data` and `weight_decay` are leaves that pass through `jit`, `vmap` and
    `scan` as arguments, the function is static. Nothing is compiled or evaluated here. Where the
    data are large, compile functions of the problem (`jax.jit(Problem.gradient)(problem, params)`),
    not its methods, of whose programs the data would be constants. Data may be spread over many
    devices (`shard`).

    Args:
        loss: A scalar function, `loss(params)` or, with `data`, `loss(params, data)`. The params
            are any pytree of float arrays.
        data: Any pytree of arrays, handed to `loss` as its second argument. Large arrays belong
            here and not in a closure, where `jit` would turn them into constants.
        weight_decay: The λ ≥ 0 of `g = ∇f + λθ`.

    Example:
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4, weight_decay=0.1)
        >>> problem.loss(jnp.array([2.0])), problem.gradient(jnp.array([2.0]))
        (Array(4., dtype=float64), Array([8.2], dtype=float64))
    """

    function: Callable[..., Any] = static()
    data: PyTree
    weight_decay: Any
    mesh: Mesh | None = static()

    def __init__(self, loss: Callable[..., Any], data: PyTree = None, weight_decay: Any = 0.0):
        is_field = isinstance(loss, _VectorField)
        require_function(
            loss.function if is_field else loss,
            "gradient" if is_field else "loss",
            "params" if data is None else "params, data",
            "pass `data=…` if it takes data" if data is None else "it must take the data second",
        )
        weight_decay = require_weight_decay(weight_decay)
        data = automatic(as_arrays(data))
        set_fields(self, function=loss, data=data, weight_decay=weight_decay, mesh=mesh_of(data))

    @classmethod
    def from_gradient(
        cls, gradient: Callable[..., Any], data: PyTree = None, weight_decay: Any = 0.0
    ) -> "Problem":
        """The problem of a vector field `g(params)` or `g(params, data)`, a gradient or not.

        Explicit Euler on the differential equation `dθ/dt = −g(θ)` is then what gradient descent
        is for a loss. There is no `loss`; `weight_decay` adds `λθ` to the field.

        Example:
            >>> import jax.numpy as jnp
            >>> import counterflow as cf
            >>> rotation = cf.Problem.from_gradient(lambda z: jnp.array([z[1], -z[0]]))
            >>> rotation.gradient(jnp.array([1.0, 2.0]))
            Array([ 2., -1.], dtype=float64)
        """
        return cls(_VectorField(gradient), data, weight_decay)

    @classmethod
    def from_model(
        cls,
        apply: Callable[..., Any],
        loss: Callable[..., Any],
        data: tuple[PyTree, PyTree],
        weight_decay: Any = 0.0,
    ) -> "Problem":
        """The problem of a model `apply(params, inputs)` and a loss of its outputs.

        Flax Linen modules come this way, `from_model(module.apply, …)` with the params of
        `module.init`. A problem built again from the same functions is not compiled again.

        Args:
            apply: The outputs for all inputs at once, `apply(params, inputs)`.
            loss: `loss(outputs, targets)`, such as optax's: one number, or numbers along the
                leading axes of the outputs (one per sample; one per sample and output), of which
                the mean over everything is taken.
            data: The pair `(inputs, targets)`, arrays or pytrees of arrays with as many samples.
            weight_decay: The λ ≥ 0 of `g = ∇f + λθ`.

        Example:
            >>> import jax.numpy as jnp
            >>> import counterflow as cf
            >>> line = lambda params, x: params["slope"] * x + params["offset"]
            >>> square = lambda outputs, targets: (outputs - targets) ** 2
            >>> data = jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0])
            >>> problem = cf.Problem.from_model(line, square, data)
            >>> problem.loss({"slope": jnp.array(1.0), "offset": jnp.array(0.5)})
            Array(0.25, dtype=float64)
        """
        return cls(ModelLoss(apply, loss), require_pair(data), weight_decay)

    @classmethod
    def from_chunks(
        cls, loss: Callable[..., Any], data: PyTree, chunk_size: int, weight_decay: Any = 0.0
    ) -> "Problem":
        """The problem of a full batch that is too large for memory in one piece.

        Loss and derivatives are the means over all samples, computed one chunk after another: to
        rounding, the same numbers as in one piece. That takes a loss per sample. What mixes the
        samples of a chunk, such as batch normalization, would be another problem and is refused.

        Args:
            loss: `loss(params, chunk)`, the mean over the samples of a chunk.
            data: Any pytree of arrays that number the samples along their first axis; a chunk is a
                slice of each. If one is a `numpy.memmap`, all stay where they are, and each chunk
                is read when it is needed.
            chunk_size: The number of samples of a chunk; the last one may be smaller.
            weight_decay: The λ ≥ 0 of `g = ∇f + λθ`.

        Example:
            >>> import jax.numpy as jnp
            >>> import counterflow as cf
            >>> def loss(theta, chunk):
            ...     return jnp.mean((chunk - theta) ** 2)
            >>> problem = cf.Problem.from_chunks(loss, jnp.arange(10.0), chunk_size=4)
            >>> problem.gradient(jnp.array(4.0))
            Array(-1., dtype=float64)
        """
        require_function(loss, "loss", "params, chunk", "it must take a chunk of the data second")
        size = require_size(chunk_size, "chunk_size", "the number of samples of a chunk")
        function, data = chunks_of(loss, as_arrays(data), size)
        return cls(function, data, weight_decay)

    @property
    def has_loss(self) -> bool:
        """Whether the problem was given by a loss, not by a vector field."""
        return not isinstance(self.function, _VectorField)

    def evaluate(self, params: PyTree) -> Any:
        """What the function that was given returns at `params`, unchecked."""
        if self.data is None:
            return self.function(params)
        return self.function(whole(params, self.mesh), self.data)

    def loss(self, params: PyTree) -> Float[Array, ""]:
        """The loss `f(θ)`, without the weight decay."""
        if not self.has_loss:
            raise ValueError(
                "a problem given by `Problem.from_gradient` has no loss, only a gradient; "
                "use `Problem(loss, …)` where the vector field is the gradient of a loss"
            )
        return require_scalar(self.evaluate(params))

    def gradient(self, params: PyTree) -> PyTree:
        """The gradient with weight decay, `g(θ) = ∇f(θ) + λθ`, shaped like `params`."""
        return add_scaled(self.loss_gradient(params), self.weight_decay, params)

    def loss_gradient(self, params: PyTree) -> PyTree:
        """The gradient without weight decay, `∇f(θ)`, or the vector field that was given."""
        if self.has_loss:
            return jax.grad(self.loss)(params)
        gradient = self.evaluate(params)
        _require_alike(gradient, params)
        return whole(gradient, self.mesh)

    def hessian_vector_product(self, params: PyTree, vector: PyTree) -> PyTree:
        """The derivative of `gradient` along a vector, `(H(θ) + λI) v`, shaped like `params`.

        `H` is the Hessian of the loss; for a problem given by a vector field, its Jacobian.

        Example:
            >>> import jax.numpy as jnp
            >>> import counterflow as cf
            >>> problem = cf.Problem(lambda theta: jnp.sum(theta**4) / 4, weight_decay=0.5)
            >>> problem.hessian_vector_product(jnp.array([2.0]), jnp.array([1.0]))
            Array([12.5], dtype=float64)
        """
        return jax.jvp(self.gradient, (params,), (vector,))[1]


@dataclass(frozen=True)
class _VectorField:
    """Marks a function as the gradient itself, not a loss to be differentiated."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def _require_alike(gradient: PyTree, params: PyTree) -> None:
    if jax.tree.structure(gradient) != jax.tree.structure(params):
        raise ValueError(
            "the gradient must have the structure of params, "
            f"{jax.tree.structure(params)}, got {jax.tree.structure(gradient)}"
        )
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(gradient), strict=True):
        same_dtype = jnp.result_type(ours) == jnp.result_type(theirs)
        if jnp.shape(ours) != jnp.shape(theirs) or not same_dtype:
            raise ValueError(
                "the gradient must have the shapes and dtypes of params, "
                f"{describe(ours)}, got {describe(theirs)}"
            )
