"""`python -m reporting month`: what a month was, by histories made by hand, its picture and its tables."""

from __future__ import annotations

import dataclasses
import datetime
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from platforms.job import Metric, Outcome, RefusedError, Role, Trial
from reporting.__main__ import main
from reporting.gate.verdict import Kind
from reporting.history.endings import Ending
from reporting.history.nights import NOON
from reporting.history.writer import HistoryWriter
from reporting.references.answers import Acceptance, Acknowledgement, Author, Note, Pause, References
from reporting.report.data import Condition
from reporting.report.month import MonthData, NightState, month_data
from reporting.report.month_incidents import Cause, MonthIncident
from reporting.report.month_picture import FONTS, INCIDENT_TEXT_AT, LETTER, RIGHT, month_svg
from reporting.report.month_text import headline, hours_said, month_lines, ranges_of, share
from reporting.report.png import png_of
from tests.reporting.gate_nights import FIELDS, METRIC, TEST, night, nights, run

ROOT = Path(__file__).resolve().parents[2]
OTHER = "test_deepcam.py::test_deepcam[eidf_a100-1x4gpu-tuned]"
NOVEMBER = datetime.date(2026, 11, 1)
FIRST = (NOVEMBER - night(0)).days  # the number of the month's first night, since the history begins in October
STEP = {"wait_ms": 10.0, "h2d_ms": 1.0, "step_ms": 100.0, "other_ms": 0.0}


def of_day(day: int) -> int:
    """The number of a night of November."""
    return FIRST + day - 1


def november(runs, references: References | None = None, now: datetime.date = datetime.date(2026, 12, 5), **options):
    ordered = sorted(runs, key=lambda job: job.time_s)
    time = datetime.datetime.combine(now, datetime.time(13))
    return month_data(ordered, references or References(), "campus", NOVEMBER, NOON, time, **options)


def whole(first: int, last: int, **changes):
    """A run in each night of November from one day to another."""
    return nights(last - first + 1, first=of_day(first), **changes)


def failed(day: int, **changes):
    values = {"sane": False, "outcome": Outcome.ERROR, "verdicts": {}, **changes}
    return run(of_day(day), 1.0, metrics={}, **values)


def red(first: int, last: int, level: float = 90.0, **changes):
    """Nights that the gate calls slower, since the first one."""
    since = str(night(of_day(first)))
    verdict = {"kind": Kind.SLOWER, "red": True, "change": (level - 100) / 100, "since": since}
    verdicts = {METRIC: {**verdict, **changes.pop("verdict", {})}}
    return [run(of_day(day), level, verdicts=verdicts, **changes) for day in range(first, last + 1)]


def author(day: int) -> Author:
    return Author("ada", datetime.datetime(2026, 11, day, 9, 0, tzinfo=datetime.UTC))


def acceptance(since: int, level: float = 90.0) -> Acceptance:
    comparability = run(0, 1.0).comparability
    start = night(of_day(since))
    answer = (TEST, METRIC, "samples/s", "higher", comparability, start, level, 0.004, 0.008, ("a",) * 5, 100.0)
    return Acceptance(*answer, reason="driver must stay", author=author(since + 5))


def parts(**changes: float) -> dict[str, Metric]:
    return {name: Metric(value, "ms", "lower") for name, value in {**STEP, **changes}.items()}


def states(month: MonthData, platform: str = "eidf_a100") -> list[NightState]:
    [found] = [one for one in month.platforms if one.name == platform]
    return [one.state for one in found.nights]


def only_incident(month: MonthData) -> MonthIncident:
    [incident] = month.incidents
    return incident


# --- availability ----------------------------------------------------------------------------------------------------


