"""Makes the table and the figure of the page on networks beyond the paper's: `make figures`.

Results are kept in docs/results as soon as they are known; what is there is not computed again.
"""

import altair
import jax
import numpy as np

from counterflow.experiments import four_networks
from counterflow.report.style import ROLES, themed
from page import DOCS, result_of, rows_of, save, write_table

PAGE = DOCS / "networks.md"
SETTINGS = four_networks.FourNetworks()


def errors_table(result: four_networks.Result) -> str:
    def written(error: float, solver_error: float) -> str:
        limited = "\\*" if error < 10 * solver_error else ""
        return f"{error:.1e}{limited}" if np.isfinite(error) else "fails"

    def row(found: four_networks.Row) -> tuple[str, ...]:
        return (
            found.network,
            f"{found.learning_rate:g}",
            f"{found.loss[0]:.2f} → {found.loss[1]:.3g}",
            *(written(*errors) for errors in zip(found.last, found.solver_errors, strict=True)),
            f"{max(found.stability):.2f}",
            f"{found.best_orders[0]}, {min(found.best_orders)}",
        )

    orders = " | ".join(f"γ = {order}" for order in result.settings.orders)
    return rows_of(
        f"network | η | loss | {orders} | η·sharpness/2, largest | best order: start, worst",
        [row(found) for found in result.rows],
    )


def symmetries_table(result: four_networks.Result) -> str:
    rows = [
        (row.network, "<br>".join(f"`{symmetry}`" for symmetry in row.symmetries))
        for row in result.rows
        if row.suits
    ]
    return rows_of("network | found at the start", rows).replace("--:", ":--")


def kinks_table(result: four_networks.Result) -> str:
    rows = [
        (
            bend.network,
            {"relu": "ReLU", "silu": "SiLU"}[bend.activation],
            f"{bend.solver_steps:,}",
            f"{bend.relative_error:.1e}",
            f"{bend.solver_error:.0e}",
        )
        for bend in result.bends
    ]
    return rows_of("network | activation | steps of the solver | error | of it the solver's", rows)


def figure(result: four_networks.Result) -> altair.TopLevelMixin:
    """The relative error of every order over the steps, a panel for each run."""
    names = {order: f"order γ = {order}" for order in result.settings.orders}
    colours = [ROLES[f"order {order}"].colour for order in names]

    def panel(row: four_networks.Row) -> altair.Chart:
        values = [
            {"step": step, "error": error, "curve": names[order]}
            for order, errors in zip(names, row.relative_errors, strict=True)
            for step, error in zip(row.steps, errors, strict=True)
            if step > 0 and np.isfinite(error) and error > 0
        ]
        return (
            altair.Chart(altair.Data(values=values))
            .mark_line(strokeWidth=1.8)
            .encode(
                x=altair.X(
                    "step:Q",
                    title="step",
                    scale=altair.Scale(domain=[0, result.settings.steps]),
                ).axis(tickCount=3),
                y=altair.Y(
                    "error:Q",
                    title="relative error",
                    scale=altair.Scale(type="log", domain=[1e-8, 3], nice=False),
                ).axis(format=".0e", values=[1e-8, 1e-6, 1e-4, 1e-2, 1]),
                color=altair.Color(
                    "curve:N",
                    title=None,
                    sort=list(names.values()),
                    scale=altair.Scale(domain=list(names.values()), range=colours),
                ),
            )
            .properties(width=170, height=150, title=f"{row.network}, η = {row.learning_rate:g}")
        )

    lines = [
        altair.hconcat(*(panel(row) for row in result.rows if row.suits == suits))
        for suits in (True, False)
    ]
    return themed(altair.vconcat(*lines))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    result = result_of("four_networks", four_networks, SETTINGS)
    write_table(PAGE, "errors", errors_table(result))
    write_table(PAGE, "kinks", kinks_table(result))
    write_table(PAGE, "symmetries", symmetries_table(result))
    save(figure(result), "networks")


if __name__ == "__main__":
    main()
