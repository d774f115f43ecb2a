"""Brings what the fault suite found into its page: `make faults` measures and calls this."""

import json
from typing import Any

from page import DOCS, RESULTS, rows_of, write_table

PAGE = DOCS / "faults.md"
FOUND = RESULTS / "faults.json"


def found() -> dict[str, Any]:
    """What the fault suite found."""
    return json.loads(FOUND.read_text(encoding="utf-8"))


def machine_line(stored: dict[str, Any]) -> str:
    where = stored["machine"]
    versions = [f"{name} {where[name]}" for name in ("counterflow", "jax", "jaxlib", "sqlite")]
    dates = sorted({row["date"] for row in stored["rows"].values()})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    processors = {row.get("processor", where["processor"]): None for row in stored["rows"].values()}
    return (
        f"{' and '.join(processors)}, {where['cores']} cores, {where['system']}; "
        f"Python {where['python']}, {', '.join(versions)}; {when}. "
        f"{kills(stored)} processes were killed."
    )


def kills(stored: dict[str, Any]) -> int:
    """How many processes were killed."""
    return sum(row["happened"].get("killed", 0) for row in stored["rows"].values())


def faults_table(stored: dict[str, Any]) -> str:
    rows = [
        (
            row["fault"],
            row["where"],
            f"{row['trials']:,}",
            "; ".join(f"{count:,} × {what}" for what, count in row["happened"].items() if count),
            f"{row['committed']:,}",
            *(_zero(row[name]) for name in ("lost", "wrong", "undetected")),
        )
        for row in stored["rows"].values()
    ]
    header = "fault | where | trials | what happened | committed before | lost | wrong | undetected"
    return rows_of(header, rows).replace("--:", ":--")


def _zero(count: int) -> str:
    return f"**{count:,}**" if count else "0"


def main() -> None:
    stored = found()
    write_table(PAGE, "machine", machine_line(stored))
    write_table(PAGE, "faults", faults_table(stored))


if __name__ == "__main__":
    main()
