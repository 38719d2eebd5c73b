"""The simulated year: the same bytes for the same seed, and the gate sees in it what was planted and nothing else."""

from __future__ import annotations

import datetime
import hashlib
import json

import pytest

from reporting.gate.tonight import judge_tonight
from reporting.history import reader
from reporting.history.nights import NOON
from reporting.references import store
from tests.reporting.report_year import make_year

LAST = datetime.date(2026, 11, 22)
NOW = datetime.datetime(2026, 11, 23, 9, 0)
SEEN = {"slower", "drifted"}


def digest(folder):
    """Of all files below a folder, by their names."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = [f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(tmp_path):
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        make_year(tmp_path / name, LAST, nights=75, platforms=1, seed=seed)
    assert digest(tmp_path / "one") == digest(tmp_path / "again")
    assert digest(tmp_path / "one") != digest(tmp_path / "other")


def test_a_year_is_not_written_over_another_one(tmp_path):
    make_year(tmp_path, LAST, nights=75, platforms=1)
    with pytest.raises(ValueError, match="has a history already: name a new folder"):
        make_year(tmp_path, LAST, nights=75, platforms=1)
    with pytest.raises(ValueError, match="too few: the planted events need 75"):
        make_year(tmp_path / "short", LAST, nights=20)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("year")
    make_year(folder, LAST, nights=100)
    return folder


@pytest.fixture(scope="module")
def verdicts(site):
    """What the gate says tonight, by test."""
    problems = []
    envelopes = reader.read(site / "history", None, problems)
    references = store.load(site)
    assert problems == []
    assert references.problems == []
    by_test = {}
    for run in envelopes:
        by_test.setdefault(run.key.test, []).append(run)
    found = {}
    for test, runs in by_test.items():
        last = [run for run in runs if run.sane and run.trial.in_series][-1]
        (found[test],) = judge_tonight(last, runs, references, NOON, NOW).values()
    return found


def planted(site):
    return json.loads((site / "truth.json").read_text())["events"]


def lasting(site, *conditions):
    """The events that last, without the slow node."""
    events = [event for event in planted(site) if event["until"] is None and event["node"] is None]
    return [event for event in events if event["condition"] in conditions]


def test_what_is_slower_was_planted_and_is_seen_since_its_night(site, verdicts):
    events = lasting(site, "slower")
    assert [event["name"] for event in events] == ["driver upgrade", "file system", "drift"]
    expected = {test: event for event in events for test in event["tests"]}
    assert {test for test, verdict in verdicts.items() if verdict.kind in SEEN} == set(expected)
    for test, event in expected.items():
        late = verdicts[test].since - datetime.date.fromisoformat(event["since"])
        assert abs(late.days) <= 2, test
        assert verdicts[test].change == pytest.approx(event["tests"][test], abs=0.02)


def test_the_driver_the_input_and_the_note_are_named(site, verdicts):
    upgrade, file_system, drift = lasting(site, "slower")
    for test in upgrade["tests"]:
        assert "in the device step" in verdicts[test].text
        assert "driver 570.124.06 -> 580.65.06" in verdicts[test].text
    (test,) = file_system["tests"]
    assert "in waiting for data" in verdicts[test].text
    assert f"Note of {file_system['since']} on isambard_ai: {file_system['note']}" in verdicts[test].text
    (test,) = drift["tests"]
    assert "nothing that is recorded has changed" in verdicts[test].text


def test_the_slow_node_is_named_and_what_people_said_is_followed(site, verdicts):
    by_kind = {}
    for test, verdict in verdicts.items():
        by_kind.setdefault(verdict.kind, set()).add(test)
    for condition in ("acknowledged", "blind", "paused", "faster", "learning"):
        tests = {test for event in lasting(site, condition) for test in event["tests"]}
        assert by_kind[condition] == tests, condition
    (slow,) = [event for event in planted(site) if event["node"]]
    assert by_kind["node"] == set(slow["tests"])
    (test,) = by_kind["node"]
    assert f"node {slow['node']}" in verdicts[test].short
    (test,) = by_kind["acknowledged"]
    assert "acked until 2026-12-06" in verdicts[test].short


def test_failed_nights_are_at_the_end_of_their_test_alone(site):
    (event,) = lasting(site, "failed")
    (test,) = event["tests"]
    runs = [run for run in reader.read(site / "history", {test}) if run.trial.in_series]
    assert [run.sane for run in runs][-3:] == [True, False, False]
