"""Data spread over many devices, while params stay whole on each of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree


def shard(data: PyTree, mesh: Any) -> PyTree:
    """Data spread over the devices of a mesh, for a `Problem` that is larger than one of them.

    A problem with such data is used as any other: JAX cuts up what is computed from them, and the
    params stay whole on every device. What is taken over all samples, such as the statistics of a
    batch normalization, is still taken over all of them. Data that JAX's own functions have spread
    (`jax.device_put`, `jax.make_array_from_process_local_data`) are as good.

    Args:
        data: Any pytree of arrays. Each is cut along the first of its axes that can be cut into as
            many equal parts as there are devices, which is that of the samples where their number
            is a multiple; an array without such an axis is whole on every device. Where the mesh
            spans several processes, each must be given all of the data, and keeps its part.
        mesh: The devices, such as `jax.make_mesh((jax.device_count(),), ("samples",))`; if they
            form a grid, all of it is used.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> mesh = jax.make_mesh((jax.device_count(),), ("samples",))
        >>> data = cf.shard(jnp.arange(8.0), mesh)
        >>> problem = cf.Problem(lambda theta, x: jnp.mean((x - theta) ** 2), data)
        >>> problem.gradient(jnp.array(3.0))
        Array(-1., dtype=float64)
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f"`mesh` must be a `jax.sharding.Mesh`, got {type(mesh).__name__}: for example "
            '`jax.make_mesh((jax.device_count(),), ("samples",))`'
        )
    return jax.tree.map(lambda leaf: _placed(leaf, _cut(np.shape(leaf), _automatic(mesh))), data)


def everywhere(data: PyTree) -> PyTree:
    """Data on all devices there are: spread over them if they are several."""
    if jax.device_count() == 1:
        return jax.tree.map(jnp.asarray, data)
    return shard(data, Mesh(np.array(jax.devices()), ("samples",)))


def mesh_of(data: PyTree) -> Mesh | None:
    """The devices that data are spread over, if there are several."""
    found = map(_sharding, jax.tree.leaves(data))
    return next((_automatic(one.mesh) for one in found if one and one.num_devices > 1), None)


def automatic(data: PyTree) -> PyTree:
    """Data where they are, JAX free to choose how what is computed from them is spread.

    `jax.make_mesh` makes meshes on which it is not: every product over samples would have to say.
    """

    def free(leaf: Any) -> Any:
        sharding = _sharding(leaf)
        if sharding and AxisType.Explicit in sharding.mesh.axis_types:
            return jax.device_put(leaf, NamedSharding(_automatic(sharding.mesh), sharding.spec))
        return leaf

    return jax.tree.map(free, data)


def whole(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """A tree that is whole on every device of a mesh; so is its gradient."""
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec()))


def _sharding(leaf: Any) -> NamedSharding | None:
    """How a leaf lies on a mesh, if it does; one that is being traced does not say."""
    sharding = getattr(leaf, "sharding", None) if isinstance(leaf, jax.Array) else None
    return sharding if isinstance(sharding, NamedSharding) else None


def _automatic(mesh: Any) -> Mesh:
    kinds = (AxisType.Auto,) * len(mesh.axis_names)
    return Mesh(mesh.devices, mesh.axis_names, axis_types=kinds)


def _cut(shape: tuple[int, ...], mesh: Mesh) -> NamedSharding:
    for axis, length in enumerate(shape):
        if length and length % mesh.size == 0:
            return NamedSharding(mesh, PartitionSpec(*[None] * axis, mesh.axis_names))
    return NamedSharding(mesh, PartitionSpec())


def _placed(leaf: Any, sharding: NamedSharding) -> jax.Array:
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    # Not by way of one device, which may be too small.
    values = np.asarray(leaf)
    dtype = jax.dtypes.canonicalize_dtype(values.dtype)
    return jax.make_array_from_callback(
        values.shape, sharding, lambda part: np.asarray(values[part], dtype)
    )
