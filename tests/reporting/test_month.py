"""A month of a report: what it was, by histories made by hand, its section of the page and its tables."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from platforms.job import Outcome, Role, Trial
from reporting.__main__ import main
from reporting.gate.verdict import Kind
from reporting.history.endings import Ending
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from reporting.history.writer import HistoryWriter
from reporting.references.answers import Acceptance, Acknowledgement, Author, Note, Pause, References
from reporting.report.build import build
from reporting.report.charts.month_nights import month_nights
from reporting.report.data import Cause, Condition, Incident, MonthReport, NightState, ReportData
from reporting.report.month import hours_said, share
from reporting.report.month_text import month_lines
from reporting.report.page import render
from tests.reporting import gate_nights
from tests.reporting.campaigns import parts
from tests.reporting.gate_nights import FIELDS, METRIC, TEST, accepted, night, nights, run

OTHER = "test_deepcam.py::test_deepcam[eidf_a100-1x4gpu-tuned]"
NOVEMBER = datetime.date(2026, 11, 1)
FIRST = (NOVEMBER - night(0)).days  # the number of the month's first night, since the history begins in October
OLD, NEW = {"driver": "570"}, {"driver": "580"}


def of_day(day: int) -> int:
    """The number of a night of November."""
    return FIRST + day - 1


def report(
    runs: Sequence[Envelope],
    references: References | None = None,
    now: datetime.date = datetime.date(2026, 12, 5),
    **options: Any,
) -> ReportData:
    ordered = sorted(runs, key=lambda job: job.time_s)
    time = datetime.datetime.combine(now, datetime.time(13))
    answers = references or References()
    return build(ordered, answers, "campus", NOON, time, month=NOVEMBER, **options)


def november(runs: Sequence[Envelope], *arguments: Any, **options: Any) -> Any:
    return report(runs, *arguments, **options).month


def october(**changes: Any) -> list[Envelope]:
    """Enough calm nights for a pin."""
    return nights(FIRST, 100.0, **changes)


def whole(first: int, last: int, **changes: Any) -> list[Envelope]:
    """A run in each night of November from one day to another."""
    return nights(last - first + 1, first=of_day(first), **changes)


def failed(day: int, **changes: Any) -> Envelope:
    return gate_nights.failed(of_day(day), **changes)


def red(first: int, last: int, level: float = 90.0, **changes: Any) -> list[Envelope]:
    """Nights that the gate called slower, since the first one."""
    since = str(night(of_day(first)))
    verdict = {"kind": Kind.SLOWER, "red": True, "change": (level - 100) / 100, "since": since}
    verdicts = {METRIC: {**verdict, **changes.pop("verdict", {})}}
    return [run(of_day(day), level, verdicts=verdicts, **changes) for day in range(first, last + 1)]


def author(day: int) -> Author:
    return Author("ada", datetime.datetime(2026, 11, day, 9, 0, tzinfo=datetime.UTC))


def acceptance(since: int, level: float = 90.0) -> Acceptance:
    return accepted(night(of_day(since)), level, author=author(since + 5))


def states(month: MonthReport, platform: str = "eidf_a100") -> list[NightState]:
    [found] = [one for one in month.platforms if one.name == platform]
    return [one.state for one in found.nights]


def only_incident(month: MonthReport) -> Incident:
    [incident] = month.incidents
    return incident


def of_nights(incident: Incident) -> tuple[int | None, int | None]:
    """The days of November on which an incident began and ended."""
    days = [None if night is None else datetime.date.fromisoformat(night) for night in (incident.since, incident.until)]
    first, last = [None if day is None else (day - NOVEMBER).days + 1 for day in days]
    return first, last


# --- availability ----------------------------------------------------------------------------------------------------


def test_a_night_says_how_many_of_the_tests_have_numbers():
    others = [run(of_day(1), 5.0, test=OTHER), failed(2, test=OTHER), failed(4, test=OTHER)]
    month = november([*whole(1, 3), failed(4), *others])
    assert states(month)[:5] == [NightState.ALL, NightState.SOME, NightState.ALL, NightState.NONE, NightState.NOTHING]
    [platform] = month.platforms
    assert (platform.with_numbers, platform.asked) == (4, 7)


def test_a_retry_that_has_numbers_makes_up_for_its_first_attempt():
    month = november([failed(1), run(of_day(1), 100.0, attempt=2, hour=22.5)])
    assert states(month)[0] is NightState.ALL
    assert not month.incidents


def test_a_paused_night_is_no_missing_one():
    pause = Pause("eidf_a100", night(of_day(4)), "cooling", author(2))
    month = november(whole(1, 2), References(pauses=[pause]))
    assert states(month)[:2] == [NightState.ALL] * 2
    assert states(month)[2:5] == [NightState.PAUSED, NightState.PAUSED, NightState.NOTHING]


def test_a_pause_counts_only_from_the_day_on_which_it_was_given_until_its_end():
    given = Pause("eidf_a100", night(of_day(20)), "cooling", author(3))
    ended = Pause("eidf_a100", night(of_day(4)), "cooling", author(5))
    month = november(whole(1, 1), References(pauses=[given, ended]))
    assert states(month)[1:5] == [NightState.NOTHING, NightState.PAUSED, NightState.PAUSED, NightState.NOTHING]


def test_a_platform_is_paused_if_all_of_its_tests_are():
    month = november(whole(1, 1), References(pauses=[Pause(TEST, night(of_day(3)), "old", author(2))]))
    assert states(month)[1:4] == [NightState.PAUSED, NightState.PAUSED, NightState.NOTHING]


def test_nights_to_come_and_jobs_that_still_run_tonight_are_not_missing():
    pending = run(of_day(3), 1.0, metrics={}, sane=False, outcome=Outcome.PENDING, test=OTHER)
    month = november([*whole(1, 3), pending], now=night(of_day(3)))
    assert states(month)[:5] == [NightState.ALL, NightState.ALL, NightState.ALL, NightState.AHEAD, NightState.AHEAD]
    assert not month.is_over
    later = november([*whole(1, 3), pending], now=night(of_day(6)))
    assert states(later)[2] is NightState.SOME


def test_a_test_that_waits_for_a_repeat_has_its_number_already():
    waits = run(of_day(3), 90.0, outcome=Outcome.PENDING)
    month = november([*whole(1, 2), waits], now=night(of_day(3)))
    assert states(month)[2] is NightState.ALL
    assert month.platforms[0].asked == 3


def test_a_platform_that_appears_in_the_month_is_not_asked_for_before():
    month = november(whole(12, 30, platform="new"))
    assert states(month, "new") == [NightState.NOTHING] * 11 + [NightState.ALL] * 19


def test_a_platform_without_runs_in_the_month_has_a_row_if_it_ran_shortly_before():
    shortly = nights(3, first=FIRST - 5, platform="shortly")
    long_ago = nights(3, first=FIRST - 70, platform="long_ago")
    month = november([*whole(1, 2), *shortly, *long_ago])
    assert [platform.name for platform in month.platforms] == ["eidf_a100", "shortly"]
    assert month.platforms[1].asked == 0


def test_runs_of_campaigns_and_visits_are_not_asked_for():
    visit = run(of_day(1), 100.0, trial=Trial(Role.VISIT, node="n1"), platform="visited")
    assert states(november([visit, *whole(1, 2)]), "visited")[0] is NightState.NOTHING


def test_a_share_is_never_rounded_to_all_or_to_nothing():
    assert [share(99_999, 100_000), share(1, 1), share(1, 100_000), share(0, 0)] == ["99.9 %", "100.0 %", "0.1 %", "-"]


def test_a_pause_that_is_given_after_a_month_changes_nothing_of_it():
    runs = [*october(), *whole(1, 9), *red(10, 30)]
    later = Pause("eidf_a100", datetime.date(2027, 1, 1), "moved", Author("ada", datetime.datetime(2026, 12, 3, 9)))
    assert november(runs, References(pauses=[later])) == november(runs)


# --- where the tests stand -------------------------------------------------------------------------------------------


def test_a_test_stands_where_it_stood_in_the_last_night_of_the_month():
    later = [run(of_day(30) + number, 10.0) for number in range(1, 5)]
    [test] = november([*october(), *whole(1, 24), *red(25, 30, 92.0), *later]).platforms[0].tests
    assert (test.name, test.condition, test.pin, test.value) == ("resnet50 tuned", Condition.SLOWER, 100.0, 92.0)
    assert test.change == pytest.approx(-0.08)
    assert not test.is_accepted


def test_a_loss_that_people_have_accepted_is_over_and_its_test_is_not_slower():
    runs = [*october(), *whole(1, 9), *red(10, 16)]
    tonight = night(of_day(16))
    open_loss = november(runs, now=tonight)
    assert open_loss.platforms[0].tests[0].condition is Condition.SLOWER
    assert only_incident(open_loss).until is None
    assert "1 of 1 tests is slower now; 1 incident, 1 open" in open_loss.headline
    answered = november(runs, References(acceptances=[acceptance(10)]), now=tonight)
    [test] = answered.platforms[0].tests
    assert (test.condition, test.pin, test.is_accepted) == (Condition.OK, 90.0, True)
    assert of_nights(only_incident(answered)) == (10, 17)
    assert only_incident(answered).what == "resnet50 tuned was 10.0 % slower"
    assert "0 of 1 tests are slower now; 1 incident, none open" in answered.headline
    useless = november(runs, References(acceptances=[acceptance(10, level=100.0)]), now=tonight)
    assert only_incident(useless).until is None


def test_a_series_without_a_pin_has_no_change():
    [test] = november(whole(24, 30)).platforms[0].tests
    assert (test.pin, test.change, test.condition) == (None, None, Condition.LEARNING)


# --- incidents -------------------------------------------------------------------------------------------------------


def test_a_change_of_the_driver_is_the_cause_and_an_acceptance_the_answer():
    before = [*october(provenance=OLD), *whole(1, 9, provenance=OLD)]
    after = [run(of_day(day), 90.0, provenance=NEW) for day in range(15, 20)]
    runs = [*before, *red(10, 14, provenance=NEW), *after]
    incident = only_incident(november(runs, References(acceptances=[acceptance(10)])))
    assert (incident.cause, of_nights(incident)) == (Cause.CHANGE, (10, 15))
    assert incident.why == "changed at that time: driver 570 -> 580"
    assert incident.what == "resnet50 tuned was 10.0 % slower"
    assert incident.answered == "accepted by ada on 2026-11-15"


def test_an_open_incident_of_a_month_is_that_of_the_page():
    runs = [*october(provenance=OLD), *whole(1, 9, provenance=OLD), *red(10, 16, provenance=NEW)]
    whole_report = report(runs, now=night(of_day(16)))
    assert whole_report.month.incidents == whole_report.incidents


def test_an_incident_that_is_over_is_told_as_it_was_before():
    """The size, the begin and the cause of a loss do not change when it ends."""
    runs = [*october(provenance=OLD), *whole(1, 9, provenance=OLD), *red(10, 16, provenance=NEW)]
    then = only_incident(november(runs, now=night(of_day(16))))
    now = only_incident(november([*runs, *whole(17, 30, provenance=OLD)]))
    assert of_nights(now) == (10, 17)
    same = ("condition", "since", "nights", "tests", "worst", "where", "why", "cause")
    assert [getattr(now, name) for name in same] == [getattr(then, name) for name in same]


def test_what_changes_all_the_time_is_no_cause_and_yet_is_not_denied():
    def restless(jobs):
        return [
            dataclasses.replace(job, provenance={"driver": "570", "commit": f"c{number}"})
            for number, job in enumerate(jobs)
        ]

    slow = red(10, 12, provenance={"driver": "570", "commit": "new"})
    incident = only_incident(november([*restless([*october(), *whole(1, 9)]), *slow, *whole(13, 20)]))
    assert incident.cause is Cause.UNEXPLAINED
    assert "commit" in incident.why
    assert "nothing" not in incident.why


def test_the_nodes_of_a_run_are_no_cause():
    before = [*october(provenance={"nodes": "n1"}), *whole(1, 9, provenance={"nodes": "n1"})]
    assert only_incident(november([*before, *red(10, 11, provenance={"nodes": "n2"})])).cause is Cause.UNEXPLAINED


def test_a_loss_in_waiting_for_data_is_one_of_the_input():
    def waiting(wait_ms, jobs):
        return [
            dataclasses.replace(job, beside=parts(wait_ms + number % 3 / 10, 1, 100, 0))
            for number, job in enumerate(jobs)
        ]

    before = waiting(10.0, [*october(), *whole(1, 9)])
    slow = waiting(21.0, red(10, 13))
    note = Note("eidf_a100", night(of_day(9)), "new file system", author(9))
    incident = only_incident(november([*before, *slow], References(notes=[note])))
    assert incident.cause is Cause.INPUT
    assert "noted on 2026-11-09: new file system" in incident.why
    assert "waiting for data" in incident.where


def test_a_note_explains_what_nothing_else_does():
    note = Note("eidf_a100", night(of_day(9)), "the BIOS is new", author(9))
    runs = [*october(provenance=OLD), *whole(1, 9, provenance=OLD), *red(10, 10, provenance=OLD)]
    incident = only_incident(november(runs, References(notes=[note])))
    assert (incident.cause, incident.why) == (Cause.CHANGE, "noted on 2026-11-09: the BIOS is new")


def test_a_node_is_one_incident_however_often_it_comes():
    said = {"short": "node n07: -15.0 % in 3 of 3, n12 normal", "text": "It is node n07"}
    changes = {"verdict": {"kind": Kind.NODE, "confirmation": said}, "provenance": {"nodes": "n07"}}
    runs = [*october(), *whole(1, 2), *red(3, 3, 85.0, **changes), *whole(4, 19), *red(20, 20, 83.0, **changes)]
    incident = only_incident(november([*runs, *whole(21, 30)]))
    assert (incident.cause, incident.where) == (Cause.NODE, "node n07")
    assert of_nights(incident) == (3, 21)
    assert incident.what == "resnet50 tuned was 15.0 to 17.0 % slower"


def test_data_from_elsewhere_is_the_input():
    other = {**FIELDS, "data_from": "mixed"}
    slow = red(10, 10, fields=other, verdict={"kind": Kind.LEFT, "change": None})
    incident = only_incident(november([*october(), *whole(1, 9), *slow, *whole(11, 12)]))
    assert incident.cause is Cause.INPUT
    assert incident.what == "resnet50 tuned left its series: data came from storage, is mixed"


def test_jobs_without_numbers_say_how_the_last_one_ended():
    def ending(job):
        first = job.key.job_id.startswith(f"{of_day(1)}-")
        return Ending("node lost" if first else "time limit")

    incident = only_incident(november([failed(1), failed(2), failed(3), *whole(4, 5)], ending=ending))
    assert incident.cause is Cause.FAILED
    assert incident.what == "resnet50 tuned had no numbers: time limit"
    assert (of_nights(incident), incident.worst) == ((1, 4), None)
    missing = only_incident(november([failed(1), *whole(2, 3)], ending=lambda _job: Ending("data missing")))
    assert missing.cause is Cause.INPUT


def test_tests_that_change_in_the_same_nights_are_one_incident():
    before = [*october(), *whole(1, 9), *october(test=OTHER), *whole(1, 9, test=OTHER)]
    incident = only_incident(november([*before, *red(10, 12), *red(11, 12, level=95.0, test=OTHER)]))
    assert incident.what == "2 of 2 tests are 5.0 to 10.0 % slower"
    assert incident.tests == (TEST, OTHER)


def test_an_incident_that_began_before_the_month_says_when():
    runs = [*nights(FIRST - 5, 100.0), *red(-3, 4), *whole(5, 9)]
    assert of_nights(only_incident(november(runs))) == (-3, 5)
    assert not november([*nights(FIRST - 5, 100.0), *red(-3, -1), *whole(0, 9)]).incidents


def test_a_drift_begins_where_the_gate_said_in_the_end():
    at_first = {"since": str(night(of_day(10)))}
    runs = [*october(), *whole(1, 9), *red(10, 10, verdict=at_first)]
    runs += red(11, 12, verdict={"since": str(night(of_day(9)))})
    assert of_nights(only_incident(november([*runs, *whole(13, 14)]))) == (9, 13)


def test_a_night_that_passes_does_not_end_what_the_gate_says_began_before_it():
    since = {"since": str(night(of_day(10)))}
    runs = [*october(), *whole(1, 9), *red(10, 10), *whole(11, 12, level=98.0), *red(13, 17, level=90.0, verdict=since)]
    assert of_nights(only_incident(november(runs))) == (10, None)


def test_an_acknowledged_loss_goes_on_and_its_ticket_is_the_answer():
    known = Acknowledgement(TEST, METRIC, "ticket 17", datetime.date(2026, 12, 1), -0.1, author(11))
    acked = {"kind": Kind.ACKNOWLEDGED, "red": False, "since": str(night(of_day(10)))}
    runs = [*october(), *whole(1, 9), *red(10, 11), *red(12, 30, verdict=acked)]
    incident = only_incident(november(runs, References(acknowledgements=[known])))
    assert (incident.condition, of_nights(incident)) == (Condition.ACKNOWLEDGED, (10, None))
    assert incident.answered == "acknowledged until 2026-12-01: ticket 17"


def test_a_loss_stays_open_while_its_platform_is_paused():
    pause = Pause("eidf_a100", datetime.date(2026, 12, 24), "cooling", author(20))
    incident = only_incident(november([*october(), *whole(1, 9), *red(10, 16)], References(pauses=[pause])))
    assert of_nights(incident) == (10, None)
    assert incident.answered == "paused until 2026-12-24: cooling"


def test_a_run_that_a_repeat_has_cleared_is_no_incident():
    passed = {"kind": Kind.TRANSIENT, "red": False}
    assert not november([*october(), *whole(1, 9), *red(10, 10, verdict=passed), *whole(11, 12)]).incidents


def test_a_loss_is_the_median_of_all_runs_without_doubt_since_it_began():
    levels = [80.0, 80.0, 80.0, 80.0, 91.0, 92.0, 93.0, 93.0]
    since = {"since": str(night(of_day(3)))}
    slow = [job for day, level in enumerate(levels, 3) for job in red(day, day, level=level, verdict=since)]
    doubted = red(11, 11, level=50.0, doubts=("crowded",), verdict=since)
    incident = only_incident(november([*october(), *whole(1, 2), *slow, *doubted, *whole(12, 13)]))
    assert incident.worst == pytest.approx(-0.145)


def test_runs_of_the_first_night_before_the_loss_are_without_it():
    earlier = [run(of_day(3), 100.0, hour=hour, provenance=OLD) for hour in (13, 15, 18)]
    slow = red(3, 3, 88.0, provenance=NEW)
    incident = only_incident(november([*nights(of_day(3), provenance=OLD), *earlier, *slow, *whole(4, 5)]))
    assert incident.what == "resnet50 tuned was 12.0 % slower"
    assert "driver" in incident.why


def test_a_test_that_fails_since_its_loss_has_both():
    month = november([*october(), *whole(1, 9), *red(10, 16), failed(17), failed(18)])
    assert sorted((one.condition, of_nights(one)) for one in month.incidents) == [
        (Condition.FAILED, (17, None)),
        (Condition.SLOWER, (10, None)),
    ]


# --- cost ------------------------------------------------------------------------------------------------------------


def test_device_hours_are_told_apart_by_why_the_jobs_were_begun():
    def job(day, hours, **changes):
        one = run(of_day(day), 100.0, layout="1x4gpu", **changes)
        return dataclasses.replace(one, ended_s=one.started_s + 3600 * hours)

    month = november(
        [
            job(1, 1.0),
            job(1, 0.5, trial=Trial(Role.CONFIRM, repeat=1)),
            job(2, 0.25, trial=Trial(Role.VISIT, node="n1")),
            job(3, 2.0, trial=Trial(label="after")),
            job(4, 3.0, trial=Trial(Role.AB, arm="a", block=1)),
            dataclasses.replace(job(5, 1.0), ended_s=None),
            dataclasses.replace(job(6, 1.0), started_s=None),
        ]
    )
    [platform] = month.platforms
    hours = platform.hours
    assert (hours.measured, hours.repeats, hours.visits, hours.comparisons) == (4.0, 2.0, 1.0, 20.0)
    assert (hours.total, hours.not_counted) == (27.0, 2)
    assert hours_said(123.4) == "123"


# --- the section of the page, the tables -----------------------------------------------------------------------------


def full_report() -> ReportData:
    pause = Pause("eidf_a100", night(of_day(20)), "<cooling>", author(18))
    runs = [
        *october(),
        *whole(1, 9),
        *red(10, 12),
        *whole(13, 15),
        failed(16),
        failed(17),
        run(of_day(16), 5.0, test=OTHER),
        *whole(3, 7, platform="<new & odd>", test="test_x.py::test_x[<new & odd>-1x1gpu]"),
    ]
    return report(runs, References(pauses=[pause]), now=night(of_day(25)))


def test_every_number_of_the_page_is_in_the_tables():
    whole_report = full_report()
    month = whole_report.month
    page = re.sub(r"\s+", " ", render(whole_report, evidence=None))
    section = page[page.index('<section id="month"') : page.index('<section id="grid"')]
    lines = "\n".join(month_lines(month))
    assert len(month.incidents) == 2
    for platform in month.platforms:
        for said in (share(platform.with_numbers, platform.asked), hours_said(platform.hours.total)):
            assert f">{said}<" in section
            assert said in lines
    for incident in month.incidents:
        assert incident.what in lines
        assert f"{incident.since} until {incident.until}" in lines or f"since {incident.since}, open" in lines
    assert "<new" not in section
    assert "&lt;new &amp; odd&gt;" in section


def test_the_chart_is_xml_with_a_mark_for_each_kind_of_night_and_a_bar_for_each_incident():
    month = full_report().month
    chart = month_nights(month)
    ElementTree.fromstring(chart)
    for state in (NightState.ALL, NightState.SOME, NightState.NONE, NightState.PAUSED, NightState.NOTHING):
        assert f": {state}," in chart
    for incident in month.incidents:
        assert chart.count(f"<title>{incident.what.partition(' ')[0]}") >= 1


def test_a_month_with_nothing_but_one_failed_job_can_be_shown():
    whole_report = report([dataclasses.replace(failed(1), started_s=None, ended_s=None)])
    assert "no test has numbers" in "\n".join(month_lines(whole_report.month))
    assert '<section id="month"' in render(whole_report, evidence=None)


# --- the commands ----------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "history").mkdir(parents=True)
    (folder / "site.yaml").write_text("name: site\n")
    writer = HistoryWriter(folder / "history")
    for job in [*october(), *whole(1, 9), *red(10, 12)]:
        writer.write(job, {"state": "succeeded"})
    ended = failed(13)
    writer.write(ended, {"state": "node lost", "test": ended.key.test})
    return folder


def html(site: Path, *words: str) -> int:
    return main(["html", f"--site={site}", "--tonight=2026-12-03", *words])


def test_a_month_is_printed_and_stands_on_the_page(site, tmp_path, capsys):
    page = tmp_path / "november.html"
    assert html(site, "--month=2026-11", "-o", str(page)) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("November 2026 at site, the nights of 2026-11-01 to 2026-11-30\n")
    assert "cause     failed jobs" in captured.out
    assert "resnet50 tuned has no numbers: node lost" in captured.out
    assert captured.err.endswith(f": written to {page}\n")
    assert '<h2 id="month-title">November 2026</h2>' in page.read_text()


def test_a_month_can_be_printed_alone_and_need_not_be_over(site, capsys):
    assert main(["html", f"--site={site}", "--tonight=2026-11-12", "--month=2026-11"]) == 0
    assert "to 2026-11-12; the month is not over" in capsys.readouterr().out
    assert html(site) == 2
    assert "-o FILE.html is missing" in capsys.readouterr().err


def test_a_month_without_runs_names_those_with_runs(site, capsys):
    assert html(site, "--month=2026-09") == 2
    assert "no run in 2026-09; these tests have runs from 2026-10 to 2026-11" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["2026-13", "november", "202611", "2026-11-03"])
def test_what_is_no_month_is_a_usage_error(site, word, capsys):
    with pytest.raises(SystemExit):
        html(site, f"--month={word}")
    assert "write it as in 2026-11" in capsys.readouterr().err