def test_a_night_says_how_many_of_the_tests_have_numbers():
    month = november(
        [
            *whole(1, 3),
            run(of_day(1), 5.0, test=OTHER),
            failed(2, test=OTHER),
            failed(4),
            failed(4, test=OTHER),
        ]
    )
    assert states(month)[:5] == [NightState.ALL, NightState.SOME, NightState.ALL, NightState.NONE, NightState.NOTHING]
    [platform] = month.platforms
    assert (platform.with_numbers, platform.asked) == (4, 7)
    assert platform.availability == pytest.approx(4 / 7)


def test_a_retry_that_has_numbers_makes_up_for_its_first_attempt():
    month = november([failed(1), run(of_day(1), 100.0, attempt=2, hour=22.5)])
    assert states(month)[0] is NightState.ALL
    assert not month.incidents


def test_a_paused_night_is_no_missing_one():
    pause = Pause("eidf_a100", night(of_day(4)), "cooling", author(2))
    month = november(whole(1, 2), References(pauses=[pause]))
    assert states(month)[:5] == [
        NightState.ALL,
        NightState.ALL,
        NightState.PAUSED,
        NightState.PAUSED,
        NightState.NOTHING,
    ]


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
    assert month.platforms[0].availability == 1.0


def test_a_platform_without_runs_in_the_month_has_a_row_if_it_ran_shortly_before():
    shortly = nights(3, first=FIRST - 5, platform="shortly")
    long_ago = nights(3, first=FIRST - 70, platform="long_ago")
    month = november([*whole(1, 2), *shortly, *long_ago])
    assert [platform.name for platform in month.platforms] == ["eidf_a100", "shortly"]
    assert month.platforms[1].availability is None


def test_runs_of_campaigns_and_visits_are_not_asked_for():
    visit = run(of_day(1), 100.0, trial=Trial(Role.VISIT, node="n1"), platform="visited")
    assert states(november([visit]), "visited")[0] is NightState.NOTHING


def test_a_share_is_never_rounded_to_all_or_to_nothing():
    assert share(0.99999) == "99.9 %"
    assert share(1.0) == "100.0 %"
    assert share(0.00001) == "0.1 %"
    assert share(None) == "-"


# --- performance -----------------------------------------------------------------------------------------------------


def test_a_test_stands_where_its_last_seven_nights_are():
    runs = [*nights(FIRST, 100.0), *[run(of_day(day), 100.0 if day < 20 else 98.0) for day in range(1, 31)]]
    [standing] = november(runs).platforms[0].standings
    assert (standing.level, standing.value) == (100.0, 98.0)
    assert standing.change == pytest.approx(-0.02)
    assert (standing.lowest, standing.highest) == pytest.approx((-0.02, 0.0))
    assert (standing.runs, standing.is_accepted) == (30, False)
    assert standing.name.endswith("tuned")


def test_each_run_is_compared_with_the_level_of_its_night():
    runs = [*nights(FIRST, 100.0), *whole(1, 14), *[run(of_day(day), 90.0) for day in range(15, 31)]]
    [standing] = november(runs, References(acceptances=[acceptance(15)])).platforms[0].standings
    assert (standing.level, standing.is_accepted, standing.change) == (90.0, True, 0.0)
    assert standing.lowest == pytest.approx(-0.01)
    assert standing.highest == pytest.approx(0.01)
    assert standing.from_first_pin == pytest.approx(-0.1)


def test_runs_in_doubt_and_runs_after_the_month_do_not_count():
    doubted = run(of_day(10), 50.0, doubts=("unsteady",), run_id="doubted")
    later = [run(of_day(30) + number, 10.0) for number in range(1, 5)]
    [standing] = november([*nights(FIRST, 100.0), *whole(1, 9), *whole(11, 30), doubted, *later]).platforms[0].standings
    assert standing.lowest == pytest.approx(-0.01)
    assert standing.value == pytest.approx(100.0, abs=0.6)


def test_a_series_without_a_pin_learns():
    [standing] = november(whole(10, 16)).platforms[0].standings
    assert (standing.level, standing.change, standing.learned) == (None, None, 7)


