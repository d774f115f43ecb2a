"""Where 50,000 steps of gradient descent lead: gradients and time, beside taking the steps.

    python benchmarks/fast_forward.py [--data mnist --samples 2000 --data-dir FOLDER]

Descent itself is the truth. Beside `cf.fast_forward` stand the equations of motion, integrated by
classical solvers. Directional derivatives of a gradient count as two gradients.
"""

import time

import diffrax
import jax
from common import network_on_images, write

import counterflow as cf
from counterflow.problem.tree import distance, norm

LEARNING_RATE, STEPS = 1e-3, 50_000


def timed(function):
    start = time.perf_counter()
    found = function()
    return jax.block_until_ready(found), time.perf_counter() - start


def measure(problem, params):
    horizon = LEARNING_RATE * STEPS
    descent = cf.GradientDescent(problem, LEARNING_RATE)
    cf.solve(descent, params, [LEARNING_RATE])  # compiles
    run, seconds = timed(lambda: cf.solve(descent, params, [horizon]).at(0))
    rows = [{"name": "gradient descent", "gradients": STEPS, "seconds": seconds, "error": 0.0}]

    def add(name, gradients, found, seconds, **more):
        error = float(distance(found, run) / norm(run))
        rows.append(
            {"name": name, "gradients": gradients, "seconds": seconds, "error": error, **more}
        )
        print(
            f"{name}: {gradients} gradients, {STEPS / gradients:.0f} times fewer; "
            f"{rows[0]['seconds'] / seconds:.0f} times faster; error {error:.1e}",
            flush=True,
        )

    for tolerance in (1e-4, 1e-6, 1e-8):
        cf.fast_forward(problem, params, LEARNING_RATE, STEPS, tolerance)
        ahead, seconds = timed(
            lambda tolerance=tolerance: cf.fast_forward(
                problem, params, LEARNING_RATE, STEPS, tolerance
            )
        )
        estimate = ahead.relative_error
        name = f"fast_forward, tolerance {tolerance:.0e}"
        print(f"  estimated error {estimate:.1e}", flush=True)
        add(name, ahead.gradient_evaluations, ahead.params, seconds, estimate=estimate)
    for order, method, solver in (
        (1, "taylor", diffrax.Tsit5()),
        (1, "orbit", diffrax.Tsit5()),
        (2, "orbit", diffrax.Tsit5()),
    ):
        flow = cf.EquationOfMotion(problem, LEARNING_RATE, order, method)

        def go(flow=flow, solver=solver):
            return cf.solve(flow, params, [horizon], rtol=1e-7, solver=solver)

        go()
        found, seconds = timed(go)
        name = f"equation of motion, γ = {order}, {method}, {type(solver).__name__}"
        add(name, found.statistics.gradient_evaluations, found.at(0), seconds)
    return rows


if __name__ == "__main__":
    options, network, start = network_on_images(__doc__.splitlines()[0])
    results = {
        "data": options.data,
        "samples": options.samples,
        "learning_rate": LEARNING_RATE,
        "steps": STEPS,
        "rows": measure(network, start),
    }
    write(f"fast_forward_{options.data}", results, ("counterflow", "jax", "diffrax"))
