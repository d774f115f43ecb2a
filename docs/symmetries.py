"""Makes the figures and the numbers of the pages on symmetries: `make figures`.

Results are kept in docs/results as soon as they are known; what is there is not computed again.
"""

from typing import Any

import altair
import jax
import numpy as np

from counterflow.experiments import (
    architectures,
    charge_gaps,
    decay_rates,
    limiting_dynamics,
    path_sharpness,
    planar_equilibria,
)
from counterflow.report.charge_plot import gap_chart
from counterflow.report.style import BLUE, GREEN, ORANGE, PALE_RED, themed
from counterflow.symmetries.fixed_point import equilibrium_angle
from page import DOCS, result_of, rows_of, save, write_table

OVERVIEW = DOCS / "symmetries.md"
SCALE, TRANSLATION = DOCS / "scale_invariant_layers.md", DOCS / "translation_invariant_layers.md"
RESCALE = DOCS / "rescaling.md"


# --- tables -----------------------------------------------------------------------------------


def architectures_table(result: architectures.Result) -> str:
    def listed(symmetries: tuple[str, ...]) -> str:
        return "<br>".join(f"`{symmetry}`" for symmetry in symmetries)

    def compared(row: architectures.Row) -> str:
        missing = tuple(s for s in row.expected if s not in row.found)
        more = tuple(s for s in row.found if s not in row.expected)
        said = [f"missing: {listed(missing)}"] if missing else []
        said += [f"more: {listed(more)}"] if more else []
        largest = f"all {len(row.found)}, residuals at most {max(row.residuals, default=0.0):.0e}"
        return "<br>".join(said) or largest

    def expected(row: architectures.Row) -> str:
        unused = tuple(f"no dependence on {name}" for name in row.unused)
        return "<br>".join(filter(None, [listed(row.expected), *unused]))

    return rows_of(
        "network | expected | found",
        [(row.architecture, expected(row), compared(row)) for row in result.rows],
    ).replace("--:", ":--")


def decay_table(result: decay_rates.Result) -> str:
    def row(found: decay_rates.Row) -> tuple[str, ...]:
        orders = (f"{found.predicted(order):.13e}" for order in range(4))
        printed = "" if found.printed is None else f"{found.printed:.13e}"
        return (
            f"{found.learning_rate:g}, {found.weight_decay:g}",
            *orders,
            f"{found.measured:.13e}",
            f"{abs(found.measured / found.exact - 1):.0e}",
            printed,
            f"{found.single_precision:.13e}",
        )

    return rows_of(
        "η, λ | gradient flow | γ = 1 (paper's theory) | γ = 2 | γ = 3 | descent, measured | "
        "off from −log(1 − ηλ) | paper's experiment | −log(1 − float32(η)λ)",
        [row(found) for found in result.rows],
    )


def gap_table(result: charge_gaps.Result, symmetry: str) -> str:
    (row,) = [row for row in result.rows if row.symmetry == symmetry]
    orders = [
        (f"γ = {order}", f"{gap:.1e}", f"{solver:.0e}")
        for order, gap, solver in zip(
            result.settings.orders, row.largest_gaps, row.solver_errors, strict=True
        )
    ]
    return rows_of(
        "prediction | largest gap | solver error",
        [*orders, ("recorded gradients", f"{row.recorded_gap:.1e}", "")],
    )


def long_run_table(result: limiting_dynamics.Result) -> str:
    left, right = result.averaged_law
    settings = result.settings
    angles = equilibrium_angle(settings.learning_rate, settings.weight_decay)
    return rows_of(
        f"over {settings.steps:,} steps | value",
        [
            ("(2λ − ηλ²)⟨r²⟩", f"{left:.5g}"),
            ("η⟨c²/r²⟩", f"{right:.5g}"),
            ("their ratio", f"{left / right:.4f}"),
            ("r fluctuates within an intrinsic time by", f"{result.radius_fluctuation:.1%}"),
            ("c fluctuates within an intrinsic time by", f"{result.gradient_fluctuation:.1%}"),
            ("r drifts from one to the next by", f"{result.radius_drift:.1%}"),
            ("c drifts from one to the next by", f"{result.gradient_drift:.1%}"),
            ("angular update Δ, mean", f"{result.angle:.4f}"),
            ("√(2ηλ), the paper's Δ_*", f"{angles.leading:.4f}"),
            ("arccos(1 − ηλ), the exact Δ_*", f"{angles.exact:.4f}"),
            *(
                (
                    f"γ = {flow.order} was solved to t = {flow.times[-1]:g}; r there",
                    f"{flow.radius[-1]:.3f}",
                )
                for flow in result.flows
            ),
        ],
    )


def planar_table(result: planar_equilibria.Result) -> str:
    def row(case: planar_equilibria.Row) -> tuple[str, ...]:
        flows = (f"{radius:.4f}" for radius in case.radius_flows)
        return (
            case.name,
            f"{case.radius:.12f}",
            f"{case.radius_exact:.12f}",
            f"{case.radius_paper:.4f}",
            *flows,
            f"{case.angle:.12f}",
            f"{case.angle_exact:.12f}",
        )

    return rows_of(
        "case | r, descent | r_*, exact | r_*, paper | γ = 0 | γ = 1 | γ = 2 | γ = 3 | "
        "Δ, descent | Δ_*, exact",
        [row(case) for case in result.rows],
    )


