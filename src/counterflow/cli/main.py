"""`counterflow`: the command line, from the same frozen dataclasses that are stored."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import jax
import tyro
from rich.console import Console
from rich.table import Table

from ..experiments import accuracy_by_order
from ..experiments.accuracy_by_order import AccuracyByOrder
from ..solvers.trajectory import SolveError

DEFAULT = AccuracyByOrder()


def reproduce(
    settings: tyro.conf.OmitArgPrefixes[AccuracyByOrder] = DEFAULT,
    folder: Path = Path("runs"),
    quiet: bool = False,
) -> int:
    """Show how close each order of the equation of motion comes to gradient descent.

    Trains the paper's network on scikit-learn's digits by gradient descent, predicts the outcome by
    the equation of motion at every order, prints a table and saves it, in some minutes. Every row
    is saved at once: the same command goes on where an earlier one was stopped.

    Args:
        settings: The experiment.
        folder: Where results are kept.
        quiet: Print only the final table.
    """
    try:
        settings.require_valid()
    except (TypeError, ValueError) as error:
        print(f"counterflow reproduce: {error}", file=sys.stderr)
        return 2
    jax.config.update("jax_enable_x64", True)
    console = Console()

    def progress(name: str, done: int, total: int) -> None:
        if not quiet and done < total:
            console.print(f"[{done + 1}/{total}] {name}", markup=False)

    try:
        result = accuracy_by_order.run(settings, folder, progress)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here")
        return 130
    except SolveError as error:
        print(f"a run could not be completed: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot keep results in {folder}: {error}", file=sys.stderr)
        return 1
    console.print(_table(result))
    for claim, holds in result.claims.items():
        console.print(f"{'holds' if holds else 'FAILS'}: {claim}", markup=False)
    console.print(f"saved in {folder / 'accuracy_by_order.json'}", markup=False)
    return 0 if result.verdict else 1


def print_version() -> int:
    """Print the version."""
    print(version("counterflow"))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of a command: 0 if all is well and every claim holds, 1 otherwise."""
    return tyro.extras.subcommand_cli_from_dict(
        {"reproduce": reproduce, "version": print_version},
        prog="counterflow",
        description="Predict gradient descent by differential equations.",
        args=arguments,
    )


def _table(result: accuracy_by_order.Result) -> Table:
    settings = result.settings
    table = Table(
        title=(
            f"Relative error after {settings.steps} steps at η = {settings.learning_rate:g}\n"
            f"(solver: {result.solver_error:.1e})"
        )
    )
    table.add_column("order", justify="right")
    methods = ("taylor", "orbit")
    for method in methods:
        table.add_column(method, justify="right")
        table.add_column("gradients", justify="right", style="dim")
    rows = {(row.method, row.order): row for row in result.rows}
    for order in sorted({order for _, order in rows}):
        cells = []
        for method in methods:
            row = rows.get((method, order))
            cells += (
                ["", ""]
                if row is None
                else [f"{row.relative_error:.2e}", f"{row.gradient_evaluations:,}"]
            )
        table.add_row(str(order), *cells)
    return table
