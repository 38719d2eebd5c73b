"""The page of a simulated year: it says what was planted and nothing else, and a browser shows it to everybody."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reporting.history import reader
from reporting.history.nights import NOON
from reporting.references import store
from reporting.report.build import build
from reporting.report.data import Incident, ReportData
from reporting.report.page import render
from tests import browser
from tests.reporting.report_year import make_year

LAST = datetime.date(2026, 11, 22)
NOW = datetime.datetime(2026, 11, 23, 9, 0, tzinfo=datetime.UTC)
NIGHTS = 100  # the planted events of the last nights are the same in a longer year
PHONE, DESK, WALL = (360, 780), (1440, 900), (2560, 1440)
OPEN_ALL = "document.querySelectorAll('details').forEach(details => details.open = true)"
OPEN_ONE_OF_EACH = """
const seen = new Set();
for (const details of document.querySelectorAll("details")) {
  const kind = details.dataset.condition || details.className;
  details.open = !seen.has(kind);
  seen.add(kind);
}
"""
QUESTIONS = ["How much", "Since when", "Where", "Why"]
PARTS = {"wait_ms": "waiting for data", "step_ms": "the device step"}


@dataclass(frozen=True)
class Year:
    """What was planted, and what the report says of it."""

    truth: dict[str, Any]
    report: ReportData
    page: Path

    def lasting(self, *conditions: str) -> list[dict[str, Any]]:
        """The planted events that last, with one of these conditions."""
        return [one for one in self.truth["events"] if one["until"] is None and one["condition"] in conditions]

    def incident(self, event: dict[str, Any]) -> Incident:
        """The incident that tells of an event: of its platform, with a test of its."""
        (found,) = [
            one
            for one in self.report.incidents
            if one.platform == event["platform"] and set(one.tests) & set(event["tests"])
        ]
        return found


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Year:
    folder = tmp_path_factory.mktemp("year")
    make_year(folder, LAST, nights=NIGHTS)
    problems: list[str] = []
    envelopes = reader.read(folder / "history", None, problems)
    report = build(envelopes, store.load(folder), "campus", NOON, NOW, problems)
    page = folder / "page.html"
    page.write_text(render(report, evidence=None), encoding="utf-8")
    return Year(json.loads((folder / "truth.json").read_text()), report, page)


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_incidents_are_the_planted_events_and_no_others(year: Year) -> None:
    planted = year.lasting("slower", "failed", "suspect", "acknowledged")
    told = sorted((one.platform, one.condition.value, tuple(sorted(one.tests))) for one in year.report.incidents)
    assert told == sorted((one["platform"], one["condition"], tuple(sorted(one["tests"]))) for one in planted)
    assert year.report.problems == ()


def test_each_incident_begins_within_two_nights_of_its_event(year: Year) -> None:
    for event in year.lasting("slower", "failed", "suspect", "acknowledged"):
        since = year.incident(event).since
        assert since is not None
        apart = datetime.date.fromisoformat(since) - datetime.date.fromisoformat(event["since"])
        assert abs(apart.days) <= 2, event["name"]


def test_each_incident_names_the_part_and_the_cause(year: Year) -> None:
    for event in year.lasting("slower", "acknowledged"):
        incident = year.incident(event)
        assert PARTS[event["part"]] in incident.where, event["name"]
        for name, value in event["changed"].items():
            assert name in incident.why
            assert value in incident.why
        if event["note"]:
            assert event["note"] in incident.why
        if event["node"]:
            assert event["node"] in incident.where
        if not (event["changed"] or event["note"] or event["node"]):
            assert incident.why == "nothing that is recorded has changed"
        if event["condition"] == "acknowledged":
            assert event["answer"] in incident.why


def test_other_conditions_are_those_that_were_planted(year: Year) -> None:
    """Also that exactly the slow node is called slow."""
    planted = {
        test: event["condition"]
        for event in year.truth["events"]
        if event["until"] is None and event["condition"] != "ok"
        for test in event["tests"]
    }
    assert {test.id: test.condition.value for test in year.report.tests} == {
        test: planted.get(test, "ok") for tests in year.truth["platforms"].values() for test in tests
    }
    nodes = [event["node"] for event in year.truth["events"] if event["node"]]
    assert [node.name for node in year.report.nodes if node.standing == "slow"] == nodes


# --- how a browser shows it -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_axe_finds_nothing_that_keeps_people_from_the_page(
    year: Year, chromium: Any, size: tuple[int, int], dark: bool
) -> None:
    """With a test of each condition open."""
    axe = browser.axe_source()
    with browser.opened(chromium, year.page, *size, dark=dark) as page:
        page.evaluate(OPEN_ONE_OF_EACH)
        assert browser.violations(page, axe) == []


@pytest.mark.parametrize("size", [PHONE, DESK, WALL], ids=["phone", "desk", "wall"])
def test_nothing_is_wider_than_the_window(year: Year, chromium: Any, size: tuple[int, int]) -> None:
    with browser.opened(chromium, year.page, *size) as page:
        page.evaluate(OPEN_ALL)
        assert page.evaluate("document.documentElement.scrollWidth") == size[0]


def test_a_phones_first_screen_says_whether_since_when_where_and_why(year: Year, chromium: Any) -> None:
    """The headline and the whole first incident are above the lower edge, with an answer to each question."""
    width, height = PHONE
    with browser.opened(chromium, year.page, width, height) as page:
        assert year.report.headline in page.locator("h1").inner_text()
        card = page.locator("article").first
        assert card.locator("dt").all_inner_texts() == QUESTIONS
        assert all(answer.strip() for answer in card.locator("dd").all_inner_texts())
        box = card.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= height


def test_it_prints_on_paper(year: Year, chromium: Any) -> None:
    with browser.opened(chromium, year.page, *DESK) as page:
        pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF-")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/") >= 2
