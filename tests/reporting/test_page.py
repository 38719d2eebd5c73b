"""The page of a report: the four answers in their order, texts that stay texts, nothing from elsewhere, its size."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reporting.__main__ import main
from reporting.report.charts.prose import number, prose, whole_verdict
from reporting.report.data import Condition, ReportData
from reporting.report.page import render
from reporting.report.page.run_values import run_values
from reporting.report.page.words import hours, labels_of
from reporting.report.report_json import to_json
from tests.reporting import report_samples as samples
from tests.reporting.table_history import record_nights

ROOT = Path(__file__).resolve().parents[2]
VOID = {"meta", "link", "wbr", "input", "br"}
LINKS = ("href", "src", "action", "xlink:href", "data", "poster", "srcset")


class Page(HTMLParser):
    """The elements of a page: each with its name, its attributes, and all the text in it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[int] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}, []))
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}, []))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self.elements[self._open[-1]][0] != tag:
            self._open.pop()
        if self._open:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for at in self._open:
            self.elements[at][2].append(data)

    def texts(self, tag: str, css_class: str = "") -> list[str]:
        return [" ".join("".join(text).split()) for name, attributes, text in self.elements
                if name == tag and css_class in attributes.get("class", "")]  # fmt: skip

    def attributes(self, *names: str) -> Iterator[tuple[str, str]]:
        for tag, attributes, _text in self.elements:
            for name in names:
                if name in attributes:
                    yield tag, attributes[name]


def page_of(report: ReportData, evidence: str | None = None) -> Page:
    return Page(render(report, evidence=evidence))


@pytest.fixture(scope="module")
def year() -> ReportData:
    return samples.year(nights=30)


@pytest.fixture(scope="module")
def year_page(year: ReportData) -> Page:
    return page_of(year, "https://ci.example.org/runs")


# --- the first screen ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_card_answers_how_much_since_when_where_and_why_in_this_order(year_page: Page) -> None:
    page = year_page
    assert page.texts("h1") == ["Yes: 4 of 60 tests are slower, on eidf_a100 and lumi_g; 1 has failed"]
    labels = page.texts("dt")[:8]
    assert labels == ["How much", "Since when", "Where", "Why"] * 2
    assert page.texts("dd")[:4] == [
        "3 of 6 tests are 6.1 to 8.4 % slower",
        "Tue 17 Nov 2026, 5 nights ago",
        "eidf_a100: resnet50 1x4gpu tuned, resnet50 1x4gpu gbs32, cosmoflow 2x4gpu tuned; device step; on all nodes",
        "driver 580.82 → 590.11; note: the cooling has new pumps (ada)",
    ]
    assert page.texts("dd")[7] == "nothing that is recorded has changed"


@pytest.mark.slow
def test_three_incidents_are_open_and_the_others_are_counted() -> None:
    html = render(samples.twelve_incidents(), evidence=None)
    page = Page(html)
    assert len(page.texts("article", "card")) == 12
    assert page.texts("summary")[0] == "9 more: 7 slower, 1 suspect, 1 acknowledged"
    assert html[: html.index("9 more: 7 slower")].count("<article") == 3


def test_an_acknowledged_incident_names_its_ticket_and_is_not_red(year_page: Page) -> None:
    page = year_page
    (card,) = page.texts("article", "c-acknowledged")
    assert card.startswith("acknowledged on archer2_mi210")
    links = [value for _tag, value in page.attributes("href") if value.startswith("https://gitlab.example.org")]
    assert "https://gitlab.example.org/hpc/tickets/17" in links
    assert card.count("https://gitlab.example.org/hpc/tickets/17") == 1


def test_a_site_without_incidents_says_so_and_has_no_card() -> None:
    page = page_of(samples.quiet())
    assert page.texts("h1") == ["No test is slower"]
    assert page.texts("article") == []
    assert page.texts("p", "below") == ["16 of 16 tests ok."]


def test_a_site_without_an_ok_test_does_not_count_them() -> None:
    page = page_of(samples.new_site())
    (below,) = page.texts("p", "below")
    assert "learning" in below
    assert " ok." not in below


