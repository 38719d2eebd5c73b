"""ReFrame's database and perflogs become envelopes. The recordings were made by ReFrame 4.10.4."""

from __future__ import annotations

import datetime
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.job import BenchError, Metric, Outcome, RefusedError
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from reporting.imports import reframe
from reporting.imports.directions import Decision, MetricName, Said, decide
from reporting.imports.merge import Count, Known, missing
from reporting.imports.reframe import PerformanceValue, ReframeCase
from reporting.imports.reframe_files import read_files
from reporting.imports.reframe_sessions import read_database
from reporting.imports.survey import decisions, survey_of

RECORDINGS = Path(__file__).parent / "recordings" / "reframe"
DATABASE = RECORDINGS / "results.db"
GENERIC = RECORDINGS / "perflogs" / "generic" / "default"
STREAM = "stream %size=small@generic:default+builtin"
SOLVER = "solver@generic:default+builtin"
IMPORTED_S = 1_800_000_000.0  # later than all recordings


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """ReFrame wrote local times where the recordings were made."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def read(*paths: Path) -> list[ReframeCase]:
    """The test cases of files that have no problems."""
    problems: list[str] = []
    cases = list(read_files(paths, problems))
    assert problems == []
    return cases


def envelopes(cases: list[ReframeCase]) -> list[Envelope]:
    directions = {}
    for name, decision in decisions(survey_of(cases), Said(), {}).items():
        if decision.direction is not None:
            directions[name] = decision.direction
    return [reframe.envelope_of(case, "centre", directions, written_s=IMPORTED_S) for case in cases if case.has_run]


def of(test: str, found: list[Envelope]) -> list[Envelope]:
    return [envelope for envelope in found if envelope.key.test == test]


# --- the database ----------------------------------------------------------------------------------------------------


def test_a_test_case_of_the_database_becomes_an_envelope() -> None:
    first = of(STREAM, envelopes(read(DATABASE)))[0]
    assert first.key.site == "centre"
    assert first.key.run_id.startswith("reframe-")
    assert first.key.attempt == 1
    assert first.key.job_id
    assert first.key.submitted_s == pytest.approx(1767229200, abs=60)
    assert 0 < first.ended_s - first.time_s < 60  # not measured: recorded
    assert (first.outcome, first.sane, first.eligible) == (Outcome.PASSED, True, True)
    assert first.platform == "generic:default"
    assert first.benchmark == "stream"
    assert first.source == "reframe"
    assert first.metrics == {
        "triad": Metric(800.0, "GB/s", "higher"),
        "copy": Metric(700.0, "GB/s", "higher"),
        "latency": Metric(1.875, "us", "lower"),
    }
    assert first.provenance == {"nodes": "nid001", "reframe": "4.10.4", "num_tasks": "1"}


def test_an_imported_line_claims_no_field_that_reframe_does_not_record() -> None:
    for envelope in envelopes(read(DATABASE, RECORDINGS / "perflogs")):
        assert envelope.fields == {"source": "reframe"}
        assert envelope.started_s is None
        assert envelope.layout == ""
        assert envelope.doubts == ()
        assert envelope.run is None


def test_each_system_partition_and_environment_is_a_test_of_its_own() -> None:
    tests = {case.test for case in read(DATABASE) if case.check == "solver"}
    assert tests == {
        "solver@generic:default+builtin",
        "solver@twopart:cpu+gnu",
        "solver@twopart:cpu+cray",
        "solver@twopart:gpu+gnu",
    }


def test_the_jobs_of_a_session_have_one_run_id() -> None:
    runs = {envelope.key.run_id for envelope in envelopes(read(DATABASE))}
    assert len(runs) == 8


def test_a_number_that_misses_its_reference_counts_and_its_test_has_failed() -> None:
    slow = [envelope for envelope in of(SOLVER, envelopes(read(DATABASE))) if envelope.outcome is Outcome.FAILED]
    assert [envelope.key.attempt for envelope in slow] == [1, 2], "ReFrame tried it again"
    assert len({envelope.key.run_id for envelope in slow}) == 1
    for envelope in slow:
        assert envelope.sane
        assert envelope.metrics["elapsed"].value == 20.0


def test_a_test_whose_sanity_failed_has_no_number() -> None:
    failed = of("insane@generic:default+builtin", envelopes(read(DATABASE, GENERIC / "insane.log")))
    assert failed
    for envelope in failed:
        assert (envelope.outcome, envelope.sane, envelope.metrics) == (Outcome.FAILED, False, {})


def test_a_skipped_test_has_not_run() -> None:
    skipped = [case for case in read(DATABASE) if case.check == "skipped"]
    assert {case.result for case in skipped} == {"skip"}
    assert not any(case.has_run for case in skipped)


@pytest.mark.parametrize(
    ("result", "phase", "outcome", "sane"),
    [
        ("pass", None, Outcome.PASSED, True),
        ("xfail", "performance", Outcome.PASSED, True),
        ("fail", "performance", Outcome.FAILED, True),
        ("fail", "cleanup", Outcome.FAILED, False),
        ("abort", None, Outcome.ERROR, False),
        ("a word of a later version", None, Outcome.ERROR, False),
    ],
)
def test_which_numbers_count(result: str, phase: str | None, outcome: Outcome, sane: bool) -> None:
    values = (PerformanceValue("triad", "GB/s", 800.0),)
    case = ReframeCase("stream", "daint", "gpu", "gnu", result, values, phase, "session")
    assert (case.outcome, case.sane) == (outcome, sane)


def test_reframe_can_write_while_its_database_is_read(tmp_path: Path) -> None:
    copy = tmp_path / "results.db"
    shutil.copy(DATABASE, copy)
    cases = read_database(copy, [])
    next(cases)
    with sqlite3.connect(copy, timeout=0) as writer:
        writer.execute("DELETE FROM sessions WHERE session_start_unix = (SELECT max(session_start_unix) FROM sessions)")
    writer.close()
    rest = list(cases)
    assert 0 < len(rest) < len(read(DATABASE)) - 1, "the session that is gone is left out"


def test_the_database_is_not_changed(tmp_path: Path) -> None:
    copy = tmp_path / "results.db"
    shutil.copy(DATABASE, copy)
    copy.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert len(read(copy)) == len(read(DATABASE))
    finally:
        tmp_path.chmod(0o755)
    assert copy.read_bytes() == DATABASE.read_bytes()
    assert list(tmp_path.iterdir()) == [copy]


def test_a_damaged_session_is_named_and_loses_nothing_else(tmp_path: Path) -> None:
    copy = tmp_path / "results.db"
    shutil.copy(DATABASE, copy)
    with sqlite3.connect(copy) as database:
        (key,) = database.execute("SELECT uuid FROM sessions ORDER BY session_start_unix").fetchone()
        database.execute("UPDATE sessions SET json_blob = substr(json_blob, 1, 1000) WHERE uuid = ?", (key,))
    database.close()
    problems: list[str] = []
    cases = list(read_files([copy], problems))
    assert len({case.session for case in cases}) == 7
    (problem,) = problems
    assert problem.startswith(f"{copy}: session {key}: this session is skipped: ")


def test_report_files_say_what_the_database_says(tmp_path: Path) -> None:
    """ReFrame stores in its database the text of the report that it writes after each session."""
    with sqlite3.connect(DATABASE) as database:
        reports = database.execute("SELECT json_blob FROM sessions ORDER BY session_start_unix").fetchall()
    database.close()
    for number, (text,) in enumerate(reports):
        (tmp_path / f"run-report-{number}.json").write_text(text)
    (tmp_path / "latest.json").symlink_to("run-report-7.json")
    cases = read(tmp_path)
    assert {case.test for case in cases} == {case.test for case in read(DATABASE)}
    assert len(merged(envelopes(cases), Known())[0]) == 50


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE songs(title TEXT)")
    database.close()
    with pytest.raises(BenchError, match=r"other\.db: this is no results database of ReFrame"):
        list(read_files([path], []))


# --- perflogs --------------------------------------------------------------------------------------------------------


def test_a_perflog_of_the_default_format_says_what_the_database_says() -> None:
    in_database = {case.job_id: case for case in read(DATABASE) if case.test == STREAM}
    in_log = [case for case in read(GENERIC / "stream.log") if case.job_id in in_database]
    assert len(in_log) == 6
    for case in in_log:
        same = in_database[case.job_id]
        for name in ("test", "result", "values", "submitted_s", "completed_s", "nodes"):
            assert getattr(case, name) == getattr(same, name), name


def test_a_csv_perflog_says_what_the_database_says_to_the_second() -> None:
    in_database = {(case.test, case.job_id): case for case in read(DATABASE)}
    in_log = read(RECORDINGS / "perflogs" / "twopart" / "cpu" / "stream.log")
    assert len(in_log) == 4
    for case in in_log:
        same = in_database[case.test, case.job_id]
        assert case.values == same.values
        assert case.completed_s == int(same.completed_s or 0)
        assert case.submitted_s is None


def test_the_lines_of_one_test_case_are_one() -> None:
    cases = read(RECORDINGS / "multiline" / "twopart" / "gpu" / "stream.log")
    assert [case.check for case in cases] == ["stream %size=small", "stream %size=large"]
    assert [value.name for value in cases[0].values] == ["triad", "copy", "latency"]
    assert [value.value for value in cases[0].values] == [804.0, 703.5, 1.8657]


def test_broken_lines_are_named_and_lose_nothing_else(tmp_path: Path) -> None:
    lines = (GENERIC / "solver.log").read_text().splitlines(keepends=True)
    lines[3] = "pass|2026-01-03\n"
    lines[5] = lines[5].replace("|None|0.2|", "|None|wide|")
    log = tmp_path / "solver.log"
    log.write_text("".join(lines[:-1]) + lines[-1][:40])
    problems: list[str] = []
    cases = list(read_files([log], problems))
    assert len(cases) == len(lines) - 1 - 2
    assert problems == [
        f"{log}:4: it has 2 cells, and the header has {lines[0].count('|') + 1} columns; "
        "lines of this file that are skipped: 2",
        f"{log}:6: column `elapsed_upper_thres`: 'wide' is no number; values of `elapsed` that are skipped: 1",
    ]


def test_a_file_without_the_columns_that_name_a_test_is_skipped(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("result|system|partition|name\npass|daint|gpu|stream\n")
    problems: list[str] = []
    assert list(read_files([log], problems)) == []
    (problem,) = problems
    assert problem.startswith(
        f"{log}:1: this file is skipped: it has no column `environ` (add it to ReFrame's `format`)"
    )


def test_logs_that_reframe_set_aside_are_read(tmp_path: Path) -> None:
    shutil.copy(GENERIC / "solver.log", tmp_path / "solver.log.h0")
    assert len(read(tmp_path)) == len(read(GENERIC / "solver.log"))


def test_a_repeated_test_is_one_test(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(
        "job_completion_time,display_name,system,partition,environ,jobid,result,rate_value,rate_unit\n"
        "2026-01-06T01:00:01,io %n=2 %.repeat_no=0,daint,gpu,gnu,7,pass,5,GB/s\n"
        "2026-01-06T01:00:01,io %n=2 %.repeat_no=1,daint,gpu,gnu,8,pass,6,GB/s\n"
    )
    assert [case.test for case in read(log)] == ["io %n=2@daint:gpu+gnu"] * 2


@pytest.mark.parametrize(
    ("check", "typed"),
    [
        ("stream", "'^stream$'"),
        ("odd %word=a b c", "'^odd%word=abc$'"),
        ("odd %word=50%", "'^odd%word=50%$'"),
        ("odd %word=x@1", "'^odd%word=x.1$'"),
        ("odd %word=f(x)+y", r"'^odd%word=f\(x\)\+y$'"),
        ("odd %word=it's", """'^odd%word=it'"'"'s$'"""),
        ("odd %word=$HOME", r"'^odd%word=\$HOME$'"),
        ("odd %word=(1, 2)", r"'^odd%word=\(1,2\)$'"),
    ],
)
def test_a_test_is_repeated_by_the_name_that_reframe_matches(check: str, typed: str) -> None:
    """Each of these was typed, and ReFrame 4.10.4 selected the one test case."""
    case = ReframeCase(check, "daint", "gpu", "gnu", "pass", session="s")
    command = reframe.repeat_command(reframe.envelope_of(case, "centre", {}, IMPORTED_S))
    assert command == f"reframe -n {typed} --system=daint:gpu -p '^gnu$' -r"


# --- which direction is good -----------------------------------------------------------------------------------------


def test_directions_of_the_recordings() -> None:
    decided = decisions(survey_of(read(DATABASE)), Said(), {})
    assert {(name.check, name.metric): decision for name, decision in decided.items()} == {
        ("solver", "elapsed"): Decision("lower", "its reference has only an upper bound"),
        ("solver", "iterations"): Decision(None, "neither its references nor its unit say it"),
        ("stream", "copy"): Decision("higher", "its unit is a rate"),
        ("stream", "latency"): Decision("lower", "its reference has only an upper bound"),
        ("stream", "triad"): Decision("higher", "its reference has only a lower bound"),
    }


TIMES = (
    "s",
    "us",
    "ms",
    "ns",
    "sec",
    "seconds",
    "Seconds",
    "microseconds",
    "min",
    "t[usec]",
    "hour/ns",
    "h/ns",
    "day/year",
)
TIMES_OF_WORK = ("s/step", "us/op", "ms per token", "sec/epoch", "s/step/GPU")
RATES = ("GB/s", "MB/sec", "Gflops", "GFLOP/s", "images/s", "ns/day", "ps/day", "years/day", "/s", "Gflops/seconds")
RATES += (
    "MB/seconds",
    "IOPS",
    "kIOPS",
    "TFLOP/s/GPU",
    "images/sec/GPU",
    "TFLOPS/GPU",
    "GB/s per node",
    "MBps",
    "GTEPS",
)
OTHERS = ("", "W", "%", "GB", "ms/s", "s/s", "s/day", "ms/hour", "min/h", "GFLOP", "ops")
NO_WORK = ("errors/s", "page-faults/s", "retransmits/s", "s/failure", "hours/crash", "J/s", "kWh/day", "$ / hour")


@pytest.mark.parametrize(
    ("units", "direction"), [(TIMES + TIMES_OF_WORK, "lower"), (RATES, "higher"), (OTHERS + NO_WORK, None)]
)
def test_less_time_and_a_higher_rate_are_better_and_other_units_say_nothing(
    units: tuple[str, ...], direction: str | None
) -> None:
    found = {unit: decide(MetricName("a", "b", unit), (), None, None).direction for unit in units}
    assert found == dict.fromkeys(units, direction)


def test_references_that_contradict_each_other_say_nothing() -> None:
    both = [PerformanceValue("b", "", 1.0, lower=-0.1), PerformanceValue("b", "", 1.0, upper=0.1)]
    cases = [replace(read(DATABASE)[0], check="a", values=(value,)) for value in both]
    (decision,) = decisions(survey_of(cases), Said(), {}).values()
    assert decision.direction is None


def test_what_is_said_goes_before_history_and_history_before_references() -> None:
    name = MetricName("stream", "triad", "GB/s")
    assert decide(name, {"lower"}, "lower", "higher").direction == "lower"
    assert decide(name, {"lower"}, None, "lower").direction == "lower"


def test_what_is_said_of_one_check_goes_before_what_is_said_of_all() -> None:
    said = Said.parse(["triad=higher", "stream:triad=lower"])
    assert said.of(MetricName("stream", "triad", "")) == "lower"
    assert said.of(MetricName("other", "triad", "")) == "higher"
    assert said.unknown([MetricName("other", "triad", "")]) == ["stream:triad"]


@pytest.mark.parametrize("word", ["triad", "triad=up", "=lower"])
def test_what_is_no_direction_is_refused(word: str) -> None:
    with pytest.raises(RefusedError, match="write METRIC=lower or METRIC=higher"):
        Said.parse([word])


# --- importing again -------------------------------------------------------------------------------------------------


def merged(found: list[Envelope], known: Known) -> tuple[list[Envelope], Count]:
    count = Count()
    return list(missing(found, known, count, NOON)), count


def test_a_job_in_the_database_and_in_a_perflog_is_one_job() -> None:
    known = Known()
    merged(envelopes(read(DATABASE)), known)
    new, count = merged(envelopes(read(RECORDINGS / "perflogs")), known)
    assert count.already_there > 0
    first_nights = {datetime.date(2025, 12, 31) + datetime.timedelta(days=day) for day in range(6)}
    assert not {envelope.key.test for envelope in new if "twopart" in envelope.key.test}
    assert count.nights > first_nights