# --- incidents -------------------------------------------------------------------------------------------------------


def test_a_change_of_the_driver_is_the_cause_and_an_acceptance_the_answer():
    before = [*nights(FIRST, 100.0, provenance={"driver": "570"}), *whole(1, 9, provenance={"driver": "570"})]
    slow = red(10, 14, provenance={"driver": "580"})
    after = [run(of_day(day), 90.0, provenance={"driver": "580"}) for day in range(15, 20)]
    incident = only_incident(november([*before, *slow, *after], References(acceptances=[acceptance(10)])))
    assert (incident.cause, incident.begin, incident.end) == (Cause.CHANGE, night(of_day(10)), night(of_day(15)))
    assert incident.why.startswith("changed: driver 570 -> 580")
    assert incident.what == "resnet50 tuned 10.0 % slower"
    assert incident.answered == "accepted by ada on 2026-11-15"
    assert incident.nights == tuple(night(of_day(day)) for day in range(10, 15))


def test_what_changed_after_the_begin_of_a_drift_is_no_cause():
    old, new = {"driver": "570"}, {"driver": "580"}
    since = {"kind": Kind.DRIFTED, "since": str(night(of_day(10)))}
    runs = [*whole(1, 12, provenance=old), *red(13, 15, level=98.0, verdict=since, provenance=new)]
    assert only_incident(november(runs)).cause is Cause.UNEXPLAINED


def test_what_changes_all_the_time_is_no_cause_and_neither_are_the_nodes():
    before = [
        dataclasses.replace(job, provenance={"nodes": "n1", "commit": str(number % 2)})
        for number, job in enumerate(whole(1, 9))
    ]
    incident = only_incident(november([*before, *red(10, 10, provenance={"nodes": "n2", "commit": "new"})]))
    assert (incident.cause, incident.end) == (Cause.UNEXPLAINED, None)
    assert incident.answered == ""


def test_a_loss_in_waiting_for_data_is_one_of_the_input():
    before = [
        dataclasses.replace(job, beside=parts(wait_ms=10.0 + number % 3 / 10)) for number, job in enumerate(whole(1, 9))
    ]
    slow = [
        dataclasses.replace(job, beside=parts(wait_ms=21.0 + number % 3 / 10)) for number, job in enumerate(red(10, 13))
    ]
    note = Note("eidf_a100", night(of_day(9)), "new file system", author(9))
    incident = only_incident(november([*before, *slow], References(notes=[note])))
    assert incident.cause is Cause.INPUT
    assert "noted on 2026-11-09: new file system" in incident.why
    assert "waiting for data" in incident.why


def test_a_note_explains_what_nothing_else_does():
    note = Note("eidf_a100", night(of_day(9)), "the BIOS is new", author(9))
    incident = only_incident(november([*whole(1, 9), *red(10, 10)], References(notes=[note])))
    assert (incident.cause, incident.why) == (Cause.CHANGE, "noted on 2026-11-09: the BIOS is new")


def test_a_node_is_one_incident_however_often_it_comes():
    said = {"short": "node n07: -15.0 % in 3 of 3, n12 normal", "text": "It is node n07"}
    named = {"kind": Kind.NODE, "confirmation": said}
    runs = [*whole(1, 2), *red(3, 3, verdict=named), *whole(4, 19), *red(20, 20, verdict=named), *whole(21, 30)]
    incident = only_incident(november(runs))
    assert (incident.cause, incident.why) == (Cause.NODE, "node n07")
    assert (incident.begin, incident.end) == (night(of_day(3)), night(of_day(21)))
    assert len(incident.nights) == 2


def test_data_from_elsewhere_is_the_input():
    other = {**FIELDS, "data_from": "mixed"}
    slow = red(10, 10, fields=other, verdict={"kind": Kind.LEFT, "change": None})
    incident = only_incident(november([*whole(1, 9), *slow]))
    assert (incident.cause, incident.why) == (Cause.INPUT, "data came from storage, is mixed")
    assert incident.what.endswith("left its series")


