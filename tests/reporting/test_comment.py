"""`python -m reporting comment`: what it says, and where it is written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reporting.__main__ import main
from reporting.history.writer import HistoryWriter
from reporting.report.comment import INCIDENTS, ROWS, comment, escaped
from reporting.report.data import SCHEMA, Condition, Incident, ReportData, TestReport
from tests.reporting.report_series import point, points, report_of, series
from tests.reporting.test_answers_commands import slid

LINKS = {"report": "https://pages.example.org/report.html", "pipeline": "https://gitlab.example.org/-/pipelines/11"}
SLOW = report_of(
    series(points(30), condition=Condition.SLOWER, change=-0.084, since="2026-11-15", value=735.2, pin=802.6),
    id="test_resnet50.py::test_resnet50[eidf_a100-1x4gpu-tuned]",
)
INCIDENT = Incident(
    condition=Condition.SLOWER,
    platform="eidf_a100",
    since="2026-11-15",
    nights=8,
    tests=(SLOW.id,),
    of_tests=2,
    worst=-0.084,
    mildest=-0.084,
    what="resnet50 1x4gpu tuned is 8.4 % slower",
    where="all of it in the device step; input unchanged",
    why="driver 570.124 -> 580.65",
)


def report(*tests: TestReport, **changes: object) -> ReportData:
    made = ReportData(
        schema=SCHEMA,
        site="campus",
        made_at="2026-11-23T07:00:00+00:00",
        night="2026-11-22",
        first_night="2026-10-24",
        headline="1 of 2 tests is slower, on eidf_a100",
        incidents=(INCIDENT,),
        conditions={},
        platforms=(),
        tests=tests or (SLOW, report_of(series(points(30)), workload="cosmoflow")),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


# --- what it says ----------------------------------------------------------------------------------------------------


def test_a_reviewer_reads_the_answer_first() -> None:
    body = comment(report(), LINKS)
    lines = body.splitlines()
    assert lines[0] == "### 🔴 1 of 2 tests is slower, on eidf\\_a100"
    assert lines[2].startswith(
        "- 🔴 **slower** since 2026-11-15, 8 nights, eidf\\_a100: resnet50 1x4gpu tuned is 8.4 %"
    )
    assert "Where: all of it in the device step; input unchanged" in lines[3]
    assert "Why: driver 570.124 -\\> 580.65" in lines[4]
    row = "| resnet50 1x4gpu tuned on eidf\\_a100 | 🔴 slower | 735.2 samples/s | -8.4 % | 2026-11-15 |"
    assert row in lines
    assert "<details><summary>1 other test: 1 ok</summary>" in lines
    assert "[report](<https://pages.example.org/report.html>)" in lines[-1]
    assert "night of 2026-11-22" in lines[-1]


def test_what_is_not_urgent_or_too_much_is_folded() -> None:
    many = [replace(SLOW, id=f"test_{number}", workload=f"w{number}") for number in range(ROWS + 5)]
    incidents = tuple(replace(INCIDENT, what=f"finding {number}") for number in range(INCIDENTS + 2))
    problems = ("history/x.jsonl:7: this line is skipped",)
    body = comment(report(*many, incidents=incidents, problems=problems), {})
    seen = re.sub(r"<details>.*?</details>", "", body, flags=re.DOTALL)
    assert seen.count("finding ") == INCIDENTS
    assert seen.count("| w") == ROWS
    assert body.count("| w") == ROWS + 5
    assert body.count("<details>") == body.count("</details>") == 3
    assert "<summary>1 part of the history cannot be read</summary>" in body


def test_a_site_where_all_is_right_has_a_green_line() -> None:
    body = comment(report(report_of(series(points(30))), headline="No test is slower", incidents=()), {})
    assert body.startswith("### 🟢 No test is slower\n")
    assert "🔴" not in body


def test_a_test_without_numbers_has_none_and_no_change() -> None:
    failed = report_of(series([point(0, None)], condition=Condition.FAILED), condition=Condition.FAILED)
    body = comment(report(failed), {})
    assert "| ❌ failed | none |  |  |" in body


HOSTILE = "@all #1 !2 ~bug $x$ `a` *b* _c_ [d](http://e) <script>|\n/close\x1b[31m :tada: %3 &4 ![x](y)"


def test_a_text_from_a_history_is_shown_as_it_is() -> None:
    shown = escaped(HOSTILE)
    assert "\n" not in shown
    assert "\x1b" not in shown
    for sign in ("@all", "#1", "!2", "~bug", "%3", "&4", ":tada:"):
        assert sign not in shown
    assert not re.search(r"(?<!\\)[`*_\[\]<>|$]", shown)
    plain = re.sub(r"\\(.)", r"\1", shown).replace("\N{WORD JOINER}", "")
    assert plain == " ".join(HOSTILE.replace("\x1b", "?").split())


def test_hostile_texts_make_no_line_of_their_own() -> None:
    tests = [replace(SLOW, workload=HOSTILE, platform=HOSTILE)]
    incident = replace(INCIDENT, platform=HOSTILE, what=HOSTILE, where=HOSTILE, why=HOSTILE)
    plain = comment(report(SLOW), {"report": "https://x/"})
    body = comment(report(*tests, headline=HOSTILE, incidents=(incident,)), {"report": "https://x/> y"})
    assert body.count("\n") == plain.count("\n")
    assert not [line for line in body.splitlines() if line.startswith("/")]


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "centre").mkdir()
    writer = HistoryWriter(tmp_path / "centre/history")
    for each in slid():
        writer.write(each, None)
    return tmp_path / "centre"


def test_it_can_be_printed_and_written(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("CI_JOB_URL", "https://gitlab.example.org/-/jobs/12")
    path = tmp_path / "comment.md"
    assert main(["comment", f"--site={site}", "--print"]) == 0
    printed = capsysbinary.readouterr().out.decode()
    assert main(["comment", f"--site={site}", "-o", str(path)]) == 0
    assert printed.splitlines()[:2] == path.read_text().splitlines()[:2]
    assert "1 of 1 tests is slower" in printed
    assert "[evidence](<https://gitlab.example.org/-/jobs/12/artifacts/browse>)" in printed
