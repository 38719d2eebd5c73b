"""Files of pytest-benchmark become envelopes. `foreign.json` and `suite.json` were written by version 5.3.1."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from platforms.job import Metric, Outcome
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from reporting.imports.merge import Count, Known, missing
from reporting.imports.pytest_benchmark import files_in, read_file

RECORDINGS = Path(__file__).parent / "recordings" / "pytest_benchmark"
FOREIGN = RECORDINGS / "foreign.json"
SUITE = RECORDINGS / "suite.json"
IMPORTED_S = 1_800_000_000.0  # later than all recordings


def read(path: Path) -> list[Envelope]:
    """The envelopes of a file without problems."""
    problems: list[str] = []
    found = read_file(path, "centre", IMPORTED_S, problems)
    assert problems == []
    return found


def test_a_foreign_benchmark_is_judged_by_its_mean() -> None:
    by_test = {each.key.test: each for each in read(FOREIGN)}
    assert set(by_test) == {"test_sort.py::test_sort[100]", "test_sort.py::test_sort[1000]", "test_sort.py::test_join"}
    join = by_test["test_sort.py::test_join"]
    assert join.metrics == {"mean": Metric(2.5932152951953876e-05, "s", "lower")}
    assert join.eligible
    assert join.outcome is Outcome.PASSED
    assert join.source == "pytest-benchmark"
    assert join.key.site == "centre"
    assert join.key.run_id == "pytest-benchmark-20261122T221522.769637Z"
    assert join.time_s == 1795385722.769637
    assert join.platform == "login1"
    assert join.fields == {"source": "pytest-benchmark", "device": "AMD EPYC"}
    assert join.provenance["python"] == "3.11.7"
    assert join.provenance["nodes"] == "login1"


def test_tests_of_this_suite_are_left_out_since_the_history_has_them() -> None:
    assert read(SUITE) == []


def test_a_file_of_an_older_version_is_in_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no zone, and a machine's own zone must not be taken for it."""
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    content = json.loads(FOREIGN.read_text())
    content["datetime"] = content["datetime"].removesuffix("+00:00")
    path = tmp_path / "0001_old.json"
    path.write_text(json.dumps(content))
    try:
        assert {each.time_s for each in read(path)} == {each.time_s for each in read(FOREIGN)}
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_benchmark_without_a_time_is_skipped_alone(tmp_path: Path) -> None:
    content = json.loads(FOREIGN.read_text())
    content["benchmarks"][0]["stats"]["rounds"] = 0
    content["benchmarks"][0]["stats"]["min"] = 0.0
    path = tmp_path / "0001_zero.json"
    path.write_text(json.dumps(content))
    problems: list[str] = []
    found = read_file(path, "centre", IMPORTED_S, problems)
    assert len(found) + len(problems) == 3
    assert len(found) >= 2


def test_the_benchmarks_of_a_file_are_one_run() -> None:
    assert len({each.key.run_id for each in read(FOREIGN)}) == 1


def test_one_session_saved_twice_is_one_run(tmp_path: Path) -> None:
    (tmp_path / "Linux").mkdir()
    shutil.copy(FOREIGN, tmp_path / "Linux" / "0001.json")
    shutil.copy(FOREIGN, tmp_path / "out.json")
    found = [each for path in files_in(tmp_path, []) for each in read(path)]
    assert len(found) == 6
    assert len(list(missing(found, Known(), Count(), NOON))) == 3


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[1, 2", "Expecting ',' delimiter: line 1 column 6 (char 5)"),
        ('{"benchmarks": []}', "it has no 'datetime'"),
        ('{"datetime": "yesterday", "benchmarks": []}', "Invalid isoformat string: 'yesterday'"),
    ],
)
def test_another_file_is_named_and_skipped(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    problems: list[str] = []
    assert read_file(path, "centre", 0.0, problems) == []
    assert problems == [f"{path}: this is no file of pytest-benchmark, and is skipped: {why}"]


def test_a_benchmark_without_a_number_is_named_and_loses_nothing_else(tmp_path: Path) -> None:
    content = json.loads(FOREIGN.read_text())
    content["benchmarks"][1]["stats"]["mean"] = float("nan")
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    problems: list[str] = []
    assert len(read_file(path, "centre", 0.0, problems)) == 2
    assert problems == [f"{path}: benchmarks[1] is skipped: its mean is nan s"]


def test_a_folder_without_files_is_a_problem(tmp_path: Path) -> None:
    problems: list[str] = []
    assert files_in(tmp_path, problems) == []
    assert problems == [f"{tmp_path}: this folder has no file of pytest-benchmark (*.json)"]