def test_jobs_without_numbers_are_counted_by_how_they_ended():
    ended = {1: "node lost", 2: "time limit", 3: "time limit"}

    def ending(job):
        return Ending(
            ended[(night(0) + datetime.timedelta(days=int(job.key.job_id.split("-")[0])) - NOVEMBER).days + 1]
        )

    incident = only_incident(november([failed(1), failed(2), failed(3), *whole(4, 5)], ending=ending))
    assert (incident.cause, incident.why) == (Cause.FAILED, "time limit (2), node lost (1)")
    assert (incident.begin, incident.end, incident.worst) == (night(of_day(1)), night(of_day(4)), None)
    missing = only_incident(november([failed(1), *whole(2, 3)], ending=lambda _job: Ending("data missing")))
    assert missing.cause is Cause.INPUT


def test_tests_that_change_in_the_same_nights_are_one_incident():
    runs = [*whole(1, 9), *whole(1, 9, test=OTHER), *red(10, 12), *red(11, 12, level=95.0, test=OTHER)]
    incident = only_incident(november(runs))
    assert incident.what == "2 of 2 tests 5.0 to 10.0 % slower"
    assert incident.tests == (TEST, OTHER)


def test_an_incident_that_began_before_the_month_says_when():
    runs = [*nights(FIRST - 5, 100.0), *red(-3, 4), *whole(5, 9)]
    incident = only_incident(november(runs))
    assert (incident.begin, incident.end) == (night(of_day(-3)), night(of_day(5)))
    assert incident.nights[0] == NOVEMBER
    assert not november([*nights(FIRST - 5, 100.0), *red(-3, -1), *whole(1, 9)]).incidents


def test_the_gates_last_word_says_when_a_loss_began():
    at_first = {"since": str(night(of_day(5)))}
    runs = [*whole(1, 9), *red(10, 10, verdict=at_first), *red(11, 12, verdict={"since": str(night(of_day(9)))})]
    assert only_incident(november(runs)).begin == night(of_day(9))
    later = {"since": str(night(of_day(12)))}
    runs = [*whole(1, 9), *red(10, 11), *red(12, 12, level=80.0, verdict=later)]
    assert only_incident(november(runs)).begin == night(of_day(10))


def test_a_night_that_passes_does_not_end_what_the_gate_says_began_before_it():
    since = {"since": str(night(of_day(10)))}
    runs = [*whole(1, 9), *red(10, 10), *whole(11, 12, level=98.0), *red(13, 14, level=97.0, verdict=since)]
    incident = only_incident(november(runs))
    assert (incident.begin, incident.end) == (night(of_day(10)), None)
    assert len(incident.nights) == 3


def test_an_acknowledged_loss_goes_on_and_its_ticket_is_the_answer():
    known = Acknowledgement(TEST, METRIC, "ticket 17", datetime.date(2026, 12, 1), -0.1, author(11))
    acked = {"kind": Kind.ACKNOWLEDGED, "red": False, "since": str(night(of_day(10)))}
    runs = [*whole(1, 9), *red(10, 11), *red(12, 30, verdict=acked)]
    incident = only_incident(november(runs, References(acknowledgements=[known])))
    assert (len(incident.nights), incident.end) == (21, None)
    assert incident.answered == "acknowledged until 2026-12-01: ticket 17"


def test_a_transient_run_is_no_incident():
    passed = {"kind": Kind.TRANSIENT, "red": False}
    assert not november([*whole(1, 9), *red(10, 10, verdict=passed), *whole(11, 12)]).incidents


