"""The charts of the page on cost, from what the benchmarks measured."""

from typing import Any

import altair

from counterflow.report.chart import POWER
from counterflow.report.cost import duration
from counterflow.report.style import BLUE, GREEN, GREY, ORANGE, ORDERS, themed

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


def power(field: str, title: str, **scale: Any) -> Any:
    """A logarithmic axis that is labelled by powers of ten."""
    axis = altair.Axis(labelExpr=POWER, labelSeparation=8, values=[10.0**k for k in range(-12, 9)])
    return {"field": field, "type": "quantitative", "title": title, "axis": axis} | {
        "scale": altair.Scale(type="log", **scale)
    }


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


def one_gradient_chart(results: dict[str, Any]) -> Any:
    """The time of a gradient of all images by each way, and that of its products."""
    largest = max(results["sizes"], key=lambda size: size["images"])
    ways = {"loop": "in a loop", "call": "a single call"}
    rows = [
        {
            "by": f"{row['name']}, {ways[row['way']]}",
            "milliseconds": 1e3 * row["seconds"],
            "whose": "counterflow" if row["name"] == "counterflow" else "others",
        }
        for row in largest["gradients"]
    ]
    limit = 1e3 * largest["limit_with_torch_seconds"]
    rows.append({"by": "its matrix products alone", "milliseconds": limit, "whose": "limit"})
    rows.sort(key=lambda row: row["milliseconds"])
    colour = altair.Scale(domain=["counterflow", "others", "limit"], range=[BLUE, GREY, ORANGE])
    bars = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("milliseconds:Q", title=f"milliseconds, {largest['images']:,} images of MNIST"),
        y=altair.Y(
            "by:N", title=None, sort=[row["by"] for row in rows], axis=altair.Axis(labelLimit=300)
        ),
    )
    marks = bars.mark_bar().encode(color=altair.Color("whose:N", scale=colour, legend=None))
    numbers = bars.mark_text(align="left", dx=4).encode(
        text=altair.Text("milliseconds:Q", format=".0f")
    )
    return themed((marks + numbers).properties(width=420, height=220))


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


KINDS = {
    "gradient": ("gradient", ORDERS[0]),
    "taylor_1": ("velocity, γ = 1", ORDERS[1]),
    "orbit_2": ("velocity, γ = 2, orbit", ORDERS[2]),
}


BY_ORDER = {
    "taylor": ("counter terms, taylor", "#CC79A7"),
    "orbit": ("velocity of any order, orbit", "#56B4E9"),
}


def growth_chart(results: dict[str, Any], terms: dict[str, Any]) -> Any:
    """Seconds against parameters, samples, steps of descent and the order of a flow."""
    kinds = KINDS | {"seconds": ("descent", GREY)} | BY_ORDER
    colour = altair.Color("kind:N", title=None).scale(
        domain=[said for said, _ in kinds.values()],
        range=[colour for _, colour in kinds.values()],
    )
    panels = []
    for name in ("parameters", "samples", "steps"):
        rows = [
            {"size": point[name], "seconds": point[key], "kind": said}
            for point in results[name]["points"]
            for key, (said, _) in kinds.items()
            if key in point
        ]
        chart = altair.Chart(altair.Data(values=rows)).mark_line(point=True)
        x = altair.X(**power("size", name, nice=False))
        y = altair.Y(**power("seconds", "seconds"))
        panels.append(chart.encode(x=x, y=y, color=colour).properties(width=200, height=240))
    rows = [
        {"order": 1 + last, "seconds": point["seconds"], "kind": said}
        for method, (said, _) in BY_ORDER.items()
        for last, point in points_of(terms, method)
        if "seconds" in point
    ]
    x = altair.X(
        "order:Q", title="order γ", axis=altair.Axis(values=[1, 2, 3, 4, 5, 6], format="d")
    )
    chart = altair.Chart(altair.Data(values=rows)).mark_line(point=True)
    by_order = chart.encode(
        x=x.scale(type="log", nice=False), y=altair.Y(**power("seconds", "seconds")), color=colour
    )
    panels.append(by_order.properties(width=200, height=240))
    return themed(altair.hconcat(*panels))


#: What gradients of a reproduction are spent on, by the start of the name of a part.
WORK = {
    "descent": ("descent", GREY),
    "flow 0": ("gradient flow", ORDERS[0]),
    "flow": ("equations of motion", ORDERS[1]),
    "coarse flow": ("the same flows once more, for the solver's own error", "#A9CDE3"),
    "prediction": ("predictions of errors", ORDERS[2]),
    "restarted prediction": ("predictions of errors", ORDERS[2]),
}


def reproduction_chart(stored: dict[str, Any]) -> Any:
    """The gradients of every training of a run by what they are spent on, and its time."""
    names = dict.fromkeys(said for said, _ in WORK.values())
    rows, sums = [], []
    for training, cost in stored["trainings"].items():
        label = training.partition(", seed")[0]
        spent = dict.fromkeys(names, 0)
        for part, count in cost["gradient_evaluations"].items():
            start = max((start for start in WORK if part.startswith(start)), key=len)
            spent[WORK[start][0]] += count or 0
        rows += [
            {"training": label, "work": name, "place": place, "gradients": count}
            for place, (name, count) in enumerate(spent.items())
        ]
        took = duration(cost["seconds"])
        sums.append({"training": label, "gradients": sum(spent.values()), "took": took})
    y = altair.Y("training:N", title=None, sort=[row["training"] for row in sums])
    colours = list(dict.fromkeys(WORK.values()))
    bars = (
        altair.Chart(altair.Data(values=rows))
        .mark_bar()
        .encode(
            x=altair.X("gradients:Q", title="gradient evaluations"),
            y=y,
            color=altair.Color("work:N", title=None).scale(
                domain=list(names), range=[colour for _, colour in colours]
            ),
            order="place:O",
        )
    )
    times = (
        altair.Chart(altair.Data(values=sums))
        .mark_text(align="left", dx=5)
        .encode(x="gradients:Q", y=y, text="took:N")
    )
    return themed((bars + times).properties(width=560, height=200))
