"""Data over four devices against data on one: relative differences, as JSON.

In a process of its own, for the number of devices is fixed once JAX has started.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np

import counterflow as cf

DRAW = np.random.default_rng(0).standard_normal
PARAMS = {"first": DRAW((8, 5)), "hidden": DRAW((5, 4)), "readout": DRAW((4, 3))}


def loss(params, data):
    """The paper's network: batch normalization over all samples."""
    inputs, targets = data
    hidden = jax.nn.silu(inputs @ params["first"]) @ params["hidden"]
    hidden = (hidden - hidden.mean(0)) / hidden.std(0)
    return -jnp.mean(jnp.sum(targets * jax.nn.log_softmax(hidden @ params["readout"]), 1))


def field(params, data):
    """The same problem as a vector field."""
    return jax.grad(loss)(params, data)


def apart(found, expected):
    """The largest difference of two trees, relative to the largest number of each leaf."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in pairs)


def spread_of(samples, explicit):
    """The data on one device and on four."""
    data = DRAW((samples, 8)), np.eye(3)[np.arange(samples) % 3]
    kind = jax.sharding.AxisType.Explicit if explicit else jax.sharding.AxisType.Auto
    mesh = jax.make_mesh((4,), ("samples",), axis_types=(kind,))
    if explicit:  # the way of JAX's documentation
        where = jax.NamedSharding(mesh, jax.P("samples"))
        return data, jax.device_put(data, where)
    return data, cf.shard(data, mesh)


def differences(one, four, thoroughly):
    """What is computed of two problems that should be the same."""
    yield "gradient", jax.jit(cf.Problem.gradient)(four, PARAMS), one.gradient(PARAMS)
    product = jax.jit(cf.Problem.hessian_vector_product)
    yield "product", product(four, PARAMS, PARAMS), product(one, PARAMS, PARAMS)
    if not thoroughly:
        return
    for method in ("taylor", "lie"):
        terms = [cf.counter_terms(p, PARAMS, 2, method=method) for p in (four, one)]
        yield f"counter terms by {method}", *terms
    if not one.has_loss:
        return
    symmetries = [len(list(cf.find_symmetries(p, PARAMS))) for p in (four, one)]
    yield "symmetries", *map(float, symmetries)
    compared = [
        cf.compare(p, PARAMS, learning_rate=1e-2, steps=20, orders=(0, 1), predict=True)
        for p in (four, one)
    ]
    found, expected = (c.to_xarray() for c in compared)
    for name in ("error", "propagated_prediction", "local_prediction"):
        # Relative to the params, which errors are differences of.
        yield name, *(1 + c[name].values[:, 1:] for c in (found, expected))


def main():
    """Prints how far apart they are, by case and quantity."""
    found = {}
    for samples, explicit in ((16, False), (16, True), (15, False)):
        data, spread = spread_of(samples, explicit)
        thoroughly = samples == 16 and not explicit
        cases = {"loss": cf.Problem}
        if thoroughly:
            cases["field"] = cf.Problem.from_gradient
        for name, make in cases.items():
            function = loss if name == "loss" else field
            one, four = (make(function, d, weight_decay=1e-2) for d in (data, spread))
            for quantity, *both in differences(one, four, thoroughly):
                key = f"{name}, {samples} samples{', explicit' * explicit}: {quantity}"
                found[key] = apart(*both)
        gradient = jax.jit(cf.Problem.gradient)(four, PARAMS)
        assert all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(gradient))
    shapes = [str(leaf.sharding.spec) for leaf in jax.tree.leaves(spread)]
    print(json.dumps({"apart": found, "of 15 samples": shapes}))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
