"""Makes the figures and the numbers of how_far_can_i_trust_gradient_flow.md: `make figures`.

Results are kept in docs/results as soon as they are known; what is there is not computed again.
"""

from pathlib import Path

import altair
import jax
import jax.numpy as jnp

import counterflow as cf
from counterflow.experiments import (
    best_order,
    error_prediction,
    first_steps,
    learning_rate_bounds,
)
from counterflow.experiments.best_order import BestOrder
from counterflow.experiments.error_prediction import ErrorPredictionStudy
from counterflow.experiments.first_steps import FirstSteps
from counterflow.experiments.learning_rate_bounds import (
    NEAR_CURVED,
    LearningRateBounds,
    curved_saddle,
)
from counterflow.experiments.setting import digits_network
from counterflow.report.style import BLUE, ORANGE, PALE_RED, themed
from page import printed, result_of, rows_of, save, write_table

PAGE = Path(__file__).with_suffix(".md")
LEARNING_RATE, STEPS, TOLERANCE = 1e-2, 500, 1e-2


def walk(
    steps: int = STEPS, orders: tuple[int, ...] = (0, 1, 2)
) -> tuple[cf.ErrorPrediction, cf.Comparison]:
    """The first half of the page: one network, predicted, measured and drawn."""
    problem, params = digits_network()

    prediction = cf.predict_error(problem, params, LEARNING_RATE, steps, order=0)
    comparison = cf.compare(problem, params, LEARNING_RATE, steps, orders, restart=steps // 5)
    return prediction, comparison


def saddle() -> altair.LayerChart:
    """The error of a real run at the paper's bound, near a curved stable manifold."""
    problem, params = cf.Problem(curved_saddle), jnp.array(NEAR_CURVED)
    bound = cf.learning_rate_bound(problem, params, time=10.0, tolerance=TOLERANCE)
    run = cf.compare(problem, params, float(bound), bound.steps, (0,), records=200)
    curves = {
        "measured": run.error[0],
        "local prediction (paper)": run.predictions["local"].prediction[0],
        "propagated prediction": run.predictions["propagated"].prediction[0],
    }
    rows = [
        {"time": float(time), "error": float(error), "curve": name}
        for name, errors in curves.items()
        for time, error in zip(run.times, errors, strict=True)
        if error > 0
    ]
    names = list(curves)
    base = altair.Chart().encode(
        x=altair.X("time:Q", title="time t = kη"),
        y=altair.Y("error:Q", title="discretization error", scale=altair.Scale(type="log")).axis(
            format=".1~e", tickCount=5
        ),
        color=altair.Color(
            "curve:N",
            title=None,
            sort=names,
            scale=altair.Scale(domain=names, range=[PALE_RED, ORANGE, BLUE]),
        ),
        strokeDash=altair.StrokeDash(
            "curve:N", sort=names, scale=altair.Scale(domain=names, range=[[1, 0], [2, 2], [5, 3]])
        ),
    )
    measured = altair.datum.curve == "measured"
    limit = altair.Chart(altair.Data(values=[{"error": TOLERANCE, "text": "tolerance"}]))
    chart = altair.layer(
        base.transform_filter(measured).mark_line(strokeWidth=5),
        base.transform_filter(~measured).mark_line(strokeWidth=1.6),
        limit.mark_rule(strokeDash=[1, 2]).encode(y="error:Q"),
        limit.mark_text(align="left", dy=-7, x=4).encode(y="error:Q", text="text:N"),
        data=altair.Data(values=rows),
    )
    title = f"curved saddle, gradient flow, at the paper's bound η = {float(bound):.2g}"
    return themed(chart.properties(width=380, height=220, title=title))


def orders(result: best_order.Result) -> altair.Chart:
    """The relative error of every order, one line per learning rate."""
    rows = [
        {"order": order, "error": error, "η": f"{row.learning_rate:g}"}
        for row in result.rows
        for order, error in zip(result.settings.orders, row.relative_errors, strict=True)
        if error == error
    ]
    chart = (
        altair.Chart(altair.Data(values=rows))
        .mark_line(point=True, strokeWidth=1.8)
        .encode(
            x=altair.X("order:O", title="order γ", axis=altair.Axis(labelAngle=0)),
            y=altair.Y("error:Q", title="relative error", scale=altair.Scale(type="log")).axis(
                format=".0e", tickCount=6
            ),
            color=altair.Color("η:N", sort=None, scale=altair.Scale(scheme="viridis")).legend(
                columns=len(result.rows)
            ),
        )
    )
    title = f"digits network at t = {result.settings.time:g}"
    return themed(chart.properties(width=300, height=220, title=title))


# --- the tables of the page -------------------------------------------------------------------


def prediction_table(result: error_prediction.Result) -> str:
    def span(name: str, rate: float, order: int) -> str:
        values = result.over_seeds(name, rate, order)
        return f"{values.min():.2g} … {values.max():.2g}"

    columns = ("error", "local_mismatch", "propagated_mismatch", "propagated_uncertainty")
    return rows_of(
        "η | γ | error ‖e_k‖ | local off by | propagated off by | as it estimated",
        [
            (f"{rate:g}", str(order), *(span(name, rate, order) for name in columns))
            for rate in result.settings.learning_rates
            for order in result.settings.orders
        ],
    )


def bounds_table(result: learning_rate_bounds.Result) -> str:
    return rows_of(
        "problem | t | γ | bound | η at most | slack",
        [
            (
                row.problem,
                f"{row.time:g}",
                str(row.order),
                row.kind,
                f"{'< ' if row.note else ''}{row.learning_rate:.2g}",
                "" if row.slack is None else f"{row.slack:.3g}",
            )
            for row in result.rows
        ],
    )


def best_order_table(result: best_order.Result) -> str:
    orders = " | ".join(f"γ = {order}" for order in result.settings.orders)
    return rows_of(
        f"η | {orders} | useful order | promised",
        [
            (
                f"{row.learning_rate:g}",
                *(f"{error:.1e}" for error in row.relative_errors),
                str(result.useful_order(row)),
                str(row.promised_order),
            )
            for row in result.rows
        ],
    )


def first_steps_table(result: first_steps.Result) -> str:
    return rows_of(
        "after the first 100 steps | share",
        [
            ("the local sum, of its value at the end", f"{result.local_share:.2f}"),
            ("the measured error, of its largest value", f"{result.measured_share:.2f}"),
            ("their distance, of that at the end", f"{result.gap_share:.2f}"),
            (
                "the distance at the end if the sum starts from the measured error, of the same",
                f"{result.restarted_gap:.2f}",
            ),
            (
                "the finite difference with ε = 1e-7, off by, along these steps",
                f"{min(result.difference_errors):.1g} … {max(result.difference_errors):.1g}",
            ),
        ],
    )


def cost_table(comparison: cf.Comparison) -> str:
    return rows_of(
        "part | gradient evaluations | steps",
        [
            (name, f"{cost.gradient_evaluations:,}", f"{cost.accepted_steps:,}")
            for name, cost in comparison.statistics.items()
        ],
    )


TABLES = {
    "error_prediction": (error_prediction, ErrorPredictionStudy(), prediction_table),
    "learning_rate_bounds": (learning_rate_bounds, LearningRateBounds(), bounds_table),
    "best_order": (best_order, BestOrder(), best_order_table),
    "first_steps": (first_steps, FirstSteps(), first_steps_table),
}


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    for name, (module, settings, table) in TABLES.items():
        result = result_of(name, module, settings)
        write_table(PAGE, name, table(result))
        if isinstance(result, best_order.Result):
            save(orders(result), "best_order")
    save(saddle(), "curved_saddle")
    prediction, comparison = walk()
    blocks = {
        "prediction": printed(prediction),
        "comparison": printed(comparison),
        "cost": cost_table(comparison),
    }
    for name, block in blocks.items():
        write_table(PAGE, name, block)
    save(cf.plot(comparison), "error_log")
    save(cf.plot(comparison, scale="linear"), "error_linear")


if __name__ == "__main__":
    main()
