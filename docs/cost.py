"""Makes the figures and the numbers of the page on cost from what the benchmarks found.

`make bench` measures; this only draws: `make figures`.
"""

import json
from pathlib import Path
from typing import Any

import altair

from counterflow.report.report import duration
from counterflow.report.style import BLUE, GREEN, GREY, ORANGE, ORDERS, themed
from page import DOCS, RESULTS, rows_of, save, write_table

PAGE = DOCS / "cost.md"
BENCHMARKS = DOCS.parent / "benchmarks" / "results"
# In the legends, in this order; each has the same colour in every panel.
SOLVERS = {
    "counterflow": "#0072B2",
    "counterflow, orbit": "#56B4E9",
    "diffrax Tsit5": ORANGE,
    "diffrax Dopri8": "#D55E00",
    "diffrax Kvaerno5": "#CC79A7",
    "torchdiffeq dopri5": GREEN,
    "torchdiffeq dopri8": "#00664A",
    "RK4, step α/sharpness": "#7A6A00",
    "Euler": GREY,
}


def found(name: str) -> dict[str, Any]:
    """What a benchmark found."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))


def measured_on(name: str) -> tuple[str, ...]:
    """The data on which a benchmark was run."""
    names = (path.stem.removeprefix(f"{name}_") for path in BENCHMARKS.glob(f"{name}_*.json"))
    return tuple(sorted(names))


def power(field: str, title: str, **scale: Any) -> Any:
    """A logarithmic axis that is labelled by powers of ten."""
    label = "'10^' + round(log(datum.value) / log(10))"
    axis = altair.Axis(labelExpr=label, values=[10.0**k for k in range(-12, 9)])
    return {"field": field, "type": "quantitative", "title": title, "axis": axis} | {
        "scale": altair.Scale(type="log", **scale)
    }


# --- solvers --------------------------------------------------------------------------------------


def work_precision_chart(results: dict[str, Any]) -> Any:
    panels = []
    for order, measured in results["orders"].items():
        rows = [
            {
                "solver": name,
                "gradients": point["gradients"],
                "error": max(point["error"], 1e-11),
                "extrapolated": point.get("extrapolated", False),
            }
            for name, points in measured["curves"].items()
            for point in points
            if point["error"] < 1
        ]
        colour = altair.Color("solver:N", title=None).scale(
            domain=list(SOLVERS), range=list(SOLVERS.values())
        )
        base = altair.Chart(altair.Data(values=rows))
        x = altair.X(**power("error", "relative error at t = 50", domain=[1e-11, 1], reverse=True))
        y = altair.Y(**power("gradients", "gradients"))
        width = altair.condition(
            "datum.solver == 'counterflow'", altair.value(3), altair.value(1.5)
        )
        lines = base.mark_line().encode(
            x=x,
            y=y,
            color=colour,
            strokeWidth=width,
            order=altair.Order("error:Q", sort="descending"),
        )
        points = base.mark_point(size=30).encode(
            x=x,
            y=y,
            color=colour,
            fill=altair.condition("datum.extrapolated", altair.value("white"), colour),
        )
        name = "gradient flow" if order == "0" else f"equation of motion, γ = {order}"
        panels.append((lines + points).properties(width=270, height=260, title=name))
    return themed(altair.hconcat(*panels))


def work_precision_table() -> str:
    rows = []
    for data in measured_on("work_precision"):
        results = found(f"work_precision_{data}")["results"]
        images = f"{results['samples']:,} images of {'MNIST' if data == 'mnist' else 'digits'}"
        for order, measured in results["orders"].items():
            for error, by_solver in measured["gradients_at"].items():
                ours = {k: v for k, v in by_solver.items() if k.startswith("counterflow") and v}
                others = {k: v for k, v in by_solver.items() if k not in ours and v}
                best = min(others, key=lambda name: others[name])

                def cell(name: str, ours=ours, bound=others[best]) -> str:
                    value = ours.get(name)
                    return f"{value:,.0f} ({value / bound:.2f})" if value else "—"

                row = (
                    images,
                    f"γ = {order}",
                    f"{float(error):.0e}",
                    cell("counterflow"),
                    cell("counterflow, orbit"),
                    f"{others[best]:,.0f}, {best}",
                )
                rows.append(row)
    return rows_of(
        "on | flow | relative error | gradients of `cf.solve` (over the best of the others) | by "
        "`orbit` | best of the others",
        rows,
    )


# --- fast-forward ---------------------------------------------------------------------------------


def fast_forward_table() -> str:
    rows = []
    for data in measured_on("fast_forward"):
        results = found(f"fast_forward_{data}")["results"]
        images = f"{results['samples']:,} images of {'MNIST' if data == 'mnist' else 'digits'}"
        descent = results["rows"][0]
        for row in results["rows"][1:]:
            estimate = f"{row['estimate']:.0e}" if "estimate" in row else "—"
            rows.append(
                (
                    images,
                    row["name"],
                    f"{row['gradients']:,}",
                    f"{descent['gradients'] / row['gradients']:.0f}",
                    f"{descent['seconds'] / row['seconds']:.0f}",
                    f"{row['error']:.0e}",
                    estimate,
                )
            )
    return rows_of(
        "on | 50,000 steps at η = 1e-3 by | gradients | times fewer than descent | times faster | "
        "relative error | estimated",
        rows,
    )


def fast_forward_chart(results: dict[str, Any]) -> Any:
    rows = [
        {
            "gradients": row["gradients"],
            "error": row["error"],
            "by": "fast_forward" if "fast_forward" in row["name"] else "equation of motion",
            "label": row["name"]
            .removeprefix("equation of motion, ")
            .removeprefix("fast_forward, "),
        }
        for row in results["rows"]
        if row["error"] > 0
    ]
    descent = {"gradients": results["steps"], "label": "gradient descent itself"}
    base = altair.Chart(altair.Data(values=rows))
    x = altair.X(**power("gradients", "gradients", domain=[300, 100_000]))
    y = altair.Y(**power("error", "relative error after 50,000 steps"))
    colour = altair.Color("by:N", title=None).scale(
        domain=["fast_forward", "equation of motion"], range=[BLUE, ORANGE]
    )
    points = base.mark_point(size=70, filled=True).encode(x=x, y=y, color=colour)
    labels = base.mark_text(align="left", dx=8, fontSize=10).encode(
        x=x, y=y, text="label:N", color=colour
    )
    line = altair.Chart(altair.Data(values=[descent]))
    rule = line.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x=x)
    name = line.mark_text(angle=270, dy=-8, fontSize=10, color="#555").encode(x=x, text="label:N")
    return themed((rule + name + points + labels).properties(width=520, height=280))


# --- one gradient ---------------------------------------------------------------------------------


def one_gradient_table(results: dict[str, Any]) -> str:
    ways = {"loop": "in a compiled loop", "call": "a single call"}
    rows = []
    for size in results["sizes"]:
        images = f"{size['images']:,}"
        limit = ("the matrix products alone, each by the fastest library", "—")
        seconds = size["limit_with_torch_seconds"]
        rows.append((images, *limit, f"{1e3 * seconds:.0f} ms", "100 %"))
        for gradient in size["gradients"]:
            rows.append(
                (
                    images,
                    gradient["name"],
                    ways.get(gradient["way"], gradient["way"]),
                    f"{1e3 * gradient['seconds']:.0f} ms",
                    f"{gradient['percent_of_limit_with_torch']:.0f} %",
                )
            )
    return rows_of("images | by | how | time | of the limit", rows)


def compilation_row(results: dict[str, Any]) -> str:
    known = {row["cache"]: row for row in results["compilation"]}
    cells = [f"{name}: {row['compile_seconds']:.2f} s" for name, row in known.items()]
    return "Compiling that gradient, with JAX's cache on disk: " + "; ".join(cells) + "."


# --- counter terms --------------------------------------------------------------------------------

METHODS = {
    "taylor": ("taylor", BLUE),
    "lie": ("lie (nested autograd in JAX)", ORANGE),
    "torch": ("nested autograd in PyTorch", GREEN),
    "orbit": ("orbit (velocity, gradients only)", "#56B4E9"),
}


def points_of(results: dict[str, Any], method: str) -> list[tuple[int, dict[str, Any]]]:
    """The cases of a method by the last counter term in them: a velocity of order γ has ξ̃_{γ−1}."""
    shift = method == "orbit"
    points = results["series"][method]
    return [(point["order"] - shift, point) for point in points if point["order"] >= shift]


def counter_terms_table(results: dict[str, Any]) -> str:
    series = {method: dict(points_of(results, method)) for method in METHODS}

    def cell(method: str, order: int, key: str) -> str:
        point = series[method].get(order)
        if point is None:
            return "—"
        return point["failed"] if "failed" in point else f"{point[key]:.1f}"

    rows = [
        (
            f"ξ̃_{order}",
            *(cell(method, order, key) for method in METHODS for key in ("time", "memory")),
        )
        for order in range(7)
    ]
    header = " | ".join(
        f"{name}: {key}" for name, _ in METHODS.values() for key in ("time", "memory")
    )
    return rows_of(f"up to | {header}", rows)


def counter_terms_chart(results: dict[str, Any]) -> Any:
    panels = []
    for key in ("time", "memory"):
        rows = [
            {"order": order, "value": point[key], "method": name}
            for method, (name, _) in METHODS.items()
            for order, point in points_of(results, method)
            if key in point
        ]
        colour = altair.Color("method:N", title=None).scale(
            domain=[name for name, _ in METHODS.values()],
            range=[colour for _, colour in METHODS.values()],
        )
        axis = altair.Axis(values=list(range(7)), format="d")
        chart = (
            altair.Chart(altair.Data(values=rows))
            .mark_line(point=True)
            .encode(
                x=altair.X("order:Q", title="highest counter term, α", axis=axis),
                y=altair.Y("value:Q", title=f"{key} over that of a gradient").scale(type="log"),
                color=colour,
            )
        )
        panels.append(chart.properties(width=300, height=240))
    return themed(altair.hconcat(*panels))


# --- growth ---------------------------------------------------------------------------------------

KINDS = {
    "gradient": ("gradient", ORDERS[0]),
    "taylor_1": ("velocity, γ = 1", ORDERS[1]),
    "orbit_2": ("velocity, γ = 2, orbit", ORDERS[2]),
}


def growth_table(results: dict[str, Any]) -> str:
    def exponents(name: str, kinds: dict[str, str]) -> list[tuple[str, ...]]:
        part = results[name]
        upper = part["points"][len(part["points"]) // 2 :]  # which `benchmarks/growth.py` fits
        ends = [upper[i][part["against"]] for i in (0, -1)]
        return [
            (
                f"{part['against']}, {ends[0]:,} to {ends[1]:,}",
                said,
                f"{part['exponents'][key]:.2f}",
            )
            for key, said in kinds.items()
        ]

    seconds = {key: f"seconds of a {name}" for key, (name, _) in KINDS.items()}
    order = {"time": "time, {}", "memory": "memory, {}"}
    rows = [
        *exponents("parameters", seconds),
        *exponents("samples", seconds),
        *exponents("steps", {"seconds": "seconds of descent", "bytes": "memory of descent"}),
    ]
    for method in ("taylor", "orbit"):
        said = {key: text.format(f"`{method}`") for key, text in order.items()}
        rows += exponents(f"order_{method}", said)
    return rows_of("against | of | exponent", rows)


def growth_chart(results: dict[str, Any]) -> Any:
    panels = []
    for name in ("parameters", "samples"):
        rows = [
            {"size": point[name], "seconds": point[key], "kind": said}
            for point in results[name]["points"]
            for key, (said, _) in KINDS.items()
        ]
        colour = altair.Color("kind:N", title=None).scale(
            domain=[said for said, _ in KINDS.values()],
            range=[colour for _, colour in KINDS.values()],
        )
        chart = altair.Chart(altair.Data(values=rows)).mark_line(point=True)
        x, y = altair.X(**power("size", name)), altair.Y(**power("seconds", "seconds"))
        panels.append(chart.encode(x=x, y=y, color=colour).properties(width=300, height=240))
    return themed(altair.hconcat(*panels))


# --- the whole ------------------------------------------------------------------------------------


def reproduction_table() -> str:
    rows = []
    for path in sorted(RESULTS.glob("reproduce_*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        rows.append(reproduction_row(path, run))
    return rows_of("run | claims that hold | gradient evaluations | time", rows)


def reproduction_row(path: Path, run: dict[str, Any]) -> tuple[str, ...]:
    claims = run["claims"]
    holds = sum(claim["holds"] for claim in claims)
    _, data, size = path.stem.split("_")
    return (
        f"`--data {data} --size {size}`",
        f"{holds} of {len(claims)}",
        f"{run['gradient_evaluations']:,}",
        duration(run["seconds"]),
    )


def machine_line() -> str:
    known = found("one_gradient")["machine"]
    versions = ", ".join(
        f"{name} {version}"
        for name, version in known.items()
        if name not in ("processor", "cores", "python")
    )
    return f"{known['processor']}, {known['cores']} cores; Python {known['python']}, {versions}."


if __name__ == "__main__":
    write_table(PAGE, "machine", machine_line())
    write_table(PAGE, "fast_forward", fast_forward_table())
    save(fast_forward_chart(found("fast_forward_digits")["results"]), "cost_fast_forward")
    write_table(PAGE, "work_precision", work_precision_table())
    for data in measured_on("work_precision"):
        results = found(f"work_precision_{data}")["results"]
        save(work_precision_chart(results), f"cost_work_precision_{data}")
    gradient = found("one_gradient")["results"]
    write_table(
        PAGE, "one_gradient", one_gradient_table(gradient) + "\n\n" + compilation_row(gradient)
    )
    terms = found("counter_terms")["results"]
    write_table(PAGE, "counter_terms", counter_terms_table(terms))
    save(counter_terms_chart(terms), "cost_counter_terms")
    growth = found("growth")["results"]
    write_table(PAGE, "growth", growth_table(growth))
    save(growth_chart(growth), "cost_growth")
    write_table(PAGE, "reproduction", reproduction_table())
