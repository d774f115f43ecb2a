"""Table 1: the decay rates of ‖θ_⊥‖, measured, predicted, printed and exact."""

import numpy as np

from ...runs.run import Run, TrainingSeries
from ..decay_rates import Row, row_claims
from ..experiment import Experiment
from ..finding import Claim, Finding, Table
from ..trainings import all_pairs, series


def measured(known: TrainingSeries) -> Row:
    """The decay rate in one training, by a least-squares fit as in the paper."""
    size = known("descent", "perpendicular")
    slope, _ = np.polyfit(known.steps, np.log(size / size[0]), 1)
    settings = known.training
    return Row(settings.learning_rate, settings.weight_decay, -float(slope))


def _finding(run: Run) -> Finding:
    rows = [measured(series(run, one)) for one in all_pairs(run.configuration)]
    off = max(abs(row.measured / row.exact - 1) for row in rows)

    def cells(row: Row) -> tuple[str, ...]:
        printed = "" if row.printed is None else f"{row.printed:.12e}"
        return (
            f"{row.learning_rate:g}, {row.weight_decay:g}",
            f"{row.predicted(0):.10e}",
            f"{row.predicted(1):.10e}",
            f"{row.predicted(2):.10e}",
            f"{row.measured:.12e}",
            f"{row.exact:.12e}",
            f"{abs(row.measured / row.exact - 1):.0e}",
            printed,
            f"{row.single_precision:.12e}",
        )

    orders = [max(abs(row.predicted(order) / row.exact - 1) for row in rows) for order in range(4)]
    printed = [abs(row.printed / row.single_precision - 1) for row in rows if row.printed]
    figures = (
        f"off by at most {off:.0e}",
        f"γ = 0, 1, 2, 3 off by at most {', '.join(f'{order:.0e}' for order in orders)}",
        f"off by at most {max(printed, default=0):.0e}",
    )
    claims = list(zip(row_claims(tuple(rows)).items(), figures, strict=True))
    if not printed:
        claims.pop()  # of pairs that the paper does not have, it says nothing
    return Finding(
        "table1",
        "Table 1: decay rates of ‖θ_⊥‖",
        "The rate per step at which ‖θ_⊥‖ decays: by gradient flow, by the equation of motion of "
        "the first and second order, by descent as measured (a least-squares fit, as in the "
        "paper), exactly, and as the paper prints it. The paper's experiment is what descent does "
        "with a learning rate in single precision.",
        tuple(Claim(text, figure, holds) for (text, holds), figure in claims),
        table=Table(
            (
                "η, λ",
                "gradient flow",
                "EoM (γ = 1)",
                "γ = 2",
                "descent, measured",
                "exact, −log(1 − ηλ)",
                "off by",
                "the paper's experiment",
                "−log(1 − float32(η)λ)",
            ),
            tuple(map(cells, rows)),
        ),
    )


EXPERIMENT = Experiment("table1", _finding, all_pairs)