def sharpness_table(result: path_sharpness.Result) -> str:
    def span(rate: float, index: int) -> str:
        ratios = [row.ratios[index] for row in result.rows if row.learning_rate == rate]
        return f"{min(ratios):.4f} … {max(ratios):.4f}"

    times = result.settings.times
    return rows_of(
        " | ".join(["η", *(f"t = {time:g}" for time in times)]),
        [
            (f"{rate:g}", *(span(rate, index) for index in range(len(times))))
            for rate in result.settings.learning_rates
        ],
    )


# Which experiment fills which tables of which pages.
TABLES: dict[str, tuple[Any, Any, list[tuple[Any, str, Any]]]] = {
    "architectures": (
        architectures,
        architectures.Architectures(),
        [(OVERVIEW, "architectures", architectures_table)],
    ),
    "decay_rates": (
        decay_rates,
        decay_rates.DecayRates(),
        [(TRANSLATION, "decay_rates", decay_table)],
    ),
    "charge_gaps": (
        charge_gaps,
        charge_gaps.ChargeGaps(),
        [
            (page, f"{name}_gaps", lambda result, name=name: gap_table(result, name))
            for page, name in ((SCALE, "scale"), (TRANSLATION, "translation"), (RESCALE, "rescale"))
        ],
    ),
    "path_sharpness": (
        path_sharpness,
        path_sharpness.PathSharpness(),
        [(SCALE, "path_sharpness", sharpness_table)],
    ),
    "planar_equilibria": (
        planar_equilibria,
        planar_equilibria.PlanarEquilibria(),
        [(SCALE, "planar", planar_table)],
    ),
    "limiting_dynamics": (
        limiting_dynamics,
        limiting_dynamics.LimitingDynamics(),
        [(SCALE, "long_run", long_run_table)],
    ),
}


# --- figures ----------------------------------------------------------------------------------


def gaps(result: charge_gaps.Result, symmetry: str, title: str) -> altair.Chart:
    (row,) = [row for row in result.rows if row.symmetry == symmetry]
    times = np.array(row.steps) * row.learning_rate
    recorded = np.abs(np.array(row.recorded) - np.array(row.measured))
    chart = gap_chart(times, result.settings.orders, row.gaps, recorded)
    title = f"{title}, η = {row.learning_rate:g}, λ = {row.weight_decay:g}"
    return chart.properties(width=330, height=230, title=title)


def collapse(result: limiting_dynamics.Result) -> altair.Chart:
    """The norm of the hidden layer over a million steps, and by the flows."""
    settings, run = result.settings, result.run
    rate, decay = settings.learning_rate, settings.weight_decay
    start = result.flows[0].radius[0]
    times = np.geomspace(1, 2000, 60)
    ends = np.array(run.steps) * rate
    middles = ends - np.diff(ends, prepend=0) / 2  # of the windows that r is a mean over
    curves = {
        "gradient descent": (middles, run.radius),
        "gradient flow, r(0) exp(−λt)": (times, start * np.exp(-decay * times)),
        "gradient flow (γ = 0), solved": (result.flows[0].times, result.flows[0].radius),
        "EoM of the paper (γ = 1), solved": (result.flows[1].times, result.flows[1].radius),
    }
    rows = [
        {"time": float(time), "r": float(radius), "curve": name}
        for name, (at, radii) in curves.items()
        for time, radius in zip(at, radii, strict=True)
        if time > 0 and radius > 1e-8
    ]
    names = list(curves)
    return (
        altair.Chart(altair.Data(values=rows))
        .mark_line(strokeWidth=1.8)
        .encode(
            x=altair.X(
                "time:Q", title="time t = kη", scale=altair.Scale(type="log", nice=False)
            ).axis(format=".0e", tickCount=6),
            y=altair.Y(
                "r:Q", title="norm r of the hidden layer", scale=altair.Scale(type="log")
            ).axis(format=".0e", tickCount=6),
            color=altair.Color(
                "curve:N",
                title=None,
                sort=names,
                scale=altair.Scale(domain=names, range=[PALE_RED, ORANGE, GREEN, BLUE]),
            ),
            strokeDash=altair.StrokeDash(
                "curve:N",
                sort=names,
                scale=altair.Scale(domain=names, range=[[1, 0], [2, 2], [1, 0], [6, 4]]),
            ),
        )
        .properties(width=330, height=230, title=f"long run, η = {rate:g}, λ = {decay:g}")
    )


def figures(results: dict[str, Any]) -> dict[str, altair.TopLevelMixin]:
    """Every figure by name."""
    charges, limits = results["charge_gaps"], results["limiting_dynamics"]
    both = altair.hconcat(
        gaps(charges, "scale", "squared norm of the hidden layer"), collapse(limits)
    ).resolve_scale(color="independent", strokeDash="independent")
    return {
        "scale": themed(both).configure_legend(orient="bottom", columns=2, labelLimit=260),
        "translation": themed(gaps(charges, "translation", "sum of the readout's weights")),
        "rescale": themed(gaps(charges, "rescale", "difference of squared norms")),
    }


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    results = {}
    for name, (module, settings, tables) in TABLES.items():
        results[name] = result_of(name, module, settings)
        for page, marker, table in tables:
            write_table(page, marker, table(results[name]))
    for name, chart in figures(results).items():
        save(chart, name)


if __name__ == "__main__":
    main()
