"""Makes the figures and the numbers of the page on cost from what the benchmarks found.

`make bench` measures; this only draws: `make figures`.
"""

import json
from pathlib import Path
from typing import Any

import altair
import numpy as np

from counterflow.report.cost import duration
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
            if point["error"] < 1 and name in SOLVERS
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
        panels.append((lines + points).properties(width=290, height=400, title=name))
    return themed(altair.hconcat(*panels))


# The gradients over those of the best of the others, by the relative error, that were aimed at.
TARGETS = {"1e-04": 0.5, "1e-06": 0.5, "1e-08": 1.0}


def work_precision_table() -> str:
    rows = []
    for data in measured_on("work_precision"):
        results = found(f"work_precision_{data}")["results"]
        images = f"{results['samples']:,} images of {'MNIST' if data == 'mnist' else 'digits'}"
        for order, measured in results["orders"].items():
            for error, by_solver in measured["gradients_at"].items():
                for ending in ("", ", orbit"):
                    # Like is compared with like: a velocity by `orbit` costs fewer gradients.
                    alike = {
                        name: value
                        for name, value in by_solver.items()
                        if value and name.endswith(", orbit") == bool(ending)
                    }
                    ours = alike.pop(f"counterflow{ending}", None)
                    if ours is None:
                        continue
                    best = min(alike, key=lambda name: alike[name])
                    ratio, aim = ours / alike[best], TARGETS[error]
                    method = "orbit" if ending or int(order) > 1 else "taylor"
                    rows.append(
                        (
                            images,
                            f"γ = {order}" + (f", `{method}`" if int(order) else ""),
                            f"{float(error):.0e}",
                            f"{ours:,.0f}",
                            f"{alike[best]:,.0f}, {best.removesuffix(ending)}",
                            f"{ratio:.2f}",
                            f"{aim:g}: {'met' if ratio <= aim else 'missed'}",
                        )
                    )
    return rows_of(
        "on | flow | relative error | gradients of `cf.solve` | best of the others | ratio | "
        "at most",
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
        limit, with_torch = size["limit_seconds"], size["limit_with_torch_seconds"]
        for name, seconds in (("JAX and NumPy", limit), ("JAX, NumPy and PyTorch", with_torch)):
            rows.append(
                (
                    images,
                    f"the matrix products alone, each by the fastest of {name}",
                    "—",
                    f"{1e3 * seconds:.0f} ms",
                    f"{100 * limit / seconds:.0f} %",
                    f"{100 * with_torch / seconds:.0f} %",
                )
            )
        for gradient in size["gradients"]:
            rows.append(
                (
                    images,
                    gradient["name"],
                    ways.get(gradient["way"], gradient["way"]),
                    f"{1e3 * gradient['seconds']:.0f} ms",
                    f"{gradient['percent_of_limit']:.0f} %",
                    f"{gradient['percent_of_limit_with_torch']:.0f} %",
                )
            )
    return rows_of(
        "images | by | how | time | of the limit | of that with PyTorch's products", rows
    )


# Percent of the limit that one gradient of all images was to reach.
AIMED_AT = 85


def limit_row(results: dict[str, Any]) -> str:
    largest = max(results["sizes"], key=lambda size: size["images"])
    ours = next(
        row for row in largest["gradients"] if (row["name"], row["way"]) == ("counterflow", "loop")
    )
    reached = {
        "with the products of JAX and NumPy": ours["percent_of_limit"],
        "with PyTorch's too": ours["percent_of_limit_with_torch"],
    }
    said = [
        f"{which} it is at {percent:.0f} %, {'met' if percent >= AIMED_AT else 'missed'}"
        for which, percent in reached.items()
    ]
    return (
        f"What was aimed at is {AIMED_AT} % of the limit for {largest['images']:,} images in a "
        f"loop: {'; '.join(said)}."
    )


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
        for order in range(1 + max(order for points in series.values() for order in points))
    ]
    header = " | ".join(
        f"{name}: {key}" for name, _ in METHODS.values() for key in ("time", "memory")
    )
    budget = f"Each case was given {results['budget_seconds']:g} seconds, compilation included."
    return rows_of(f"up to | {header}", rows) + "\n\n" + budget


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


def growth_table(results: dict[str, Any], terms: dict[str, Any]) -> str:
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
    rows = [
        *exponents("parameters", seconds),
        *exponents("samples", seconds),
        *exponents("steps", {"seconds": "seconds of descent", "bytes": "memory of descent"}),
        *(row for method in ("taylor", "orbit") for row in order_rows(terms, method)),
    ]
    return rows_of("against | of | exponent", rows)


def order_rows(terms: dict[str, Any], method: str) -> list[tuple[str, ...]]:
    """The exponents against the order of a flow, whose last counter term has one less."""
    points = [(1 + last, point) for last, point in points_of(terms, method) if "time" in point]
    upper = points[len(points) // 2 :]
    orders = np.log([order for order, _ in upper])
    return [
        (
            f"order, {upper[0][0]} to {upper[-1][0]}",
            f"{key}, `{method}`",
            f"{np.polyfit(orders, np.log([point[key] for _, point in upper]), 1)[0] + 0:.2f}",
        )
        for key in ("time", "memory")
    ]


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
        duration(float(run["seconds"])),
    )


def machine_line() -> str:
    known = found("one_gradient")["machine"]
    versions = ", ".join(
        f"{name} {version}"
        for name, version in known.items()
        if name not in ("processor", "cores", "python")
    )
    return f"{known['processor']}, {known['cores']} cores; Python {known['python']}, {versions}."


def tables() -> dict[str, str]:
    """Every table of the page by its marker."""
    gradient, terms = (found(name)["results"] for name in ("one_gradient", "counter_terms"))
    return {
        "machine": machine_line(),
        "fast_forward": fast_forward_table(),
        "work_precision": work_precision_table(),
        "one_gradient": "\n\n".join(
            part(gradient) for part in (one_gradient_table, limit_row, compilation_row)
        ),
        "counter_terms": counter_terms_table(terms),
        "growth": growth_table(found("growth")["results"], terms),
        "reproduction": reproduction_table(),
    }


if __name__ == "__main__":
    for name, table in tables().items():
        write_table(PAGE, name, table)
    save(fast_forward_chart(found("fast_forward_digits")["results"]), "cost_fast_forward")
    for data in measured_on("work_precision"):
        results = found(f"work_precision_{data}")["results"]
        save(work_precision_chart(results), f"cost_work_precision_{data}")
    save(counter_terms_chart(found("counter_terms")["results"]), "cost_counter_terms")
    save(growth_chart(found("growth")["results"]), "cost_growth")