def test_tests_that_are_not_judged_are_named_below_the_answer(year_page: Page) -> None:
    (below,) = year_page.texts("p", "below")
    assert below == (
        "failed 1: cosmoflow 1x4gpu tuned on cirrus_v100. blind 1: resnet50 1x4gpu gbs32 on jureca_h100. "
        "paused 6: graphcore_pod16 (6 tests). 1 faster, 44 of 60 tests ok. 1 thing could not be read."
    )


def test_a_cell_of_a_test_that_learns_has_its_number() -> None:
    report = samples.single_run()
    learning = report.tests[0]
    (cell,) = page_of(report).texts("a", "cell")
    assert learning.condition is Condition.LEARNING
    assert learning.series[0].unit in cell


@pytest.mark.slow
def test_the_page_says_when_it_was_made_and_that_runs_are_missing() -> None:
    report = samples.quiet()
    page = page_of(report)
    assert page.texts("p", "made") == ["Last night: Sun 22 Nov 2026 Made: Mon 23 Nov 2026, 06:12 (UTC)"]
    assert not [text for text in page.texts("p", "warning") if text]
    old = replace(report, platforms=tuple(replace(platform, last_night="2026-11-19") for platform in report.platforms))
    warnings = [text for text in page_of(old).texts("p", "warning") if text]
    assert warnings == ["No run since Thu 19 Nov 2026. That is 3 nights before the last night."]


def test_a_cell_of_the_grid_has_a_word_beside_its_colour(year_page: Page) -> None:
    cells = year_page.texts("a", "cell")
    assert len(cells) == 60
    words = {condition.value for condition in Condition}
    assert {cell.split()[0] for cell in cells} <= words
    assert sum(cell.startswith("paused") for cell in cells) == 6


def test_a_disturbed_last_run_is_said_in_the_row_of_its_test() -> None:
    whole = samples.quiet()
    test = whole.tests[0]
    (series,) = test.series
    disturbed = replace(series.points[-1], doubts=("not alone",))
    doubted = replace(test, series=(replace(series, points=(*series.points[:-1], disturbed)),))
    rows = page_of(replace(whole, tests=(doubted, *whole.tests[1:]))).texts("summary")
    assert [row for row in rows if "last run in doubt: not alone" in row] == [rows[0]]


def test_tests_that_share_a_name_have_the_rest_of_their_ids() -> None:
    whole = samples.quiet()
    test = whole.tests[0]
    other = replace(test, id=test.id.replace(".py::", "_other.py::", 1))
    assert labels_of([test, whole.tests[1]])[test.id] == "resnet50 1x4gpu tuned"
    labels = labels_of([test, other])
    assert labels[test.id] == "resnet50 1x4gpu tuned (test_resnet50.py::test_resnet50[1x4gpu-tuned])"
    assert labels[other.id] == "resnet50 1x4gpu tuned (test_resnet50_other.py::test_resnet50[1x4gpu-tuned])"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0"),
        (0.0002, "under 0.001"),
        (0.046, "0.046"),
        (0.274, "0.27"),
        (1.44, "1.4"),
        (9.96, "10"),
        (773.2, "773"),
    ],
)
def test_small_device_hours_have_two_digits(value: float, said: str) -> None:
    assert hours(value) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "acked until 2026-12-06: -8.0 %, slower since 2026-10-13",
            "acked until Sun 6 Dec 2026: \u22128.0\u202f%, slower since Tue 13 Oct 2026",
        ),
        ("-3.0 % of the first pin", "\u22123.0\u202f% of the first pin"),
        ("driver 570.124 -> 580.65", "driver 570.124 → 580.65"),
        ("run nightly-2026-11-17, https://x/2026-11-17/", "run nightly-2026-11-17, https://x/2026-11-17/"),
        ("until 2026-13-45", "until 2026-13-45"),
    ],
)
def test_sentences_have_one_minus_sign_and_one_form_of_dates(text: str, said: str) -> None:
    assert prose(text) == said


def test_commands_in_a_whole_verdict_stay_as_they_are_typed() -> None:
    text = "It is -8.4 % since 2026-11-17.\n  python -m reporting accept 'x' --since 2026-11-17"
    assert whole_verdict(text) == (
        "It is \u22128.4 % since Tue 17 Nov 2026.\n  python -m reporting accept 'x' --since 2026-11-17"
    )


