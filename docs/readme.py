"""Computes the table of the README, where it is not yet on file: `make figures`."""

import jax

from counterflow.experiments import accuracy_by_order
from page import DOCS, result_of, rows_of

README = DOCS.parent / "README.md"


def table(result: accuracy_by_order.Result) -> str:
    found = {(row.method, row.order): f"{row.relative_error:.2e}" for row in result.rows}
    names = {0: "0 (gradient flow)", 1: "1 (the paper)"}
    orders = sorted({order for _, order in found})
    rows = [
        (names.get(o, str(o)), *(found.get((m, o), "") for m in ("taylor", "orbit")))
        for o in orders
    ]
    return rows_of("order γ | taylor | orbit", rows)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    settings = accuracy_by_order.AccuracyByOrder()
    written = table(result_of("accuracy_by_order", accuracy_by_order, settings))
    said = "is" if written.replace("|  |", "| |") in README.read_text() else "IS NOT"
    print(f"the table of the README {said} this:\n{written}")


if __name__ == "__main__":
    main()
