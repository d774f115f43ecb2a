"""Gradient evaluations against true error, for gradient flow and equations of motion to t = 50.

    python benchmarks/work_precision.py [--data mnist --samples 2000 --data-dir FOLDER]

Every directional derivative of a gradient counts as two gradients, whoever computes it; a
difference of two gradients in its place, as in our power iterations, as the one that is new. A
second count of ours has such a difference as two as well. The truth is Dopri8 at a tolerance of
1e-12. Ours is `cf.solve` with no solver named; the others are what a user would take: diffrax's
`diffeqsolve` with its default step-size control, torchdiffeq, and fixed steps. All see the same
velocity. At order 1 ours and diffrax's also take the one by the method `orbit`, from gradients
alone, and are then compared with the exact solution of that and with each other; at order 2, all
take it.
"""

from functools import partial

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
import torch
import torchdiffeq
from common import network_on_images, write
from jax.flatten_util import ravel_pytree

import counterflow as cf
from counterflow.errors.curvature import sharpness

LEARNING_RATE, HORIZON = 1e-2, 50.0
TOLERANCES = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-9]
# Errors between which counts are interpolated; smaller ones than the truth's are not asked for.
TARGETS = (1e-4, 1e-6, 1e-8)
# Stages of an attempt, where the first is taken over from the attempt before.
STAGES = {diffrax.Tsit5: 6, diffrax.Dopri8: 13}


class Flow:
    """A flow in flat params, and what one velocity costs in gradients."""

    def __init__(self, problem, params, order, method="taylor"):
        self.params = params
        self.flat, self.unravel = ravel_pytree(params)
        self.flow = cf.EquationOfMotion(problem, LEARNING_RATE, order, method)
        self.cost = self.flow.gradient_evaluations
        self.velocity = partial(_velocity, self.flow, self.unravel)
        run = cf.solve(self.flow, params, [HORIZON], rtol=1e-12, solver=diffrax.Dopri8())
        self.exact = ravel_pytree(run.at(0))[0]

    def error(self, found):
        return float(jnp.linalg.norm(found - self.exact) / jnp.linalg.norm(self.exact))


@eqx.filter_jit
def _velocity(flow, unravel, y):
    return ravel_pytree(flow.velocity(unravel(y)))[0]


# Solvers: each returns the gradients spent and the params at the end.


def ours(flow, tolerance):
    """Also returns the gradients of power iterations, where they are all but one a step."""
    run = cf.solve(flow.flow, flow.params, [HORIZON], rtol=tolerance)
    cost, found = run.statistics, ravel_pytree(run.at(0))[0]
    if cost.solver != "StabilizedAdams":
        return cost.gradient_evaluations, found
    velocities = 1 + cost.accepted_steps + cost.rejected_steps
    products = cost.gradient_evaluations - flow.cost * velocities
    return cost.gradient_evaluations, found, products


def by_diffrax(solver, flow, tolerance):
    y, steps = _diffeqsolve(flow.flow, flow.unravel, flow.flat, solver, jnp.asarray(tolerance))
    return flow.cost * (2 + int(steps) * (STAGES[type(solver)])), y


@eqx.filter_jit
def _diffeqsolve(flow, unravel, start, solver, tolerance):
    done = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, flow: ravel_pytree(flow.velocity(unravel(y)))[0]),
        solver,
        0.0,
        HORIZON,
        None,
        start,
        flow,
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance / 100),
        max_steps=20_000,
        throw=False,
    )
    return done.ys[-1], done.stats["num_steps"]


