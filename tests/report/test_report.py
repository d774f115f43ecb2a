"""What the report says of how a run came about."""

from pathlib import Path

import pytest

from counterflow.report.report import report, warnings_of
from counterflow.runs.configuration import Configuration
from counterflow.runs.run import Run


def run_of(*sources, command="counterflow reproduce"):
    """A run without trainings that was worked on with these sources, one after the other."""
    sittings = tuple(
        {
            "started": f"2026-01-0{day}T00:00:00+00:00",
            "command": f"{command} {day % 2}",
            "source": source,
            "fingerprint": {"jax": "0.10.2"},
        }
        for day, source in enumerate(sources, start=1)
    )
    return Run(Path("here"), Configuration(), {}, {}, {}, sittings)


def test_every_source_and_command_is_told_once():
    told = dict(report(run_of("aaa", "bbb-dirty", "aaa", ""), ()).settings)
    assert told["source"] == "aaa; bbb-dirty (with changes not committed); not a git repository"
    assert told["command"] == "counterflow reproduce 1; counterflow reproduce 0"


def test_a_run_continued_with_other_code_is_noticed():
    (warning,) = warnings_of(run_of("aaa", "aaa", "bbb-dirty", "bbb-dirty", "ccc"))
    assert warning == (
        "the run was worked on with different code: aaa at first, then bbb-dirty (with changes not "
        "committed) from 2026-01-03T00:00:00+00:00 on, ccc from 2026-01-05T00:00:00+00:00 on; what "
        "was computed before was not computed again"
    )
    assert warning in report(run_of("aaa", "aaa", "bbb-dirty", "bbb-dirty", "ccc"), ()).warnings


@pytest.mark.parametrize("sources", [("aaa",), ("aaa", "aaa"), ("", "")])
def test_a_run_made_by_one_code_needs_no_word_on_it(sources):
    assert warnings_of(run_of(*sources)) == []
