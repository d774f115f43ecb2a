"""Results survive interruption and never mix with those of another configuration."""

import json

import pytest

from counterflow.runs.results import ResultsFile


def test_results_are_found_again(tmp_path):
    path = tmp_path / "folder" / "results.json"
    ResultsFile(path, {"orders": (1, 2)}).add("first", 1.5)
    assert ResultsFile(path, {"orders": (1, 2)}).results == {"first": 1.5}
    assert json.loads(path.read_text())["configuration"] == {"orders": [1, 2]}


def test_another_configuration_is_set_aside_and_not_mixed_in(tmp_path):
    path = tmp_path / "results.json"
    ResultsFile(path, {"seed": 1}).add("first", 1.5)
    assert ResultsFile(path, {"seed": 2}).results == {}
    ResultsFile(path, {"seed": 2}).add("first", 2.5)
    assert ResultsFile(path, {"seed": 3}).results == {}
    kept = [json.loads(aside.read_text())["results"] for aside in tmp_path.glob("results.*.json")]
    assert sorted(results["first"] for results in kept) == [1.5, 2.5]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"results": {}}', "null"])
def test_a_damaged_file_is_set_aside(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    assert ResultsFile(path, {"seed": 1}).results == {}
    assert [aside.read_text() for aside in tmp_path.glob("results.*.json")] == [text]


def test_a_half_written_file_is_never_used(tmp_path):
    path = tmp_path / "results.json"
    ResultsFile(path, {"seed": 1}).add("first", 1.5)
    (tmp_path / "results.json.part").write_text('{"results": {"first": 9')
    assert ResultsFile(path, {"seed": 1}).results == {"first": 1.5}
