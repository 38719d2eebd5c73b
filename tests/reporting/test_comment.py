"""`python -m reporting comment`: what it says, and how it is kept on a merge request of a stand-in for GitLab."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.job import AwayError
from reporting.__main__ import main
from reporting.gitlab import token
from reporting.gitlab.api import GitLab
from reporting.gitlab.notes import write_once
from reporting.history.writer import HistoryWriter
from reporting.report.comment import INCIDENTS, ROWS, comment, escaped, marker
from reporting.report.data import SCHEMA, Condition, Incident, ReportData, TestReport
from tests.fake_gitlab import PATH, FakeGitLab, Trouble, serving
from tests.reporting.report_series import point, points, report_of, series
from tests.reporting.test_answers_commands import nights, slid

GOOD = "glpat-good"
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


@pytest.fixture
def gitlab() -> Iterator[FakeGitLab]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI_MERGE_REQUEST_IID", "CI_OPEN_MERGE_REQUESTS", "CI_API_V4_URL", "CI_PROJECT_ID", token.VARIABLE):
        monkeypatch.delenv(name, raising=False)


# --- what it says ----------------------------------------------------------------------------------------------------


def test_a_reviewer_reads_the_answer_first() -> None:
    body = comment(report(), "campus", LINKS)
    lines = body.splitlines()
    assert lines[0] == marker("campus")
    assert lines[1] == "### 🔴 1 of 2 tests is slower, on eidf\\_a100"
    assert lines[3].startswith(
        "- 🔴 **slower** since 2026-11-15, 8 nights, eidf\\_a100: resnet50 1x4gpu tuned is 8.4 %"
    )
    assert "Where: all of it in the device step; input unchanged" in lines[4]
    assert "Why: driver 570.124 -\\> 580.65" in lines[5]
    row = "| resnet50 1x4gpu tuned on eidf\\_a100 | 🔴 slower | 735.2 samples/s | -8.4 % | 2026-11-15 |"
    assert row in lines
    assert "<details><summary>1 other test: 1 ok</summary>" in lines
    assert "[report](<https://pages.example.org/report.html>)" in lines[-1]
    assert "night of 2026-11-22" in lines[-1]


def test_what_is_not_urgent_or_too_much_is_folded() -> None:
    many = [replace(SLOW, id=f"test_{number}", workload=f"w{number}") for number in range(ROWS + 5)]
    incidents = tuple(replace(INCIDENT, what=f"finding {number}") for number in range(INCIDENTS + 2))
    problems = ("history/x.jsonl:7: this line is skipped",)
    body = comment(report(*many, incidents=incidents, problems=problems), "campus", {})
    seen = re.sub(r"<details>.*?</details>", "", body, flags=re.DOTALL)
    assert seen.count("finding ") == INCIDENTS
    assert seen.count("| w") == ROWS
    assert body.count("| w") == ROWS + 5
    assert body.count("<details>") == body.count("</details>") == 3
    assert "<summary>1 part of the history cannot be read</summary>" in body


def test_a_test_without_numbers_has_none_and_no_change() -> None:
    failed = report_of(series([point(0, None)], condition=Condition.FAILED), condition=Condition.FAILED)
    body = comment(report(failed), "campus", {})
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
    plain = comment(report(SLOW), "a", {"report": "https://x/"})
    body = comment(report(*tests, headline=HOSTILE, incidents=(incident,)), HOSTILE, {"report": "https://x/> y"})
    assert body.count("\n") == plain.count("\n")
    assert body.splitlines()[0].count("--") == 2
    assert not [line for line in body.splitlines() if line.startswith("/")]


# --- on the merge request --------------------------------------------------------------------------------------------


def client(server: FakeGitLab, word: str = GOOD, slept: list[float] | None = None) -> GitLab:
    return GitLab(server.api, "42", word, sleep=(slept if slept is not None else []).append)


def test_it_is_made_once_and_changed_in_place(gitlab: FakeGitLab) -> None:
    mark = marker("campus")
    gitlab.add_note(7, "LGTM", "ada")
    assert write_once(client(gitlab), "7", mark, f"{mark}\none") == "made"
    assert write_once(client(gitlab), "7", mark, f"{mark}\ntwo") == "changed"
    assert write_once(client(gitlab), "7", mark, f"{mark}\ntwo") == "unchanged"
    assert gitlab.bodies() == ["LGTM", f"{mark}\ntwo"]
    assert write_once(client(gitlab), "7", marker("other"), f"{marker('other')}\nx") == "made"
    assert len(gitlab.bodies()) == 3


@pytest.mark.parametrize("shows_totals", [True, False])
def test_it_is_found_behind_hundreds_of_others(gitlab: FakeGitLab, shows_totals: bool) -> None:
    gitlab.shows_totals = shows_totals
    mark = marker("campus")
    for number in range(250):
        gitlab.add_note(7, f"> {mark} quoted {number}", "ada", system=number % 3 == 0)
    gitlab.add_note(7, f"{mark}\nold", "project_42_bot")
    assert write_once(client(gitlab), "7", mark, f"{mark}\nnew") == "changed"
    assert gitlab.bodies()[-1] == f"{mark}\nnew"
    assert len(gitlab.bodies()) == 251
    assert [query.get("page") for method, _path, query in gitlab.asked if method == "GET"] == [None, "2", "3"]


def test_the_comment_of_another_token_is_left_alone(gitlab: FakeGitLab) -> None:
    mark = marker("campus")
    gitlab.add_note(7, f"{mark}\nof a token that was revoked", "project_42_bot_1")
    for text in ("one", "two"):
        write_once(client(gitlab), "7", mark, f"{mark}\n{text}")
    assert gitlab.bodies() == [f"{mark}\nof a token that was revoked", f"{mark}\ntwo"]


def test_two_that_were_written_at_once_become_one(gitlab: FakeGitLab) -> None:
    mark = marker("campus")
    for _twice in range(2):
        gitlab.add_note(7, f"{mark}\nold", "project_42_bot")
    write_once(client(gitlab), "7", mark, f"{mark}\nnew")
    assert gitlab.bodies() == [f"{mark}\nnew"]


def test_a_busy_server_is_asked_again_after_the_pause_it_wants(gitlab: FakeGitLab) -> None:
    slept: list[float] = []
    gitlab.troubles.extend([Trouble(429, {"Retry-After": "7"}), Trouble(503), Trouble(429, {"Retry-After": "4000"})])
    mark = marker("campus")
    assert write_once(client(gitlab, slept=slept), "7", mark, mark) == "made"
    assert slept == [7.0, 2.0, 60.0]


def test_a_comment_whose_answer_was_lost_is_not_written_twice(gitlab: FakeGitLab) -> None:
    mark = marker("campus")
    found = client(gitlab)
    list(found.each("merge_requests/7/notes"))
    gitlab.troubles.append(Trouble(200, body="[]"))
    gitlab.troubles.append(Trouble(502, done=True))
    assert write_once(found, "7", mark, f"{mark}\nx") == "unchanged"
    assert gitlab.bodies() == [f"{mark}\nx"]


def test_a_server_that_stays_away_is_named(gitlab: FakeGitLab) -> None:
    gitlab.troubles.extend([Trouble(500)] * 5)
    with pytest.raises(AwayError, match=r"GitLab answers 500; type it again later"):
        write_once(client(gitlab), "7", marker("a"), "x")
    nowhere = GitLab("http://127.0.0.1:9/api/v4", "42", GOOD, sleep=lambda seconds: None)
    with pytest.raises(AwayError, match=r"does not answer: .*refused; type it again later"):
        nowhere.get("")


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "centre").mkdir()
    writer = HistoryWriter(tmp_path / "centre/history")
    for each in slid():
        writer.write(each, None)
    return tmp_path / "centre"


def test_a_pipeline_comments_on_its_merge_request(
    site: Path, gitlab: FakeGitLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (gitlab.environ() | {token.VARIABLE: GOOD}).items():
        monkeypatch.setenv(name, value)
    for said in ("made", "changed"):  # the time in its last line is another one, or the same
        assert main(["comment", f"--site={site}", "--page=https://pages.example.org/r.html"]) == 0
        out = capsys.readouterr().out
        assert out == f"the comment on merge request !7 is {said}\n" or "unchanged" in out
    (body,) = gitlab.bodies()
    assert "1 of 1 tests is slower" in body
    assert f"[evidence](<{gitlab.url}/{PATH}/-/jobs/12/artifacts/browse>)" in body
    assert "[report](<https://pages.example.org/r.html>)" in body


def test_the_merge_request_of_a_branch_is_found(
    site: Path, gitlab: FakeGitLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = gitlab.environ(None) | {token.VARIABLE: GOOD, "CI_OPEN_MERGE_REQUESTS": f"fork/site!3,{PATH}!7"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert main(["comment", f"--site={site}"]) == 0
    assert len(gitlab.bodies()) == 1


def test_without_a_merge_request_it_says_so(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["comment", f"--site={site}"]) == 0
    assert "This pipeline has no merge request" in capsys.readouterr().out


def test_it_can_be_printed_and_written(site: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "comment.md"
    assert main(["comment", f"--site={site}", "--print"]) == 0
    printed = capsysbinary.readouterr().out.decode()
    assert main(["comment", f"--site={site}", "-o", str(path)]) == 0
    assert printed.splitlines()[:2] == path.read_text().splitlines()[:2]
    assert main(["comment", f"--site={site}", "-o", str(tmp_path / "no/where.md")]) == 2
    assert b"its folder does not exist" in capsysbinary.readouterr().err


@pytest.mark.parametrize(
    ("changes", "troubles", "said"),
    [
        ({token.VARIABLE: ""}, [], "HPC_ML_BENCH_GITLAB_TOKEN is not set: a comment needs"),
        ({token.VARIABLE: "glpat-old"}, [], "401 Unauthorized (the token in HPC_ML_BENCH_GITLAB_TOKEN is wrong"),
        ({token.VARIABLE: "glpat-reads"}, [], "higher privileges (the token in HPC_ML_BENCH_GITLAB_TOKEN needs the sc"),
        ({token.VARIABLE: "glpat good"}, [], "holds no token"),
        ({"CI_MERGE_REQUEST_IID": "8"}, [], "404 Not found (there is none, or the token may not see it"),
        ({}, [Trouble(302, {"Location": "http://127.0.0.1:9/steal"})], "it has moved to http://127.0.0.1:9/steal"),
        ({}, [Trouble(200, body="<html>log in</html>")], "what answers there is not GitLab's API"),
        ({"CI_API_V4_URL": "file:///etc"}, [], "is no address of GitLab's API"),
    ],
)
def test_what_goes_wrong_is_one_sentence_without_the_token(
    site: Path,
    gitlab: FakeGitLab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    troubles: list[Trouble],
    said: str,
) -> None:
    gitlab.users["glpat-reads"] = "reader"
    gitlab.read_only.add("glpat-reads")
    gitlab.troubles.extend(troubles)
    for name, value in (gitlab.environ() | {token.VARIABLE: GOOD} | changes).items():
        monkeypatch.setenv(name, value)
    assert main(["comment", f"--site={site}"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert "glpat" not in error
    assert gitlab.bodies() == []


def test_a_history_that_is_all_right_is_said_so(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    writer = HistoryWriter(tmp_path / "history")
    for each in nights(30, 100.0, datetime.datetime.now().astimezone().date() - datetime.timedelta(days=1)):
        writer.write(each, None)
    assert main(["comment", f"--site={tmp_path}", "--print"]) == 0
    body = capsysbinary.readouterr().out.decode()
    assert "### 🟢 No test is slower" in body
    assert json.dumps("🔴") not in body
