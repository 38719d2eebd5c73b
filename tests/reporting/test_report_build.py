"""The history becomes a report: what is slower, since when, where and why."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from platforms.job import Outcome, RefusedError, Role, Trial
from reporting.gate.tonight import judge_tonight
from reporting.history.endings import Ending
from reporting.history.envelope import TRIED
from reporting.history.nights import NOON
from reporting.references.answers import Acknowledgement, Author, Note, Pause, References
from reporting.report.build import build
from reporting.report.comment import comment
from reporting.report.data import Condition, ReportData
from reporting.report.display import Display
from reporting.report.page import render
from reporting.report.report_json import json_schema, to_json
from reporting.report.trend_text import many_tests, one_test
from tests.reporting.campaigns import parts
from tests.reporting.fleet_history import fleet_nights
from tests.reporting.gate_nights import AUTHOR, FIELDS, METRIC, TEST, accepted, failed, night, nights, run

OTHER = "test_deepcam.py::test_deepcam[eidf_a100-1x4gpu-tuned]"
FOURTH = "test_cosmoflow.py::test_cosmoflow[eidf_a100-1x4gpu-tuned]"
THIRD = "test_cosmoflow.py::test_cosmoflow[archer2-1x2cpu-tuned]"


def slower(first: int, count: int, level: float = 90.0, **changes):
    """Nights with another driver in which each step takes longer."""
    changes.setdefault("provenance", {"driver": "580.65", "nodes": "n01"})
    changes.setdefault("beside", parts(2, 1, 56, 0.1))
    changes.setdefault("verdicts", {METRIC: {"kind": "slower", "red": True}})
    return nights(count, level, first, **changes)


def calm(count: int, first: int = 0, **changes):
    changes.setdefault("provenance", {"driver": "570.124", "nodes": "n01"})
    changes.setdefault("beside", parts(2, 1, 50, 0.1))
    return nights(count, 100.0, first, **changes)


def report_of(envelopes, references: References | None = None, tonight: int | None = None, **options) -> ReportData:
    ordered = sorted(envelopes, key=lambda envelope: envelope.time_s)
    now = datetime.datetime.fromtimestamp(ordered[-1].time_s + 3600)
    if tonight is not None:
        now = datetime.datetime.combine(night(tonight), datetime.time(23))
    return build(ordered, references or References(), "site", NOON, now, **options)


def test_a_calm_site_has_no_incident():
    report = report_of(calm(30))
    assert report.headline == "No test is slower"
    assert report.incidents == ()
    (test,) = report.tests
    assert (test.workload, test.layout, test.setting, test.condition) == ("resnet50", "", "tuned", Condition.OK)
    (series,) = test.series
    assert series.pin == 100.0
    assert (series.compared, series.compared_nights, series.change) == (100.0, 7, 0.0)
    assert len(series.points) == 30
    assert [(level.from_night, level.to_night, level.value) for level in series.levels] == [
        (str(night(0)), None, 100.0)
    ]


def test_a_test_that_was_only_tried_where_it_cannot_run_is_no_test_of_the_report():
    tried = [replace(job, sane=False, metrics={}, outcome=Outcome.SKIPPED) for job in calm(2, test=OTHER)]
    (test,) = report_of([*calm(3), *tried]).tests
    assert test.id == TEST
    with pytest.raises(RefusedError, match="`--try-unsupported` has tried them in vain"):
        report_of(tried)


def test_a_try_that_failed_is_no_incident():
    tried = failed(30, doubts=(TRIED,))
    report = report_of([*calm(30), tried])
    assert (report.headline, report.incidents) == ("No test is slower", ())
    with pytest.raises(RefusedError, match="`--try-unsupported` has tried them in vain"):
        report_of([tried])


def test_one_change_of_two_tests_is_one_incident_that_answers_four_questions():
    runs = [*calm(30), *slower(30, 7)]
    runs += [*calm(30, test=OTHER, hour=23.0), *slower(30, 7, 94.0, test=OTHER, hour=23.0)]
    runs += calm(37, test=THIRD, platform="archer2", provenance={"nodes": "a1"})
    note = Note("eidf_a100", night(30), "driver upgrade", AUTHOR)
    report = report_of(runs, References(notes=[note]))
    assert report.headline == "2 of 3 tests are slower, on eidf_a100"
    (incident,) = report.incidents
    assert incident.condition is Condition.SLOWER
    assert incident.what == "2 of 2 tests are 6.0 to 10.0 % slower"
    assert (incident.since, incident.nights) == (str(night(30)), 7)
    assert incident.platform == "eidf_a100"
    assert incident.where == "all of it in the device step; input unchanged"
    assert incident.why == f"changed at that time: driver 570.124 -> 580.65; noted on {night(30)}: driver upgrade"
    assert report.conditions == {"slower": 2, "ok": 1}


def test_a_loss_has_one_size_on_one_night_in_every_report():
    """The last run and the last seven nights are milder than the loss is as a whole."""
    runs = [*calm(30), *slower(30, 9, 90.0), *slower(39, 7, 94.0)]
    report = report_of(runs)
    verdict = judge_tonight(runs[-1], runs, References(), NOON, datetime.datetime.combine(night(46), NOON))[METRIC]
    assert verdict.change == pytest.approx(-0.06, abs=0.002)
    assert "this run        94.0, -6.0 %" in verdict.text
    (incident,) = report.incidents
    assert incident.worst == report.tests[0].series[0].change == pytest.approx(-0.091, abs=0.001)
    size = f"{100 * abs(incident.worst):.1f} %"
    trend = many_tests(report, Display(100)), one_test(report, report.tests[0], Display(100))
    said, sure, *lines = verdict.text.splitlines()
    (causes,) = [line for line in lines if line.startswith("-9.1 %, ")]
    for text in (said, sure, causes, verdict.short, incident.what, comment(report, {}), *map("\n".join, trend)):
        assert size.split()[0] in text


def test_a_device_that_does_not_say_where_a_change_is_says_why():
    reason = "its <own> nodes feed it"
    report = report_of([*calm(28, beside={}, no_split=reason), *slower(28, 2, beside={}, no_split=reason)])
    series = report.tests[0].series[0]
    assert (series.parts, series.no_split) == ((), reason)
    assert series.where == f"where in a step is not known ({reason})"
    assert f" %, {series.where}; changed: driver" in series.text
    assert "Where it is" not in series.text
    assert report.incidents[0].where == series.where
    page = render(report, evidence=None)
    assert "Where the time of a step goes is not known: <bdi>its &lt;own&gt; nodes feed it</bdi>." in page
    assert "goes is not known of <bdi>eidf_a100</bdi>" in page
    assert "<own>" not in page


def test_changes_of_one_platform_in_other_weeks_are_two_incidents():
    runs = [*calm(40), *slower(40, 7)]
    runs += [*calm(24, test=OTHER, hour=23.0), *slower(24, 23, test=OTHER, hour=23.0)]
    assert [incident.since for incident in report_of(runs).incidents] == [str(night(24)), str(night(40))]


def test_tests_that_are_slow_in_other_parts_say_how_many_in_which():
    runs = [*calm(30), *slower(30, 7)]
    runs += calm(30, test=OTHER, hour=23.0)
    runs += slower(30, 7, 94.0, test=OTHER, hour=23.0, beside=parts(8, 1, 50, 0.1))
    (incident,) = report_of(runs).incidents
    assert incident.where == "most of it in the device step (1 test), waiting for data (1 test)"


def test_a_slow_node_is_an_incident_since_its_first_slow_run_and_no_cause_of_others():
    confirmed = {"kind": "node", "red": True, "confirmation": {"short": "node n02: -10.0 % in 3 of 3", "text": ""}}
    runs = []
    for number in range(40):
        node = f"n{number % 5 + 1:02}"
        is_slow = node == "n02" and number >= 30
        verdict = confirmed if is_slow else {"kind": "ok", "red": False}
        value = 90.0 if is_slow else 100.0 + number % 3 / 2
        runs.append(run(number, value, provenance={"nodes": node}, verdicts={METRIC: verdict}))
    *earlier, last = runs[:37]
    report = report_of([*earlier, last])
    (incident,) = report.incidents
    assert incident.condition is Condition.SLOWER
    assert incident.what == "resnet50 tuned is 10.4 % slower"
    assert incident.where == "node n02"
    assert incident.why == "the node itself: other nodes are as they were"
    assert incident.since == report.tests[0].series[0].since == str(night(31))


def test_a_node_that_only_its_visits_show_as_slow_is_told_too():
    report = report_of([*calm(21), *fleet_nights(4, slow={"n07": 0.08})], tonight=20)
    assert report.headline == "No test is slower; n07 is a slow node"
    (incident,) = [one for one in report.incidents if not one.tests]
    assert incident.where.startswith("node n07 -8")


def test_a_change_without_any_recorded_cause_says_so():
    runs = [*calm(30), *slower(30, 7, provenance={"driver": "570.124", "nodes": "n01"})]
    why = report_of(runs).incidents[0].why
    assert why == "nothing that is recorded has changed (recorded: driver, nodes)"


def test_an_acknowledged_loss_is_amber_with_its_ticket():
    known = Acknowledgement(TEST, METRIC, "https://tickets/17", night(60), -0.10, AUTHOR)
    report = report_of([*calm(30), *slower(30, 7)], References(acknowledgements=[known]))
    assert report.headline == "No test is slower; 1 acknowledged"
    (incident,) = report.incidents
    assert incident.condition is Condition.ACKNOWLEDGED
    assert incident.why.endswith("; known: https://tickets/17")


def test_an_accepted_level_takes_the_place_of_the_pin():
    report = report_of([*calm(30), *slower(30, 9)], References(acceptances=[accepted(night(30))]))
    first, second = report.tests[0].series[0].levels
    assert (first.to_night, first.is_accepted) == (str(night(29)), False)
    assert (second.from_night, second.value, second.is_accepted) == (str(night(30)), 90.0, True)
    assert [note.kind for note in report.notes] == ["accept"]
    assert report.incidents == ()


def test_failed_jobs_are_told_with_their_first_night():
    report = report_of([*calm(30), *map(failed, range(30, 33))])
    assert report.headline == "Nothing can be said of the speed yet; resnet50 on eidf_a100 has failed"
    (incident,) = report.incidents
    assert incident.condition is Condition.FAILED
    assert (incident.since, incident.nights) == (str(night(30)), 3)
    assert incident.what == "resnet50 tuned has no numbers: failed"
    series = report.tests[0].series[0]
    assert (series.condition, series.short) == (Condition.FAILED, f"no numbers since {night(30)}: failed")
    assert [point.value for point in report.tests[0].series[0].points[-3:]] == [None, None, None]


def test_an_incident_of_failed_jobs_says_how_they_ended_where_and_why():
    ends = {
        TEST: Ending("node lost", "n07 does not answer since 03:12"),
        OTHER: Ending("node lost", "n07 does not answer since 03:12"),
        FOURTH: Ending("compile failed"),
    }
    jobs = []
    for test, ran_on in ((TEST, "n01,n07"), (OTHER, "n07"), (FOURTH, "n07,n08")):
        jobs += [*calm(30, test=test), failed(30, test=test, provenance={"nodes": ran_on})]
    report = report_of(jobs, ending=lambda job: ends[job.key.test])
    (incident,) = report.incidents
    assert incident.what == "3 of 3 tests have no numbers: node lost (2), compile failed (1)"
    assert incident.where == "node n07"
    assert incident.why == "n07 does not answer since 03:12 (2 tests)"
    page = render(report, evidence="")
    assert "n07 does not answer since 03:12" in page
    assert "compile failed, 1 night without numbers" in re.sub(r"<[^>]*>", "", page)


def test_how_a_job_ended_is_not_read_of_a_test_that_has_numbers_since():
    def ending(_job):
        raise AssertionError

    assert report_of([*calm(10), failed(10), *calm(10, 11)], ending=ending).incidents == ()


def test_a_test_that_never_had_numbers_has_no_series():
    report = report_of([failed(0, outcome=Outcome.ERROR)])
    assert report.tests[0].series == ()
    assert report.incidents[0].what == "resnet50 tuned has no numbers: error"


def test_a_change_within_a_night_is_that_of_the_runs_since_then():
    """Of three runs in the last night only the last one is slow."""
    hours = [run(30, 100.0, hour=hour, provenance={"driver": "570.124", "nodes": "n01"}) for hour in (13, 18)]
    slow = run(30, 88.0, hour=23, provenance={"driver": "580.65", "nodes": "n01"})
    report = report_of([*calm(30), *hours, slow])
    (series,) = report.tests[0].series
    assert (series.condition, series.since_run) == (Condition.SLOWER, slow.key.run_id)
    assert series.change == pytest.approx(-0.12, abs=0.005)
    assert [point.run_id for point in series.points_of_change()] == [slow.key.run_id]
    assert "12.0 %" in report.incidents[0].what or report.incidents[0].worst == pytest.approx(-0.12, abs=0.005)


def test_runs_in_another_unit_are_no_points_and_the_change_is_named():
    before = calm(20)
    after = [run(number, 0.1, unit="ksamples/s", provenance={"driver": "570.124"}) for number in range(20, 25)]
    (series,) = report_of([*before, *after]).tests[0].series
    assert [point.value for point in series.points] == [0.1] * 5
    assert "effective_throughput is in ksamples/s, was in samples/s" in series.points[0].changes


def test_an_acknowledgement_that_is_over_leaves_a_test_red_that_does_not_run_any_more():
    runs = [*calm(30), *slower(30, 6)]
    answer = Acknowledgement(TEST, METRIC, "T-1", night(37), -0.1, AUTHOR)
    assert (
        report_of(runs, References(acknowledgements=(answer,)), tonight=37).tests[0].condition is Condition.ACKNOWLEDGED
    )
    assert report_of(runs, References(acknowledgements=(answer,)), tonight=38).tests[0].condition is Condition.SLOWER


def test_pending_jobs_are_no_points():
    report = report_of([*calm(30), failed(30, outcome=Outcome.PENDING)])
    assert len(report.tests[0].series[0].points) == 30
    assert report.tests[0].condition is Condition.OK


def test_a_run_that_left_its_series_is_not_called_slower():
    moved = {**FIELDS, "data_from": "memory"}
    (incident,) = report_of([*calm(30), *calm(2, 30, fields=moved)]).incidents
    assert incident.what == "resnet50 tuned left its series: data came from storage, is memory"


def test_a_paused_platform_is_no_incident():
    pause = Pause("eidf_a100", night(60), "cooling", Author("ada", datetime.datetime(2026, 11, 2, 9)))
    report = report_of([*calm(30), *slower(30, 7)], References(pauses=[pause]))
    assert report.tests[0].condition is Condition.PAUSED
    assert report.tests[0].series[0].condition is Condition.PAUSED
    assert report.incidents == ()
    assert report.platforms[0].paused == f"until {night(60)}: cooling"


def test_a_series_without_runs_for_days_is_blind():
    report = report_of(calm(30), tonight=36)
    assert report.tests[0].condition is Condition.BLIND
    assert report.headline == "Nothing can be said of the speed yet; 1 blind"


def test_device_hours_count_repeats_and_visits():
    jobs = calm(21, fields={**FIELDS, "devices": 4})
    repeat = run(20, 100.0, hour=23.0, fields={**FIELDS, "devices": 4}, trial=Trial(Role.CONFIRM, repeat=1))
    jobs = [replace(job, ended_s=job.time_s + 900) for job in [*jobs, repeat]]
    assert report_of(jobs).tests[0].device_hours == pytest.approx(22 * 4 * 0.25)


def test_jobs_of_campaigns_alone_are_refused():
    labelled = [run(number, 100.0, trial=Trial(label="before", repeat=number)) for number in range(3)]
    with pytest.raises(RefusedError, match="campaigns"):
        report_of(labelled)


def test_the_json_of_a_report_is_read_again_as_it_was():
    report = report_of([*calm(30), *slower(30, 7)])
    content = to_json(report)
    assert TypeAdapter(ReportData).validate_json(content) == report
    assert json.loads(content)["tests"][0]["series"][0]["unit"] == "samples/s"
    assert json_schema()["required"][0] == "schema"