# --- texts stay texts ------------------------------------------------------------------------------------------------


def test_texts_of_a_history_or_a_person_make_no_element_and_no_address() -> None:
    page = page_of(samples.hostile())
    names = {name for name, _attributes, _text in page.elements}
    assert not names & {"img", "iframe", "object", "embed", "base"}
    assert sum(name == "script" for name, _attributes, _text in page.elements) == 3
    events = [name for _tag, attributes, _text in page.elements for name in attributes if name.startswith("on")]
    assert events == []
    addresses = [value for _tag, value in page.attributes(*LINKS)]
    assert [address for address in addresses if not address.startswith(("#", "data:,"))] == []
    assert not [attributes for _name, attributes, _text in page.elements if "style" in attributes]


def test_characters_that_turn_the_direction_are_shown_as_question_marks() -> None:
    html = render(samples.hostile(), evidence=None)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\x00\x1b\ud800-\udfff]", html)
    assert "?gnp.exe" in html


def test_the_embedded_json_cannot_end_its_script() -> None:
    report = samples.hostile()
    names = {(test.id, one.metric): str(at) for at, test in enumerate(report.tests) for one in test.series}
    text = run_values(report, names)
    assert not set("<>&\u2028\u2029") & set(text)
    assert "</script><script>window.hacked = 1</script>" in json.loads(text)["runs"]


def test_the_embedded_values_are_printed_as_those_of_the_report() -> None:
    whole = samples.year(nights=200, platforms=2)
    values = [9207.46, 9207.5, 9206.5, 1000.04, 999.96, 99.95, 12.345, 9.9951, 0.12345, 0.0]
    first = whole.tests[0].series[0]
    odd = replace(
        first, points=tuple(replace(point, value=value) for point, value in zip(first.points, values, strict=False))
    )
    tests = (replace(whole.tests[0], series=(odd,)), *whole.tests[1:])
    report = replace(whole, tests=tests)
    names = {(test.id, one.metric): test.id for test in report.tests for one in test.series}
    embedded = json.loads(run_values(report, names))["series"]
    for test in report.tests:
        (series,) = test.series
        read = embedded[test.id]["values"]
        assert [number(value) for value in read] == [number(point.value) for point in series.points]


# --- colours ---------------------------------------------------------------------------------------------------------


# --- nothing from elsewhere, the same bytes, not too large -----------------------------------------------------------


def test_the_page_names_no_address_but_evidence_and_tickets(year: ReportData, year_page: Page) -> None:
    addresses = {value for _tag, value in year_page.attributes(*LINKS) if not value.startswith(("#", "data:,"))}
    allowed = ("https://ci.example.org/runs/nightly-", "https://gitlab.example.org/hpc/tickets/17")
    assert [address for address in addresses if not address.startswith(allowed)] == []
    html = render(year, evidence=None)
    assert not re.search(r"@import|url\(|@font-face", html)


def test_the_policy_allows_exactly_the_scripts_and_styles_of_the_page(year: ReportData) -> None:
    html = render(year, evidence=None)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.replace("&#39;", "'").split(";")}
    assert rules["default-src"] == ["'none'"]

    def hashes(tag: str) -> set[str]:
        inline = re.findall(rf"<{tag}(?: id=\"dark\"[^>]*)?>(.*?)</{tag}>", html, re.DOTALL)
        return {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in inline}

    assert set(rules["script-src"]) == hashes("script")
    assert set(rules["style-src"]) == hashes("style")


@pytest.mark.slow
def test_the_same_report_gives_the_same_bytes_in_another_process() -> None:
    """Whose sets have another order."""
    report = samples.year(nights=20, platforms=2)
    lines = [
        "import sys",
        "from pydantic import TypeAdapter",
        "from reporting.report.data import ReportData",
        "from reporting.report.page import render",
        "report = TypeAdapter(ReportData).validate_json(sys.stdin.buffer.read())",
        "sys.stdout.buffer.write(render(report, evidence='runs').encode())",
    ]
    command = [sys.executable, "-c", "\n".join(lines)]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(command, cwd=ROOT, check=True, env=environment, input=to_json(report), capture_output=True)
    assert done.stdout.decode() == render(report, evidence="runs")