def test_a_loss_is_the_median_of_the_months_runs_since_it_began():
    since = {"since": str(night(of_day(-3)))}
    levels = [80.0, 80.0, 80.0, 80.0, 91.0, 92.0, 97.0]
    slow = [job for day, level in enumerate(levels, -3) for job in red(day, day, level=level, verdict=since)]
    doubted = red(4, 4, level=50.0, doubts=("unsteady",))
    incident = only_incident(november([*nights(FIRST - 4, 100.0), *slow, *doubted]))
    assert incident.begin == night(of_day(-3))
    assert incident.worst == pytest.approx(-0.08)  # of 91, 92 and 97
    assert incident.what == "resnet50 tuned 8.0 % slower"


def test_runs_of_the_first_night_before_the_loss_are_without_it():
    earlier = [run(of_day(3), 100.0, hour=hour, provenance={"driver": "1"}) for hour in (13, 15, 18)]
    slow = red(3, 3, 88.0, provenance={"driver": "2"})
    incident = only_incident(november([*nights(of_day(3), provenance={"driver": "1"}), *earlier, *slow]))
    assert incident.what == "resnet50 tuned 12.0 % slower"
    assert "driver" in incident.why


def test_the_loss_of_a_node_is_that_of_its_own_runs():
    named = {"kind": Kind.NODE, "confirmation": {"short": "node n07: -15.0 % in 3 of 3", "text": "It is node n07"}}
    runs = [*nights(FIRST, 100.0), *red(3, 3, 85.0, verdict=named), *whole(4, 9), *red(10, 10, 83.0, verdict=named)]
    assert only_incident(november(runs)).what == "resnet50 tuned 16.0 % slower"


def test_a_loss_that_people_have_accepted_is_over_and_its_test_is_not_slower():
    runs = [*nights(FIRST, 100.0), *whole(1, 9), *red(10, 16)]
    open_loss = november(runs, now=night(of_day(16)))
    assert open_loss.platforms[0].standings[0].condition is Condition.SLOWER
    assert only_incident(open_loss).end is None
    assert "1 of 1 tests is slower now; 1 incident, 1 open" in headline(open_loss)
    accepted = november(runs, References(acceptances=[acceptance(10)]), now=night(of_day(16)))
    assert accepted.platforms[0].standings[0].condition is Condition.OK
    assert only_incident(accepted).end == night(of_day(17))
    assert "0 of 1 tests are slower now; 1 incident, none open" in headline(accepted)
    useless = november(runs, References(acceptances=[acceptance(10, level=100.0)]), now=night(of_day(16)))
    assert only_incident(useless).end is None


def test_a_test_whose_last_jobs_failed_is_not_ok_at_the_end():
    [standing] = november([*nights(FIRST, 100.0), *whole(1, 28), failed(29), failed(30)]).platforms[0].standings
    assert standing.condition is Condition.FAILED


def small_loss(change: float, days: tuple[int, int] = (10, 14), **changes) -> MonthData:
    """A drift of some nights after two months at one level."""
    before = nights(FIRST + 9, 100.0)
    drifted = {"kind": Kind.DRIFTED, "change": change}
    slow = red(*days, level=100 + 100 * change, verdict=drifted, **changes)
    return november([*before, *slow, *whole(days[1] + 1, 30)])


def test_a_small_loss_that_was_soon_over_without_a_cause_is_no_incident():
    month = small_loss(-0.004)
    assert not month.incidents
    [loss] = month.short_losses
    assert loss.what == "resnet50 tuned 0.4 % slower"
    assert re.fullmatch(r"the gate finds a lasting loss of [123]\.\d % within 6 nights 80 times of 100", loss.why)
    lines = "\n".join(month_lines(month))
    assert "1 short loss of 0.4 % went away by itself, which may be chance:\n  eidf_a100: resnet50 tuned" in lines
    assert "went away by itself" in month_svg(month)
    assert "no incident" in headline(month)
    assert "no test was slower" not in lines.lower() + month_svg(month).lower()


