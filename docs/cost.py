"""Makes the figures and the numbers of the page on cost from what the benchmarks found.

`make bench` measures; this only draws: `make figures`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from cost_charts import (
    KINDS,
    METHODS,
    counter_terms_chart,
    fast_forward_chart,
    growth_chart,
    one_gradient_chart,
    points_of,
    reproduction_chart,
    work_precision_chart,
)
from counterflow.report.cost import duration
from page import DOCS, RESULTS, rows_of, save, write_table

PAGE = DOCS / "cost.md"
BENCHMARKS = DOCS.parent / "benchmarks" / "results"


def found(name: str) -> dict[str, Any]:
    """What a benchmark found."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))


def measured_on(name: str) -> tuple[str, ...]:
    """The data on which a benchmark was run."""
    names = (path.stem.removeprefix(f"{name}_") for path in BENCHMARKS.glob(f"{name}_*.json"))
    return tuple(sorted(names))


# --- solvers --------------------------------------------------------------------------------------


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
                    strictly = measured["products_as_two"][error][f"counterflow{ending}"]
                    ratio, aim = ours / alike[best], TARGETS[error]
                    met = max(ratio, (strictly or 0) / alike[best]) <= aim
                    method = "orbit" if ending or int(order) > 1 else "taylor"
                    rows.append(
                        (
                            images,
                            f"γ = {order}" + (f", `{method}`" if int(order) else ""),
                            f"{float(error):.0e}",
                            f"{ours:,.0f}",
                            f"{alike[best]:,.0f}, {best.removesuffix(ending)}",
                            f"{ratio:.2f}",
                            f"{strictly / alike[best]:.2f}" if strictly else "—",
                            f"{aim:g}: {'met' if met else 'missed'}",
                        )
                    )
    return rows_of(
        "on | flow | relative error | gradients of `cf.solve` | best of the others | ratio | "
        "with products as two | at most",
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


# --- one gradient ---------------------------------------------------------------------------------


def one_gradient_table(results: dict[str, Any]) -> str:
    ways = {"loop": "in a compiled loop", "call": "a single call"}
    rows = []
    for size in results["sizes"]:
        images = f"{size['images']:,}"
        limit, with_torch = size["limit_seconds"], size["limit_with_torch_seconds"]
        for name, seconds in (("JAX, NumPy", limit), ("JAX, NumPy, PyTorch", with_torch)):
            rows.append(
                (
                    images,
                    f"the products alone, best of {name}",
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


def blocks_row(results: dict[str, Any]) -> str:
    largest = max(size["images"] for size in results["sizes"])
    return (
        "Of the pixels of {images:,} images {ink:.0%} have ink; blocks leave {left:.0%}, after "
        "{seconds:.0f} seconds of sorting."
    ).format(images=largest, **results["blocks"])


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


# --- velocity and memory ----------------------------------------------------------------------


def velocity_table(results: dict[str, Any]) -> str:
    one = results["seconds"]["a gradient"]
    rows = [
        (name, f"{1e3 * seconds:.0f} ms", f"{seconds / one:.2f}")
        for name, seconds in results["seconds"].items()
    ]
    table = rows_of(f"velocity of γ = 1, {results['images']:,} images | time | gradients", rows)
    width = results["products"]["two"] / results["products"]["one"]
    return (
        f"{table}\n\nThe products with images of two runs at once, as one of twice the width, take "
        f"{width:.2f} times as long as those of one."
    )


def memory_table(results: dict[str, Any]) -> str:
    said = {
        "counterflow": "`counterflow reproduce`: descent, flows of γ = 0 and 1, predictions",
        "PyTorch": "PyTorch: one gradient",
    }
    rows = [(said[row["name"]], f"{row['bytes'] / 2**30:.2f} GiB") for row in results["rows"]]
    return rows_of(f"{results['images']:,} images in double precision | high-water mark", rows)


# --- counter terms --------------------------------------------------------------------------------


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


# --- growth ---------------------------------------------------------------------------------------


def growth_table(results: dict[str, Any], terms: dict[str, Any]) -> str:
    def exponents(name: str, kinds: dict[str, str]) -> list[tuple[str, ...]]:
        part = results[name]
        upper = part["points"][len(part["points"]) // 2 :]  # which `benchmarks/growth.py` fits
        ends = [upper[i][part["against"]] for i in (0, -1)]
        return [
            (
                f"{part['against']}, {ends[0]:,} to {ends[1]:,}",
                said,
                f"{part['exponents'][key]:z.2f}",
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
            f"{np.polyfit(orders, np.log([point[key] for _, point in upper]), 1)[0]:z.2f}",
        )
        for key in ("time", "memory")
    ]


# --- the whole ------------------------------------------------------------------------------------


def reproduced(name: str) -> dict[str, Any]:
    """The summary of a run, as the page on reproduction has it."""
    return json.loads((RESULTS / f"reproduce_{name}.json").read_text(encoding="utf-8"))


def reproduction_table() -> str:
    rows = [
        reproduction_row(path, reproduced(path.stem.removeprefix("reproduce_")))
        for path in sorted(RESULTS.glob("reproduce_*.json"))
    ]
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


#: The results on this page, and what they are called on it.
MEASURED = {
    "fast_forward_digits": "fast-forward",
    "fast_forward_mnist": "fast-forward on MNIST",
    "work_precision_digits": "solvers",
    "one_gradient": "one gradient",
    "velocity": "one velocity",
    "memory": "memory",
    "counter_terms": "counter terms",
    "growth": "growth",
}


def machine_line() -> str:
    """The machines and versions of the results, which are named where the machines differ."""
    machines: dict[str, list[str]] = {}
    versions: dict[str, str] = {}
    for name, said in MEASURED.items():
        known = dict(found(name)["machine"])
        machine = f"{known.pop('processor')}, {known.pop('cores')} cores"
        machines.setdefault(machine, []).append(said)
        versions |= known
    where = list(machines)
    if len(machines) > 1:
        where = [f"{machine} ({', '.join(names)})" for machine, names in machines.items()]
    return f"{'; '.join(where)}. {', '.join(f'{n} {v}' for n, v in versions.items())}."


def tables() -> dict[str, str]:
    """Every table of the page by its marker."""
    gradient, terms = (found(name)["results"] for name in ("one_gradient", "counter_terms"))
    return {
        "machine": machine_line(),
        "fast_forward": fast_forward_table(),
        "work_precision": work_precision_table(),
        "one_gradient": "\n\n".join(
            part(gradient) for part in (one_gradient_table, limit_row, blocks_row, compilation_row)
        ),
        "velocity": velocity_table(found("velocity")["results"]),
        "memory": memory_table(found("memory")["results"]),
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
    save(one_gradient_chart(found("one_gradient")["results"]), "cost_one_gradient")
    save(counter_terms_chart(found("counter_terms")["results"]), "cost_counter_terms")
    terms = found("counter_terms")["results"]
    save(growth_chart(found("growth")["results"], terms), "cost_growth")
    save(reproduction_chart(reproduced("mnist_standard")), "cost_reproduction")
