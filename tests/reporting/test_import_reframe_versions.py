"""What seven versions of ReFrame have written is read alike: perflogs, reports and a database.

Each version ran the same checks with `--repeat=2`, and its default format. `stream` has a parameter whose name ends
in `_value`, and a `|` in its description; `odd` has a metric that is a boolean and has a `|` in its unit; `slow` misses
its reference, which perflogs in the format of ReFrame 3 do not say.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reporting.__main__ import main
from reporting.history.envelope import Envelope
from reporting.history.reader import read
from reporting.history.writer import HistoryWriter
from reporting.imports.reframe import ReframeCase, envelope_of
from reporting.imports.reframe_files import read_files

VERSIONS = Path(__file__).parent / "recordings" / "reframe" / "versions"
FILES = sorted(path.relative_to(VERSIONS).as_posix() for path in VERSIONS.glob("*/*"))
WITHOUT_RESULTS = ("3.12.0/perflogs", "4.0.5/as-3", "4.6.3/as-3")  # in the format of ReFrame 3
STREAM = "stream %cutoff_value=3@generic:default+builtin"
HEADER = "result|job_completion_time|descr|name|system|partition|environ|jobid|bw_value|bw_unit|bw_ref|bw_lower_thres"
OLD = "2026-08-19T16:42:35+01:00|reframe 3.12.0|t on s:p using e|jobid=7|bw=30.5|MB/s|ref=0 (l=None, u=None)|tag"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """ReFrame wrote local times where the recordings were made."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "site.yaml").write_text("name: centre\n")
    return folder


def imported(site: Path, *paths: Path) -> int:
    return main(["import", "reframe", *map(str, paths), f"--site={site}"])


def summary(capsys: Capture) -> str:
    """What an import says of the lines that it wrote."""
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("lines: ")]
    return line.partition(";")[0]


# --- what each version writes ----------------------------------------------------------------------------------------


def test_all_kinds_of_files_of_all_versions_are_recorded() -> None:
    assert len(FILES) == 7 + 7 + 2 + 1


@pytest.mark.parametrize("file", FILES)
def test_each_version_says_the_same(file: str) -> None:
    problems: list[str] = []
    cases = list(read_files([VERSIONS / file], problems))
    said = {
        (case.test, case.result, *((value.name, value.value, value.unit, value.lower, value.upper)))
        for case in cases
        for value in case.values
    }
    slow = "pass" if file in WITHOUT_RESULTS else "fail"
    assert said == {
        (STREAM, "pass", "rate", 30.5, "GB/s", -0.2, None),
        (STREAM, "pass", "latency", 2.5, "us", None, 0.5),
        ("odd@generic:default+builtin", "pass", "rate", 30.5, "GB/s", None, None),
        ("slow@generic:default+builtin", slow, "rate", 30.5, "GB/s", -0.1, None),
    }
    assert len(cases) == 6, "each test was repeated once"
    assert all(case.sane and case.has_run and case.job_id for case in cases)
    assert {case.version for case in cases} <= {file.partition("/")[0], None}
    assert problems
    assert all("`good`" in problem and "is no number" in problem and "skipped" in problem for problem in problems)


@pytest.mark.parametrize("version", sorted(path.name for path in VERSIONS.iterdir()))
@pytest.mark.parametrize("reverse", [False, True])
def test_a_job_in_a_report_and_in_a_perflog_is_one_job(
    site: Path, capsys: Capture, version: str, reverse: bool
) -> None:
    files = sorted((VERSIONS / version).iterdir(), reverse=reverse)
    files = [file for file in files if file.name != "as-3"]  # that is of a session of its own
    imported(site, files[0])
    assert summary(capsys) == "lines: 6 new, 0 changed, 0 there already"
    for file in [*files[1:], *files]:
        imported(site, file)
        assert summary(capsys) == "lines: 0 new, 0 changed, 6 there already", file
    assert len(read(site / "history")) == 6


# --- a history that was written when each repetition was a test of its own ------------------------------------------


def older_lines(folder: Path, cases: list[ReframeCase]) -> list[Envelope]:
    """Write what the import wrote then: the repetition is part of the id. Returns what it would write now."""
    now = [envelope_of(case, "centre", {}, time.time()) for case in cases]
    writer = HistoryWriter(folder)
    for number, envelope in enumerate(now):
        test = envelope.key.test.replace("@", f" %.repeat_no={number}@", 1)
        writer.write_all([replace(envelope, key=envelope.key._replace(test=test))])
    return now