@pytest.mark.parametrize(
    "month",
    [
        small_loss(-0.05),
        small_loss(-0.004, days=(10, 18)),
        small_loss(-0.004, provenance={"driver": "580"}),
    ],
    ids=["large", "long", "with a cause"],
)
def test_a_loss_that_is_large_or_long_or_has_a_cause_is_an_incident(month):
    assert len(month.incidents) == 1
    assert not month.short_losses


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
        ],
        devices={"eidf_a100": 8},
    )
    [platform] = month.platforms
    hours = platform.hours
    assert (hours.measured, hours.repeats, hours.visits, hours.comparisons) == (4.0, 2.0, 1.0, 20.0)
    assert (hours.jobs, hours.not_counted) == (5, 2)
    assert platform.share == pytest.approx(27 / (8 * 24 * 30))
    assert hours_said(123.4) == "123"


# --- the picture, the tables -----------------------------------------------------------------------------------------


def full_month() -> MonthData:
    pause = Pause("eidf_a100", night(of_day(20)), "<cooling>", author(18))
    runs = [
        *nights(FIRST, 100.0),
        *whole(1, 9),
        *red(10, 12),
        *whole(13, 15),
        failed(16),
        failed(17),
        run(of_day(16), 5.0, test=OTHER),
        *whole(3, 7, platform="<new & odd>", test="test_x.py::test_x[<new & odd>-1x1gpu]"),
    ]
    return november(runs, References(pauses=[pause]), now=night(of_day(25)))


def test_every_number_of_the_picture_is_in_the_tables():
    month = full_month()
    picture = month_svg(month)
    lines = "\n".join(month_lines(month))
    for platform in month.platforms:
        for said in (share(platform.availability), hours_said(platform.hours.total)):
            assert f">{said}<" in picture
            assert said in lines
    for incident in month.incidents:
        assert incident.what in lines
        assert str(incident.begin) in lines


def test_numbers_and_nights_are_said_briefly():
    days = [1, 2, 3, 5, 18, 19]
    assert ranges_of([night(of_day(day)) for day in days]) == "2026-11-01 to 11-03, 11-05, 11-18 to 11-19"


def test_the_settings_of_a_test_stand_in_their_order():
    tests = [f"test_resnet50.py::test_resnet50[cs2-1x1csx-{setting}]" for setting in ("gbs32-smoke", "gbs32", "tuned")]
    runs = [job for test in tests for job in whole(1, 2, test=test, platform="cs2", layout="1x1csx")]
    assert [standing.test for standing in november(runs).platforms[0].standings] == [tests[1], tests[0], tests[2]]


def test_a_long_text_of_an_incident_leaves_room_for_its_answer():
    """The answer stands at the right end of the same line."""
    test = f"test_{'a' * 200}.py::test_{'a' * 200}[eidf_a100-1x4gpu-tuned]"
    runs = [*nights(FIRST, test=test), *red(10, 30, test=test)]
    [line] = re.findall(r'<text class="name"[^>]*>([^<]*aaaa[^<]*)</text>', month_svg(november(runs)))
    assert line.endswith("…")
    assert LETTER * (18 * len(line) + 15 * len("no answer")) < RIGHT - INCIDENT_TEXT_AT


def test_the_picture_is_xml_and_escapes_what_it_shows():
    root = ElementTree.fromstring(month_svg(full_month()))
    assert root.get("width") == "1600"
    assert "<new" not in month_svg(full_month())
    assert "var(" not in month_svg(full_month())


def test_a_month_with_nothing_but_one_failed_job_can_be_drawn():
    month = november([dataclasses.replace(failed(1), started_s=None, ended_s=None)])
    ElementTree.fromstring(month_svg(month))
    assert "no test has numbers" in "\n".join(month_lines(month))