def by_kvaerno(flow, tolerance):
    """Kvaerno5 without matrices: Newton–Krylov, every product counted by a callback."""
    count = 0

    def seen(gradients, value):
        def spend(value):
            nonlocal count
            count += gradients
            return value

        shape = jax.ShapeDtypeStruct(value.shape, value.dtype)
        return jax.pure_callback(spend, shape, value)

    @jax.custom_jvp
    def velocity(y):
        return flow.velocity(seen(flow.cost, y))

    @velocity.defjvp
    def _(primals, tangents):
        (y,), (v,) = primals, tangents
        value, product = jax.jvp(flow.velocity, (y,), (v,))
        return value, seen(2 * flow.cost, product)

    krylov = lx.GMRES(rtol=1e-2, atol=1e-2 * tolerance, restart=20, stagnation_iters=20)
    finder = diffrax.with_stepsize_controller_tols(optx.Newton)(linear_solver=krylov)
    done = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: velocity(y)),
        diffrax.Kvaerno5(root_finder=finder),
        0.0,
        HORIZON,
        None,
        flow.flat,
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance / 100),
        max_steps=2_000,
        throw=False,
    )
    jax.block_until_ready(done.ys)
    return count, done.ys[-1]


def by_torch(method, flow, tolerance):
    count = 0

    def velocity(_, y):
        nonlocal count
        count += flow.cost
        return torch.from_numpy(np.array(flow.velocity(jnp.asarray(y.numpy()))))

    times = torch.tensor([0.0, HORIZON], dtype=torch.float64)
    start = torch.from_numpy(np.array(flow.flat))
    with torch.no_grad():
        found = torchdiffeq.odeint(
            velocity, start, times, rtol=tolerance, atol=tolerance / 100, method=method
        )
    return count, jnp.asarray(found[-1].numpy())


def by_rk4(flow, step):
    count = int(np.ceil(HORIZON / step))
    return 4 * flow.cost * count, _rk4(flow.flow, flow.unravel, flow.flat, HORIZON / count, count)


@eqx.filter_jit
def _rk4(flow, unravel, y, step, count):
    def velocity(y):
        return ravel_pytree(flow.velocity(unravel(y)))[0]

    def body(_, y):
        k1 = velocity(y)
        k2 = velocity(y + step / 2 * k1)
        k3 = velocity(y + step / 2 * k2)
        k4 = velocity(y + step * k3)
        return y + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return jax.lax.fori_loop(0, count, body, y)


def by_euler(flow, step):
    count = round(HORIZON / step)
    return flow.cost * count, _euler(flow.flow, flow.unravel, flow.flat, step, count)


@eqx.filter_jit
def _euler(flow, unravel, y, step, count):
    def body(_, y):
        return y + step * ravel_pytree(flow.velocity(unravel(y)))[0]

    return jax.lax.fori_loop(0, count, body, y)


# Curves


def curve(name, flow, solver, settings, *, enough=1e-8, most=60_000):
    """Gradients and errors from loose settings to tight ones."""
    points = []
    for setting in settings:
        gradients, found, *products = solver(flow, setting)
        error = flow.error(found)
        if np.isfinite(error):
            point = {"setting": setting, "gradients": gradients, "error": error}
            points.append(point | ({"products": products[0]} if products else {}))
        print(f"  {name} {setting:.0e}: {gradients} gradients, error {error:.1e}", flush=True)
        if error < enough or gradients > most:
            break
    return points


def euler(flow):
    """Euler at small steps, extrapolated from a larger one: its error is of order one."""
    measured = 0.05
    gradients, found = by_euler(flow, measured)
    error = flow.error(found)
    return [
        {
            "setting": step,
            "gradients": round(gradients * measured / step),
            "error": error * step / measured,
            "extrapolated": True,
        }
        for step in (1e-3, 1e-5)
    ]


def lower_edge(points):
    """The points that no other one beats in both, from loose to tight."""
    edge = []
    for point in sorted(points, key=lambda point: (point["gradients"], point["error"])):
        if not edge or point["error"] < edge[-1]["error"]:
            edge.append(point)
    return edge


def products_as_two(points):
    """A curve of ours where a product by a difference counts as two gradients, where known."""
    return [
        {**point, "gradients": point["gradients"] + point["products"]}
        for point in points
        if "products" in point
    ]