@pytest.mark.parametrize("file", ["4.7.4/results.db", "4.6.3/perflogs"])
def test_an_older_history_goes_on_and_gets_no_job_twice(site: Path, capsys: Capture, file: str) -> None:
    (site / "history").mkdir()
    now = older_lines(site / "history", list(read_files([VERSIONS / file], [])))
    assert b"repeat_no" in b"".join(path.read_bytes() for path in (site / "history").rglob("*.jsonl"))
    imported(site, VERSIONS / file)
    assert summary(capsys) == "lines: 0 new, 6 changed, 0 there already", "they had no metrics"
    found = read(site / "history", [STREAM])
    assert {envelope.key for envelope in found} == {envelope.key for envelope in now if envelope.key.test == STREAM}
    assert len(found) == 2
    assert len(read(site / "history")) == 6


def test_a_job_id_that_is_given_again_is_another_job(site: Path, tmp_path: Path, capsys: Capture) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"{OLD}\n{OLD.replace('-19T', '-20T')}\n")
    imported(site, log)
    assert summary(capsys) == "lines: 2 new, 0 changed, 0 there already"


# --- perflogs --------------------------------------------------------------------------------------------------------


def read_text(tmp_path: Path, text: str | bytes, name: str = "a.log") -> tuple[list[ReframeCase], list[str]]:
    """The test cases of a file with this text, and what is said of it without its path."""
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    problems: list[str] = []
    return list(read_files([path], problems)), [problem.replace(f"{path}:", "") for problem in problems]


@pytest.mark.parametrize(
    ("line", "test", "metric"),
    [
        (OLD, "t", ("bw", 30.5, "MB/s")),
        (OLD.replace("|tag", ""), "t", ("bw", 30.5, "MB/s")),
        (OLD.replace("t on", "a on b %x=1|2 on"), "a on b %x=1|2", ("bw", 30.5, "MB/s")),
        (OLD.replace("MB/s|ref=0 (l=None", "a|b|ref=40 (l=-0.1"), "t", ("bw", 30.5, "a|b")),
        (OLD.replace("MB/s|", "").replace("|tag", "|null"), "t", ("bw", 30.5, "")),
        (OLD.replace("u=None", "u=0.1"), "t", ("bw", 30.5, "MB/s")),
        (OLD.replace("t on s:p using e", "t %$repeat_no=3 /0123abcd @s:p+e"), "t", ("bw", 30.5, "MB/s")),
    ],
)
def test_a_line_of_reframe_3(tmp_path: Path, line: str, test: str, metric: tuple[object, ...]) -> None:
    (case,), problems = read_text(tmp_path, line + "\n")
    (value,) = case.values
    assert (case.test, (value.name, value.value, value.unit)) == (f"{test}@s:p+e", metric)
    assert (case.job_id, case.completed_s, case.version) == ("7", 1787154155.0, "3.12.0")
    assert problems == []


@pytest.mark.parametrize("at", [40, 60, 70])
def test_a_line_that_follows_one_without_an_end_is_a_line(tmp_path: Path, at: int) -> None:
    cases, problems = read_text(tmp_path, OLD[at:] + "\n" + OLD + OLD.replace("jobid=7", "jobid=8") + "\n")
    assert [case.job_id for case in cases] == ["7", "8"]
    (problem,) = problems
    assert problem.startswith("1: it is no line as ReFrame 3 writes them: TIME|reframe VERSION|")


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    cases, (problem,) = read_text(tmp_path, "2026-08-19 16:42:35,t,30.5\n")
    assert cases == []
    assert problem.startswith("1: this file is skipped: it has no column `system`")
    assert problem.endswith(
        "no line of ReFrame 3: TIME|reframe VERSION|CHECK on SYSTEM:PARTITION using ENVIRON|"
        "jobid=ID|METRIC=VALUE|ref=…|UNIT"
    )


@pytest.mark.parametrize(
    ("cells", "unit"),
    [
        ("a|b|t|s|p|e|7|12|GB/s|0|None", "GB/s"),
        ("|||t|s|p|e|7|12|GB/s|0|None", "GB/s"),
        ("a|t|s|p|e|7|12|yes|no|0|None", "yes|no"),
        ("a|b|t|s|p|e|7|12|yes|no|0|None", "yes|no"),
        ("a|t|s|p|e|7|12|1|2|0|None", "1|2"),
    ],
)
def test_a_text_may_hold_the_delimiter(tmp_path: Path, cells: str, unit: str) -> None:
    (case,), problems = read_text(tmp_path, f"{HEADER}\npass|2026-08-25T22:00:00|{cells}\n")
    assert (case.check, case.test.partition("@")[2]) == ("t", "s:p+e")
    assert [(value.value, value.unit, value.lower) for value in case.values] == [(12.0, unit, None)]
    assert problems == []


