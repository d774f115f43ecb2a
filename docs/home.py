"""Makes the picture of the home page: `make figures`."""

import altair
import jax
import numpy as np

from counterflow.experiments.paper import figure1
from counterflow.experiments.plane import paths, read_paths
from counterflow.problem.problem import Problem
from counterflow.report.style import ROLES, themed
from page import save

ORDERS = (0, 1, 4)
NAMES = (
    "gradient descent, step by step",
    "gradient flow",
    "equation of motion, one counter term",
    "four counter terms",
)
COLOURS = ("#1B1F24", *(ROLES[f"order {order}"].colour for order in (0, 1, 2)))


def picture() -> altair.TopLevelMixin:
    """Descent as points, gradient flow and the equation of motion as lines, over level sets."""
    problem = Problem(figure1.loss)
    found = read_paths(paths(problem, figure1.START, figure1.LEARNING_RATE, figure1.STEPS, ORDERS))
    x, y = (
        altair.X("x:Q", title="θ₁", scale=altair.Scale(domain=[-1.4, 1.4])),
        altair.Y("y:Q", title="θ₂", scale=altair.Scale(domain=[-0.35, 1.1])),
    )

    def rows(points: np.ndarray, name: str) -> list[dict]:
        return [
            {"x": float(a), "y": float(b), "i": i, "curve": name} for i, (a, b) in enumerate(points)
        ]

    levels = []
    for value in (-0.2, -0.1, 0.0, 0.2, 0.6, 1.2, 2.0):
        for line in figure1.level_set(value):
            # A line that leaves the picture comes back as another one.
            outside = np.isnan(line[0])
            for piece in np.split(line.T, np.flatnonzero(np.diff(outside)) + 1):
                if not np.isnan(piece).any():
                    levels += rows(piece, f"line {len(levels)}")
    colour = altair.Color(
        "curve:N", title=None, sort=NAMES, scale=altair.Scale(domain=NAMES, range=COLOURS)
    )
    background = (
        altair.Chart(altair.Data(values=levels))
        .mark_line(strokeWidth=1, color="#C4C9CF")
        .encode(x=x, y=y, order="i:Q", detail="curve:N")
    )
    flows = [
        row for o, name in zip(ORDERS, NAMES[1:], strict=True) for row in rows(found.flows[o], name)
    ]
    lines = (
        altair.Chart(altair.Data(values=flows))
        .mark_line(strokeWidth=2.5)
        .encode(x=x, y=y, color=colour, order="i:Q")
    )
    points = (
        altair.Chart(altair.Data(values=rows(found.descent, NAMES[0])))
        .mark_circle(size=40, opacity=1)
        .encode(x=x, y=y, color=colour)
    )
    return themed((background + lines + points).properties(width=680, height=352)).configure_legend(
        orient="bottom", columns=2, labelFontSize=13, labelLimit=300, symbolSize=150
    )


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    save(picture(), "home")


if __name__ == "__main__":
    main()