def test_a_png_has_the_width_and_is_refused_where_no_font_is():
    pytest.importorskip("resvg_py")
    picture = month_svg(full_month())
    content = png_of(picture, 800, FONTS)
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(content[16:20], "big") == 800
    with pytest.raises(RefusedError, match=r"no font.*or write an \.svg"):
        png_of(picture, 800, FONTS, skip_system_fonts=True)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    (folder / "history").mkdir(parents=True)
    (folder / "site.yaml").write_text("name: site\n")
    writer = HistoryWriter(folder / "history")
    for job in [*nights(20), *whole(1, 9), *red(10, 12)]:
        writer.write(job, {"state": "succeeded"})
    ended = failed(13)
    writer.write(ended, {"state": "node lost", "test": ended.key.test})
    return folder


def month_of(site: Path, *words: str) -> int:
    return main(["month", "--site", str(site), *words])


def test_the_last_whole_month_with_runs_is_shown_else_the_present_one(site, capsys):
    assert month_of(site, "--tonight", "2026-12-03") == 0
    assert capsys.readouterr().out.startswith("November 2026 at site, the nights of 2026-11-01 to 2026-11-30\n")
    assert month_of(site, "--tonight", "2026-11-12") == 0
    assert capsys.readouterr().out.startswith("October 2026 at site")
    assert month_of(site, "2026-11", "--tonight", "2026-11-12") == 0
    assert "to 2026-11-12; the month is not over" in capsys.readouterr().out
    assert month_of(site, "--tonight", "2026-10-05") == 0
    assert "October 2026 at site, the nights of 2026-10-01 to 2026-10-05" in capsys.readouterr().out


def test_how_a_job_ended_comes_from_its_run_json(site, capsys):
    month_of(site, "2026-11", "--tonight", "2026-12-03")
    assert "cause     failed jobs: node lost (1)" in capsys.readouterr().out


def test_a_picture_is_written_beside_the_tables(site, tmp_path, capsys):
    picture = tmp_path / "month.svg"
    assert month_of(site, "2026-11", "--tonight", "2026-12-03", "-o", str(picture), "--devices", "eidf_a100=32") == 0
    captured = capsys.readouterr()
    assert captured.err == f"the picture is written to {picture}\n"
    assert "Availability" in captured.out
    ElementTree.fromstring(picture.read_text())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["2026-09"], "no run in 2026-09; the history has runs from 2026-10 to 2026-11"),
        (["2027-01"], "no run in 2027-01"),
        (["-o", "month.pdf"], "-o month.pdf: the name of a picture ends with .svg or .png"),
        (["-o", "no/such/month.svg"], "its folder does not exist (mkdir -p no/such)"),
        (["--devices", "eidf_a100"], "write a platform and its number of devices, as in a100=32"),
        (["--devices", "eidf_a10=3"], "the history has no run of 'eidf_a10' (did you mean 'eidf_a100'?)"),
    ],
)
def test_a_mistake_has_one_message(site, words, said, capsys):
    assert month_of(site, "--tonight", "2026-12-03", *words) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_a_picture_that_cannot_be_written_says_why(site, tmp_path, monkeypatch, capsys):
    (tmp_path / "folder.svg").mkdir()
    assert month_of(site, "2026-11", "--tonight", "2026-12-03", "-o", str(tmp_path / "folder.svg")) == 2
    assert "folder.svg: this is a folder, and FILE is a file (-o " in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "resvg_py", None)  # as if it were not installed
    assert month_of(site, "2026-11", "--tonight", "2026-12-03", "-o", str(tmp_path / "month.png")) == 2
    assert "pip install 'resvg-py>=0.5,<0.6'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.name != "site"] == ["folder.svg"]


@pytest.mark.parametrize("word", ["2026-13", "november", "202611", "2026-11-03"])
def test_what_is_no_month_is_a_usage_error(site, word, capsys):
    with pytest.raises(SystemExit):
        month_of(site, word)
    assert "write it as in 2026-11" in capsys.readouterr().err


def test_a_picture_needs_nothing_but_the_standard_library():
    lines = ["import sys", "import reporting.commands.month", "print('resvg_py' in sys.modules)"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "False", done.stderr