def gradients_at(points, error):
    """The fewest gradients for an error, on the lower edge of a curve, interpolated in logarithms.

    A solver that is unstable at loose tolerances is not held to what it spends there: what a
    tighter one needs is enough for a looser error too.
    """
    edge = lower_edge(points)
    if not edge or edge[-1]["error"] > error:
        return None
    x, y = (np.log([point[key] for point in edge]) for key in ("error", "gradients"))
    return float(np.exp(np.interp(-np.log(error), -x, y)))


def measure(problem, params, order):
    # At order 2 the velocity is made of gradients for everyone, as `counterflow run` has it.
    flow = Flow(problem, params, order, "taylor" if order < 2 else "orbit")
    sharp = sharpness(problem, params).value
    sharp *= sum((LEARNING_RATE * sharp) ** k / (k + 1) for k in range(order + 1))
    curves = {"counterflow": curve("counterflow", flow, ours, TOLERANCES)}
    own = Flow(problem, params, order, "orbit") if order == 1 else flow
    if order == 1:
        curves["counterflow, orbit"] = curve("counterflow, orbit", own, ours, TOLERANCES)
    for solver in (diffrax.Tsit5(), diffrax.Dopri8()):
        name = f"diffrax {type(solver).__name__}"
        curves[name] = curve(name, flow, partial(by_diffrax, solver), TOLERANCES)
        if order == 1:
            orbit = f"{name}, orbit"
            curves[orbit] = curve(orbit, own, partial(by_diffrax, solver), TOLERANCES)
    # Twenty times the work of the others.
    implicit = [1e-3, 1e-5] if order == 0 else [1e-3]
    curves["diffrax Kvaerno5"] = curve("diffrax Kvaerno5", flow, by_kvaerno, implicit)
    for method in ("dopri5", "dopri8"):
        name = f"torchdiffeq {method}"
        curves[name] = curve(name, flow, partial(by_torch, method), TOLERANCES[2::2])
    steps = [alpha / sharp for alpha in (2.0, 1.0, 0.5)]
    curves["RK4, step α/sharpness"] = curve("RK4", flow, by_rk4, steps)
    curves["Euler"] = euler(flow)
    at = {
        f"{error:.0e}": {name: gradients_at(points, error) for name, points in curves.items()}
        for error in TARGETS
    }
    strictly = {
        f"{error:.0e}": {
            name: gradients_at(products_as_two(points), error)
            for name, points in curves.items()
            if name.startswith("counterflow")
        }
        for error in TARGETS
    }
    for error, found in at.items():
        for ending in ("", ", orbit"):
            # Like is compared with like: a velocity by `orbit` costs fewer gradients.
            alike = {n: v for n, v in found.items() if v and n.endswith(", orbit") == bool(ending)}
            mine = alike.pop(f"counterflow{ending}", None)
            if mine and alike:
                best = min(alike, key=lambda name: alike[name])
                twice = strictly[error][f"counterflow{ending}"]
                print(
                    f"order {order}, error {error}{ending}: {mine:.0f} gradients, {best} "
                    f"{alike[best]:.0f}: ratio {mine / alike[best]:.2f}, with products as two "
                    + (f"{twice / alike[best]:.2f}" if twice else "not known"),
                    flush=True,
                )
    return {"curves": curves, "gradients_at": at, "products_as_two": strictly}


def _orders(parser):
    parser.add_argument("--orders", type=int, nargs="+", default=[0, 1, 2])


if __name__ == "__main__":
    options, problem, params = network_on_images(__doc__.splitlines()[0], _orders)
    results = {
        "data": options.data,
        "samples": options.samples,
        "learning_rate": LEARNING_RATE,
        "horizon": HORIZON,
        "orders": {},
    }
    packages = ("counterflow", "jax", "diffrax", "torch", "torchdiffeq")
    for order in options.orders:
        results["orders"][str(order)] = measure(problem, params, order)
        write(f"work_precision_{options.data}", results, packages)
