"""Findings made up for tests of the report: every feature of a figure, and nasty text."""

import numpy as np

from counterflow.experiments.finding import Claim, Curve, Finding, Panel, Table
from counterflow.report.page import Report

NASTY = "</script><b>&\"'<!-- ${x} $y </style>"


def errors_over_time() -> Finding:
    """Errors of three orders over time, with predictions, as in the paper's figure of errors."""
    time = np.linspace(0, 100, 2001)
    grown = (1 - np.exp(-time / 12)) * (1 + 0.3 * np.sin(time / 7)) * np.exp(-time / 160)
    panels = []
    for order, size in enumerate((3e-2, 4e-4, 6e-6)):
        error = size * grown
        curves = (
            Curve("measured", "descent", time, error),
            Curve("local prediction (paper)", "local", time, size * (1 - np.exp(-time / 8))),
            Curve("from step 1000", "restarted", time[1000:], 1.02 * error[1000:]),
            Curve("propagated prediction", "propagated", time, error * (1 + 0.01 * np.sin(time))),
            Curve("solver error", "solver", time, 1e-9 * (1 + time) + 0 * error),
        )
        panels.append(
            Panel(
                f"order γ = {order}", "time t = kη", "discretization error", curves, y_scale="log"
            )
        )
    claims = (
        Claim(
            "The propagated prediction meets the measured error within 5 % at every order.",
            "largest mismatch 1.0 %, 1.0 %, 1.0 %",
            True,
        ),
        Claim(
            "The local prediction of the paper stays above it once gradients decay.",
            "1.9 times at t = 100",
            True,
        ),
    )
    return Finding(
        "figure2",
        "Predicted against measured error",
        "The distance between gradient descent and each flow grows, then shrinks as training "
        "converges. The propagated prediction (dashed blue) lies on the measured error (broad "
        "grey); the local one (dotted orange) does not see the decay and stays above.",
        claims,
        tuple(panels),
    )


def orders_with_bands() -> Finding:
    """The error of each order over learning rates on two logarithmic axes, bands over seeds."""
    rates = np.geomspace(1e-4, 1e-1, 13)
    curves = []
    for order in range(5):
        error = rates ** (order + 1) * 3
        curves.append(
            Curve(
                f"γ = {order}",
                f"order {order}",
                rates,
                error,
                points=True,
                band=(error / 2.5, error * 2.5),
            )
        )
    return Finding(
        "orders",
        "Accuracy of every order",
        "The slope of each line is the order plus one. Bands span five seeds.",
        (Claim("Slope equals order within 0.1.", "1.00, 2.00, 3.00, 4.00, 5.00", True),),
        (
            Panel(
                "digits, 5 seeds", "learning rate η", "error at t = 10", tuple(curves), "log", "log"
            ),
        ),
    )


def plane() -> Finding:
    """A plane with contours behind, points of descent, a flow and a fixed point."""
    angle = np.linspace(0, 2 * np.pi, 181)
    contours = tuple(
        Curve("level", "background", 2 * r * np.cos(angle), r * np.sin(angle))
        for r in np.linspace(0.15, 1.2, 8)
    )
    k = np.arange(18)
    descent_x, descent_y = 2.0 * 0.93**k, 0.9 * (-0.8) ** k
    time = np.linspace(0, 17, 600)
    flow = (
        Curve("gradient flow (γ = 0)", "order 0", 2 * np.exp(-0.07 * time), 0.9 * np.exp(-time)),
        Curve(
            "equation of motion (γ = 1)",
            "order 1",
            2 * np.exp(-0.0726 * time),
            0.9 * np.exp(-0.223 * time) * np.cos(np.pi * time),
        ),
    )
    curves = (
        *contours,
        *flow,
        Curve("gradient descent", "descent", descent_x, descent_y, points=True),
        Curve("fixed point", "exact", np.array([0.0]), np.array([0.0]), points=True),
    )
    panel = Panel("two parameters", "θ₁", "θ₂", curves, plane=True)
    return Finding(
        "sketch",
        "Descent leaves the flow",
        "Descent (grey marks) jumps across the valley; gradient flow slides down its side.",
        (Claim("Descent oscillates across the valley.", "18 of 18 signs alternate", True),),
        (panel,),
    )