@pytest.mark.slow
def test_a_year_of_ten_platforms_has_at_most_a_megabyte_and_a_half() -> None:
    size = len(render(samples.year(), evidence="https://ci.example.org/artifacts/runs").encode())
    assert size <= 1_500_000


# --- what stands where -----------------------------------------------------------------------------------------------


def test_a_test_has_its_verdict_its_commands_and_a_link_to_its_evidence() -> None:
    whole = samples.year(nights=30, platforms=1)
    page = page_of(whole, "https://ci.example.org/runs/")
    first = whole.tests[0]
    (text,) = [text for text in page.texts("pre") if first.id in text][:1]
    assert f"python -m reporting accept '{first.id}' --since 2026-11-17 --reason 'WHY'" in text
    links = [value for _tag, value in page.attributes("href")]
    assert f"https://ci.example.org/runs/nightly-2026-11-22/{first.folder}/" in links


def test_evidence_that_is_not_there_is_named_and_not_linked() -> None:
    whole = samples.year(nights=30, platforms=1)
    html = render(whole, evidence="runs", is_kept=lambda run, _folder: run.endswith("2026-11-22"))
    first = whole.tests[0]
    assert f'href="runs/nightly-2026-11-22/{first.folder}/"' in html
    assert 'href="runs/nightly-2026-11-17' not in html
    assert "nightly-2026-11-17" in html
    assert 'href="runs/' not in render(whole, evidence=None)


def test_slow_nodes_come_first_and_fit_ones_are_folded(year: ReportData) -> None:
    html = render(year, evidence=None)
    nodes = html[html.index('id="nodes"') : html.index('id="numbers"')]
    places = [nodes.index(text) for text in ("nid001004", "nid001017", "17 nodes fit or not judged", "nid001020")]
    assert places == sorted(places)


def test_a_test_that_never_had_a_number_is_shown() -> None:
    whole = samples.quiet()
    bare = replace(whole.tests[0], series=(), condition=Condition.FAILED, device=None, devices=None)
    page = page_of(replace(whole, tests=(bare, *whole.tests[1:])))
    assert "It has never had a number." in page.texts("p")
    assert any(cell.startswith("failed") for cell in page.texts("a", "cell"))


# --- the commands ----------------------------------------------------------------------------------------------------


def test_html_and_data_of_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "centre"
    record_nights(site / "history", 22)
    page, data = tmp_path / "report.html", tmp_path / "report.json"
    asked = [f"--site={site}", "--tonight=2026-10-22"]
    assert main(["html", *asked, "-o", str(page)]) == 0
    assert capsys.readouterr().err == f"No test is slower: written to {page}\n"
    assert "<h1" in page.read_text()
    assert main(["data", *asked, "-o", str(data)]) == 0
    assert [test["condition"] for test in json.loads(data.read_bytes())["tests"]] == ["ok"]
    assert main(["data", "--schema"]) == 0
    out = capsys.readouterr().out
    assert set(json.loads(out)["properties"]) == set(json.loads(data.read_bytes()))


def test_evidence_on_this_machine_is_linked_by_its_path(tmp_path: Path) -> None:
    site = tmp_path / "centre"
    record_nights(site / "history", 22)
    data, page = tmp_path / "report.json", tmp_path / "public" / "report.html"
    page.parent.mkdir()
    assert main(["data", f"--site={site}", "--tonight=2026-10-22", "-o", str(data)]) == 0
    (test,) = json.loads(data.read_bytes())["tests"]
    (site / "runs" / test["last_run"] / test["folder"]).mkdir(parents=True)
    assert main(["html", f"--site={site}", "--tonight=2026-10-22", "-o", str(page)]) == 0
    folder = test["folder"].replace("[", "%5B").replace("]", "%5D")
    assert f'href="../centre/runs/{test["last_run"]}/{folder}/"' in page.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "x.txt"], "x.txt: the name of a page ends with .html, so that browsers show it (-o x.html)"),
        (["-o", "a.html", "--evidence", "javascript:alert(1)"], "--evidence: 'javascript:alert(1)' is no link"),
        (["-o", "a.html", "--data", "x.json"], "`python -m reporting html --data` is gone"),
    ],
)
def test_what_cannot_be_written_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["html", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
