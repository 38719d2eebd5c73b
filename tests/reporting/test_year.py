"""A simulated year: the gate and the report say of it what was planted and nothing else, and a browser shows it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reporting.gate.tonight import judge_tonight
from reporting.gate.verdict import Kind, Verdict
from reporting.history import reader
from reporting.history.nights import NOON
from reporting.references import store
from reporting.report.build import build
from reporting.report.data import Incident, ReportData
from reporting.report.page import render
from tests import browser
from tests.reporting.report_year import make_year

pytestmark = pytest.mark.slow
LAST = datetime.date(2026, 11, 22)
NOW = datetime.datetime(2026, 11, 23, 9, 0, tzinfo=datetime.UTC)
NIGHTS = 75  # the planted events of the last nights are the same in a longer year
RED = {Kind.SLOWER, Kind.DRIFTED}
PHONE, DESK, WALL = (360, 780), (1440, 900), (2560, 1440)
OPEN_ALL = "document.querySelectorAll('details').forEach(details => details.open = true)"
PARTS = {"wait_ms": "waiting for data", "step_ms": "the device step"}


@dataclass(frozen=True)
class Year:
    """What was planted, and what the gate and the report say of it tonight."""

    site: Path
    truth: Mapping[str, Any]
    verdicts: Mapping[str, Verdict]
    report: ReportData

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
    site = tmp_path_factory.mktemp("year")
    make_year(site, LAST, nights=NIGHTS)
    problems: list[str] = []
    envelopes = reader.read(site / "history", None, problems)
    references = store.load(site)
    report = build(envelopes, references, "campus", NOON, NOW, problems)
    by_test: dict[str, list[Any]] = {}
    for run in envelopes:
        by_test.setdefault(run.key.test, []).append(run)
    verdicts = {}
    for test, runs in by_test.items():
        last = [run for run in runs if run.sane and run.trial.in_series][-1]
        (verdicts[test],) = judge_tonight(last, runs, references, NOON, NOW).values()
    return Year(site, json.loads((site / "truth.json").read_text()), verdicts, report)


def nights_apart(one: object, other: object) -> int:
    return abs((datetime.date.fromisoformat(str(one)) - datetime.date.fromisoformat(str(other))).days)


def test_the_same_seed_gives_the_same_bytes(year: Year, tmp_path: Path) -> None:
    """Those of the first platform, whatever the other ones are."""
    make_year(tmp_path, LAST, nights=NIGHTS, platforms=1)
    files = [path.relative_to(tmp_path) for path in (tmp_path / "history").rglob("*.jsonl")]
    assert len(files) > NIGHTS / 2
    assert [name for name in files if (tmp_path / name).read_bytes() != (year.site / name).read_bytes()] == []


def test_a_year_is_not_written_over_another_one(year: Year, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has a history already: name a new folder"):
        make_year(year.site, LAST, nights=NIGHTS)
    with pytest.raises(ValueError, match="too few: the planted events need 75"):
        make_year(tmp_path / "short", LAST, nights=20)


# --- the gate --------------------------------------------------------------------------------------------------------


def test_what_is_slower_was_planted_and_is_seen_since_its_night(year: Year) -> None:
    events = [event for event in year.lasting("slower") if event["node"] is None]
    assert [event["name"] for event in events] == ["driver upgrade", "file system", "drift"]
    expected = {test: event for event in events for test in event["tests"]}
    assert {test for test, verdict in year.verdicts.items() if verdict.kind in RED} == set(expected)
    for test, event in expected.items():
        assert nights_apart(year.verdicts[test].since, event["since"]) <= 2, test
        assert year.verdicts[test].change == pytest.approx(event["tests"][test], abs=0.02)


def test_the_slow_node_is_named_and_what_people_said_is_followed(year: Year) -> None:
    by_kind: dict[str, set[str]] = {}
    for test, verdict in year.verdicts.items():
        by_kind.setdefault(verdict.kind, set()).add(test)
    for condition in ("acknowledged", "blind", "paused", "faster", "learning"):
        assert by_kind[condition] == {test for event in year.lasting(condition) for test in event["tests"]}, condition
    (slow,) = [event for event in year.truth["events"] if event["node"]]
    assert by_kind["node"] == set(slow["tests"])


# --- the report ------------------------------------------------------------------------------------------------------


def test_the_incidents_are_the_planted_events_and_no_others(year: Year) -> None:
    planted = year.lasting("slower", "failed", "suspect", "acknowledged")
    told = sorted((one.platform, one.condition.value, tuple(sorted(one.tests))) for one in year.report.incidents)
    assert told == sorted((one["platform"], one["condition"], tuple(sorted(one["tests"]))) for one in planted)
    assert year.report.problems == ()
    for event in planted:
        assert nights_apart(year.incident(event).since, event["since"]) <= 2, event["name"]


def test_each_incident_names_the_part_and_the_cause(year: Year) -> None:
    for event in year.lasting("slower", "acknowledged"):
        incident = year.incident(event)
        assert PARTS[event["part"]] in incident.where, event["name"]
        for name, value in event["changed"].items():
            assert name in incident.why
            assert value in incident.why
        assert (event["note"] or "") in incident.why
        assert (event["node"] or "") in incident.where
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


@pytest.mark.nightly("reporting/report", "tests/browser.py")
@pytest.mark.timeout(900)
def test_a_browser_shows_the_whole_page_to_everybody(year: Year, tmp_path: Path) -> None:
    """With everything open, on all sizes of windows, and on paper."""
    axe = browser.axe_source()
    file = tmp_path / "page.html"
    file.write_text(render(year.report, evidence=None), encoding="utf-8")
    with browser.chromium() as chromium:
        for size, dark in ((PHONE, False), (DESK, True), (WALL, False)):
            with browser.opened(chromium, file, *size, dark=dark) as page:
                page.evaluate(OPEN_ALL)
                assert page.evaluate("document.documentElement.scrollWidth") == size[0]
                assert browser.violations(page, axe) == []
        with browser.opened(chromium, file, *DESK) as page:
            assert page.pdf(format="A4").startswith(b"%PDF-")
