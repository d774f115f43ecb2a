"""Brings what the benchmarks of many devices and processes found into their page."""

from typing import Any

from cost import found
from page import DOCS, rows_of, write_table

PAGE = DOCS / "clusters.md"
QUANTITIES = {
    "loss": "loss",
    "error": "error of a flow",
    "propagated_prediction": "predicted error",
    "squared_norm": "charge",
}


def processes_table(results: dict[str, Any]) -> str:
    """How far apart the series of several processes are from those of one."""
    rows = [
        (
            str(run["processes"]),
            f"{run['seconds']:.0f} s",
            *(f"{run['apart'][name]:.0e}" if run["processes"] > 1 else "" for name in QUANTITIES),
            worst(run) if run["processes"] > 1 else "",
        )
        for run in results["runs"]
    ]
    header = ["processes", "took", *QUANTITIES.values(), "at most, of all series"]
    settings = " ".join(results["settings"])
    table = rows_of(" | ".join(header), rows)
    return (
        f"{table}\n\nof `counterflow reproduce figure2 table1 {settings}`; losses relative to "
        "themselves, charges to the largest of their series, errors to the norm of the params that "
        "they are differences of. All processes share the two cores of one machine, and each "
        "compiles for itself: what they took shows what that costs, not what more machines gain."
    )


def worst(run: dict[str, Any]) -> str:
    return f"{max(run['apart'].values()):.0e}"


def scaling_table(results: dict[str, Any]) -> str:
    """Time and bytes by number of devices."""
    one = results["measured"][0]["seconds"]["gradient"]
    rows = [
        (
            str(case["devices"]),
            f"{case['seconds']['gradient'] * 1e3:.0f} ms",
            f"{case['seconds']['gradient'] / one:.2f}",
            f"{case['moved']['gradient']['bytes']:,}",
            str(case["moved"]["gradient"]["collectives"]),
            f"{case['moved']['velocity of order 1']['bytes']:,}",
        )
        for case in results["measured"]
    ]
    header = (
        "devices | time of a gradient | of that on one | bytes summed | collectives | "
        "bytes summed, velocity of order 1"
    )
    return (
        f"{rows_of(header, rows)}\n\nThe paper's network (89,400 parameters, 715,200 bytes) on "
        f"{results['samples']:,} images; gradients agree to {results['apart']:.0e}."
    )


def beyond_table(results: dict[str, Any]) -> str:
    """What is computed for machines that are not here."""
    rows = [
        (
            case["case"],
            f"{case['devices']} on {case['hosts']} host{'s' * (case['hosts'] > 1)}",
            size(case["through"]),
            seconds(case["computing"]),
            seconds(case["communication"]),
            f"{case['efficiency']:.0%}",
            size(case["kept"]),
            case["limit"],
        )
        for case in results["computed"]
    ]
    assumed = results["assumed"]
    header = (
        "problem | devices | bytes through a link | computing | communication | of ideal | "
        "kept per device | limited by"
    )
    return (
        f"{rows_of(header, rows)}\n\nAssumed: {assumed['flops'] / 1e12:.0f} TFLOP/s in double "
        f"precision and {assumed['memory'] / 1e9:.0f} GB per device; links of "
        f"{assumed['inside']['bandwidth'] / 1e9:.0f} GB/s inside a host of eight, "
        f"{assumed['between']['bandwidth'] / 1e9:.0f} GB/s per device between hosts; a collective "
        f"takes at least {assumed['inside']['latency'] * 1e6:.0f} µs inside a host, "
        f"{assumed['between']['latency'] * 1e6:.0f} µs between them. Kept are "
        f"{results['copies']:.0f} vectors like the params, for orders 0 and 1 with predictions; a "
        "device's share of the data and of what a gradient remembers of it (activations) comes on "
        "top, and is left out."
    )


def size(value: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} B"


def seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{value * 1e3:.2g} ms"


def main() -> None:
    scaling = found("scaling")["results"]
    write_table(PAGE, "processes", processes_table(found("processes")["results"]))
    write_table(PAGE, "scaling", scaling_table(scaling))
    write_table(PAGE, "beyond", beyond_table(scaling))


if __name__ == "__main__":
    main()