def test_a_line_that_can_be_read_in_two_ways_is_skipped(tmp_path: Path) -> None:
    """`2` may belong to the parameter or to the tags."""
    header = "result,job_completion_time,name,tags,system,partition,environ,bw_value,bw_unit"
    cases, problems = read_text(tmp_path, f"{header}\npass,2026-08-25T22:00:00,t %n=1,2,,s,p,e,5,GB/s\n")
    assert cases == []
    assert problems == ["2: it has 10 cells, and the header has 9 columns; lines of this file that are skipped: 1"]


def test_a_value_that_is_no_number_costs_its_metric_alone(tmp_path: Path) -> None:
    lines = [
        f"pass|2026-08-25T22:00:0{at}||t|s|p|e|{at}|{value}|GB/s|0|None|3|s\n"
        for at, value in enumerate(("True", "x", 5))
    ]
    cases, problems = read_text(tmp_path, f"{HEADER}|wait_value|wait_unit\n{''.join(lines)}")
    assert [[value.name for value in case.values] for case in cases] == [["wait"], ["wait"], ["bw", "wait"]]
    assert problems == ["2: column `bw_value`: 'True' is no number; values of `bw` that are skipped: 2"]


@pytest.mark.parametrize("name", ["t %cutoff_value=3", "t"])
def test_a_parameter_is_no_metric(tmp_path: Path, name: str) -> None:
    line = f"pass|2026-08-25T22:00:00||{name}|s|p|e|7|12|GB/s|0|None|3\n"
    (case,), problems = read_text(tmp_path, f"{HEADER}|cutoff_value\n{line}")
    assert [value.name for value in case.values] == ["bw"]
    assert problems == []


# --- reports ---------------------------------------------------------------------------------------------------------


REPORT = (VERSIONS / "4.6.3" / "report.json").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "\n \r\n" + REPORT,
        f"[{REPORT}]",
        f"\n[ \n{REPORT},\n{REPORT}]",
        REPORT.encode("utf-8-sig"),
        REPORT.encode("utf-16"),
    ],
)
def test_a_report_may_begin_otherwise(tmp_path: Path, text: str | bytes) -> None:
    cases, problems = read_text(tmp_path, text, "report.json")
    assert len({(case.test, case.job_id) for case in cases}) == 6
    assert len(problems) == 1, "that `good` is no number"


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (["session_info"], None, "session_info is null, and no dict"),
        (["session_info", "time_start"], "at noon", "'at noon' is no time like 2026-01-31T22:00:00+0100"),
        (["runs"], {}, "runs is empty, and no list"),
        (["runs", 0, "runid"], None, "runs[0].runid is null, and no int"),
        (["runs", 0, "testcases"], "x", 'runs[0].testcases is "x", and no list'),
        (["runs", 0, "testcases", 1], 5, "runs[0].testcases[1] is 5, and no dict"),
        (["runs", 0, "testcases", 1, "perfvars"], [{"name": "rate"}], "testcases[1]: perfvars[0].value is missing"),
        (["runs", 0, "testcases", 1, "system"], None, "runs[0].testcases[1]: system is null, and no str"),
        (["runs", 0, "testcases", 1, "check_vars"], [1], "testcases[1]: check_vars is a list of 1, and no dict"),
    ],
)
def test_what_a_report_lacks_is_said_in_one_sentence(
    tmp_path: Path, keys: list[str | int], value: object, said: str
) -> None:
    report = json.loads(REPORT)
    *path, last = keys
    of = report
    for key in path:
        of = of[key]
    of[last] = value
    cases, problems = read_text(tmp_path, json.dumps([report, json.loads(REPORT)]), "report.json")
    assert len(cases) == 6, "the other report is read"
    assert said in problems[0]
    assert problems[0].startswith(" this session is skipped: ")
    assert "at noon" in said or problems[0].endswith(
        ". Read is a report of ReFrame 3.12 to 4.10, or a database of 4.7 to 4.10"
    )