def decay_table() -> Finding:
    """A table with long numbers, a failing claim and curves in variants."""
    steps = np.linspace(0, 5e6, 4000)
    curves = tuple(
        Curve(f"η = {rate:g}", "order 1", steps, np.exp(-steps * decay), variant=variant)
        for variant, (rate, decay) in enumerate(((0.1, 1e-6), (0.01, 6e-7), (0.001, 3e-7)))
    )
    rows = tuple(
        (
            f"{rate:g}",
            f"{weight:g}",
            "0.0010005003335835",
            "0.001000500333583533500",
            "1.2e-16",
            "yes",
        )
        for rate in (0.1, 0.01)
        for weight in (0.01, 0.001, 0.0)
    )
    table = Table(
        ("learning rate η", "weight decay λ", "printed", "measured here", "difference", "agrees"),
        rows,
    )
    return Finding(
        "table1",
        "Table 1: decay rates",
        "Rates printed in the paper beside the measured and the exact ones.",
        (
            Claim("Measured rates equal −log(1 − ηλ)/η.", "largest difference 1.2e-16", True),
            Claim("The rates printed in the paper are the exact ones.", "off by 4e-4", False),
        ),
        (
            Panel("norm of θ⊥", "step k", "‖θ⊥‖ / ‖θ⊥(0)‖", curves),
            Panel(
                "exact",
                "step k",
                "‖θ⊥‖ / ‖θ⊥(0)‖",
                (curves[0], Curve("exact", "exact", steps, np.exp(-steps * 1e-6))),
            ),
        ),
        table,
    )


def spoiled() -> Finding:
    """Values that cannot be drawn: not a number, infinite, not positive on a logarithmic axis."""
    x = np.linspace(0, 10, 50)
    y = np.where((x > 3) & (x < 5), np.nan, x**2 - 4)
    y[-1] = np.inf
    spotty = Curve("with gaps", "order 2", x, y)
    nothing = Curve("nothing", "order 3", x, np.full_like(x, np.nan))
    below = Curve("below zero", "order 0", x, -1 - x)
    empty = Curve("empty", "solver", np.empty(0), np.empty(0))
    panels = (
        Panel("linear", "x", "y", (spotty, nothing, empty)),
        Panel("logarithmic", "x", "y", (spotty, below), y_scale="log"),
        Panel("nothing to draw", "x", "y", (below, nothing), y_scale="log"),
    )
    claims = (Claim(f"Text is {NASTY}", f"{NASTY} & more", True),)
    return Finding(
        "spoiled", f"Nasty {NASTY}", f"A caption of {NASTY}", claims, panels,
        Table(("a <i>", NASTY), (("<td>", NASTY),)),
    )  # fmt: skip


def bare() -> Finding:
    """Claims alone."""
    claims = (Claim("The bound of Corollary 4.2 holds.", "4 of 4 cases", True),)
    return Finding("bare", "Learning-rate bounds", "No figure here.", claims)


def all_findings() -> tuple[Finding, ...]:
    return (errors_over_time(), orders_with_bands(), plane(), decay_table(), spoiled(), bare())


def report(shown: tuple[Finding, ...] | None = None) -> Report:
    """A report of the findings given, or of all."""
    return Report(
        title="Gradient descent, reproduced",
        subtitle="Every figure and the table of the paper, from stored runs",
        findings=all_findings() if shown is None else shown,
        settings=(("data", "digits, 1,797 images"), ("learning rates η", "0.1, 0.01, 0.001")),
        cost=Table(
            ("part", "gradient evaluations", "time"),
            (("gradient flow", "38,412", "61 s"), ("equation of motion", "51,007", "142 s")),
        ),
        cost_note="The paper took five million Euler steps for each flow.",
        citation="@article{key,\n  title = {Descent & flow},\n  url = {https://example.org}\n}",
        summary=("Every claim of the paper is put to the test.",),
        warnings=("The run is not finished: 12 of 40 records.",),
    )
