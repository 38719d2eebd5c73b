"""A report for Prometheus, Grafana and GitLab: what stands in the files, and that promtool takes them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser as text_format
from prometheus_client.openmetrics import parser as openmetrics_format
from prometheus_client.samples import Sample

from platforms.job import Metric
from reporting.report.data import Condition, ReportData
from reporting.report.exports import dashboard_file, families, gitlab, openmetrics, prometheus
from reporting.report.exports.exposition import Family, escaped, number, shortened
from reporting.report.exports.times import made_s
from tests.reporting.exported_reports import FAILED, LATENCY, NEVER, SLOWER, report
from tests.reporting.gate_nights import METRIC, nights
from tests.reporting.test_report_build import report_of

ROOT = Path(__file__).resolve().parents[2]
NAMES = {family.name for family in vars(families).values() if isinstance(family, Family)}
ALERTS = dashboard_file().with_name("alerts.yml")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)")


@cache
def sample() -> ReportData:
    return report()


def whole(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def now_of(made: ReportData) -> list[Sample]:
    """What Prometheus's own parser reads of the .prom file."""
    found = text_format.text_string_to_metric_families(whole(prometheus.lines(made)))
    return [one for metric in found for one in metric.samples]


def past_of(made: ReportData, until_s: float = 2e10) -> list[Sample]:
    """What the parser of OpenMetrics reads of the backfill."""
    found = openmetrics_format.text_string_to_metric_families(whole(openmetrics.lines(made, until_s)))
    return [one for metric in found for one in metric.samples]


def values(samples: list[Sample], family: Family, **labels: str) -> list[float]:
    return [one.value for one in samples if one.name == family.name and labels.items() <= one.labels.items()]


# --- how things stand now ---------------------------------------------------------------------------------------------


def test_the_last_value_its_pin_and_its_change_are_numbers_of_a_series():
    samples = now_of(sample())
    (slower,) = [one for one in samples if one.name == families.VALUE.name and one.labels["test"] == SLOWER]
    assert slower.labels == {
        "site": "Übersee\\centre",
        "platform": "eidf_a100",
        "test": SLOWER,
        "workload": "resnet50",
        "layout": "1x4gpu",
        "setting": "tuned",
        "metric": METRIC,
        "unit": "samples/s",
        "better": "higher",
    }
    assert slower.value == 89.55
    assert slower.timestamp is None
    of_test = {"test": SLOWER}
    assert values(samples, families.PIN, **of_test) == [100.0]
    assert values(samples, families.RUN_CHANGE, **of_test) == [pytest.approx(-0.1045)]
    (change,) = values(samples, families.CHANGE, **of_test)
    (limit,) = values(samples, families.LIMIT, **of_test)
    assert change < -limit < 0
    series = next(test for test in sample().tests if test.id == SLOWER).series[0]
    first_slow = next(point for point in series.points if point.night == series.since)
    assert values(samples, families.SINCE, **of_test) == [first_slow.started_s]
    assert values(samples, families.LAST_RUN, **of_test) == [series.points[-1].started_s]
    assert values(samples, families.PART, **of_test, part="step") == [0.056]
    assert values(samples, families.PART_BEFORE, **of_test, part="step") == [0.05]


def test_a_condition_has_a_sample_for_each_state_and_one_of_them_holds():
    samples = now_of(sample())
    expected = {SLOWER: Condition.SLOWER, FAILED: Condition.FAILED, LATENCY: Condition.OK, NEVER: Condition.FAILED}
    for test in sample().tests:
        held = {
            one.labels["condition"]: one.value
            for one in samples
            if one.name == families.CONDITION.name and one.labels["test"] == shown(test.id)
        }
        assert set(held) == set(Condition)
        assert [condition for condition, value in held.items() if value == 1] == [expected[test.id]]


def shown(test: str) -> str:
    """A test's id as a label has it."""
    return test.replace("\x1b", r"\x1b").replace("\udc80", r"\udc80")


def test_what_is_not_known_has_no_line_and_is_never_0():
    samples = now_of(sample())
    assert values(samples, families.VALUE, test=NEVER) == []
    assert values(samples, families.LAST_RUN, test=NEVER) == []
    assert values(samples, families.SINCE, test=FAILED) == []
    assert values(samples, families.NODE_DEVIATION, node="n09") == []
    assert values(samples, families.NODE_DEVIATION, node="n07") == [-0.08]
    assert values(samples, families.NODE_STANDING, node="n09", standing="not judged") == [1]


def test_a_device_without_a_split_has_no_parts_of_a_step():
    known, unknown = (
        whole(prometheus.lines(report_of(nights(22, **changes))))
        for changes in ({"beside": {"step_ms": Metric(50.0, "ms")}}, {"no_split": "its own nodes feed it"})
    )
    assert "hpc_ml_bench_step_part_seconds{" in known
    assert "step_part" not in unknown
    assert "hpc_ml_bench_value{" in unknown


def test_failed_nights_and_counts_stand_beside():
    samples = now_of(sample())
    assert values(samples, families.FAILED_NIGHTS, test=FAILED) == [2]
    assert values(samples, families.TESTS, platform="eidf_a100", condition="slower") == [1]
    assert values(samples, families.TESTS, platform="eidf_a100", condition="blind") == [0]
    assert values(samples, families.PROBLEMS) == [1]
    assert values(samples, families.REPORT_TIME) == [made_s(sample())]


def test_a_metric_that_is_better_when_it_is_lower_loses_when_it_grows():
    jobs = nights(30, 100.0, metrics={"latency": Metric(4.0, "us", "lower")}, verdicts={})
    jobs += nights(1, 100.0, 30, metrics={"latency": Metric(5.0, "us", "lower")}, verdicts={})
    samples = now_of(report_of(jobs))
    assert values(samples, families.VALUE) == [5.0]
    assert values(samples, families.RUN_CHANGE, better="lower") == [-0.25]


def test_people_and_runs_make_events_with_short_texts():
    samples = [one for one in now_of(sample()) if one.name == families.EVENT.name]
    texts = {one.labels["kind"]: one.labels["text"] for one in samples}
    assert texts == {"note": 'driver "580" by the vendor (ada)', "change": "driver 570.124 -> 580.65"}
    assert len(shortened("x" * 500, 120)) == 120


def test_a_hash_in_an_event_is_short():
    commits = "0123456789abcdef" * 2 + "01234567", "fedcba9876543210" * 2 + "fedcba98"
    jobs = nights(3, provenance={"commit": commits[0]}) + nights(3, 100.0, 3, provenance={"commit": commits[1]})
    (change,) = [one for one in now_of(report_of(jobs)) if one.name == families.EVENT.name]
    assert change.labels["text"] == "commit 01234567 -> fedcba98"


def test_no_label_holds_a_run_or_a_date():
    content = whole(prometheus.lines(sample()))
    assert "nightly-" not in content
    assert not re.search(r'"\d{4}-\d\d-\d\d', content)


def test_each_family_is_explained_once():
    lines = list(prometheus.lines(sample()))
    explained = Counter(line.split()[2] for line in lines if line.startswith("# HELP"))
    typed = Counter(line.split()[2] for line in lines if line.startswith("# TYPE"))
    assert explained == typed
    assert set(explained.values()) == {1}
    assert set(explained) == NAMES


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('a"b', r"a\"b"),
        (r"a\b", r"a\\b"),
        ("a\nb", r"a\nb"),
        ("a\x1bb", r"a\\x1bb"),
        ("a\udc80b", r"a\\udc80b"),
        ("Übersee ✓", "Übersee ✓"),
    ],
)
def test_labels_are_escaped(text: str, said: str):
    assert escaped(text) == said
    escaped(text).encode()


@pytest.mark.parametrize(
    ("value", "said"),
    [(1.0, "1"), (0.1, "0.1"), (1e22, "1e+22"), (float("nan"), "NaN"), (float("inf"), "+Inf"), (float("-inf"), "-Inf")],
)
def test_numbers_have_all_their_digits(value: float, said: str):
    assert number(value) == said


@needs_promtool
def test_promtool_finds_nothing_wrong_with_the_metrics():
    content = whole(prometheus.lines(sample())).encode()
    check = subprocess.run([str(PROMTOOL), "check", "metrics"], input=content, capture_output=True)
    assert (check.returncode, check.stdout, check.stderr) == (0, b"", b"")


# --- the past ---------------------------------------------------------------------------------------------------------


def test_each_run_has_its_number_its_pin_and_its_condition():
    samples = past_of(sample())
    series = next(test for test in sample().tests if test.id == SLOWER).series[0]
    assert values(samples, families.VALUE, test=SLOWER) == [point.value for point in series.points]
    assert values(samples, families.PIN, test=SLOWER) == [100.0] * 40
    assert values(samples, families.RUN_CHANGE, test=SLOWER)[-1] == pytest.approx(-0.1045)
    assert values(samples, families.CONDITION, test=SLOWER, condition="slower") == [0] * 34 + [1] * 6
    times = [
        float(one.timestamp) for one in samples if one.name == families.VALUE.name and one.labels["test"] == SLOWER
    ]
    assert times == [point.started_s for point in series.points]


def test_a_run_without_numbers_has_a_condition_and_no_value():
    samples = past_of(sample())
    assert len(values(samples, families.VALUE, test=FAILED)) == 38
    assert values(samples, families.CONDITION, test=FAILED, condition="failed") == [0] * 38 + [1] * 2


def test_names_and_labels_are_those_of_the_scraped_file():
    now, past = now_of(sample()), past_of(sample())
    for family in (families.VALUE, families.PIN, families.RUN_CHANGE, families.CONDITION, families.EVENT):
        of_past = {tuple(sorted(one.labels.items())) for one in past if one.name == family.name}
        assert of_past
        assert of_past <= {tuple(sorted(one.labels.items())) for one in now if one.name == family.name}


def test_runs_that_started_together_are_both_kept():
    jobs = [*nights(30, 100.0), *nights(1, 90.0, 29, run_id="again")]
    samples = [one for one in past_of(report_of(jobs)) if one.name == families.VALUE.name]
    assert [one.value for one in samples[-2:]] == [99.5, 89.55]
    first, second = (float(one.timestamp) for one in samples[-2:])
    assert second - first == pytest.approx(0.001, abs=1e-4)


def test_young_runs_are_left_out_and_counted():
    made = report_of(nights(30, 100.0))
    last = made.tests[0].series[0].points[-1].started_s
    assert len(values(past_of(made, last), families.VALUE)) == 29
    assert openmetrics.left_out(made, last) == 1
    assert openmetrics.left_out(made, last + 1) == 0


@needs_promtool
def test_promtool_makes_blocks_with_every_sample(tmp_path: Path):
    backfill = tmp_path / "year.om"
    backfill.write_text(whole(openmetrics.lines(sample(), 2e10)))
    command = [str(PROMTOOL), "tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=486h"]
    subprocess.run([*command, str(backfill), str(tmp_path / "data")], check=True, capture_output=True)
    (tmp_path / "data" / "wal").mkdir()  # the dump wants a database, not only its blocks
    dump = subprocess.run([str(PROMTOOL), "tsdb", "dump", str(tmp_path / "data")], check=True, capture_output=True)
    dumped = Counter(as_dumped(line) for line in dump.stdout.decode().splitlines())
    assert dumped == Counter(
        (one.name, frozenset(one.labels.items()), one.value, round(float(one.timestamp) * 1000))
        for one in past_of(sample())
    )


def as_dumped(line: str) -> tuple[str, frozenset[tuple[str, str]], float, int]:
    """Name, labels, value and time in ms of a line of `promtool tsdb dump`."""
    found = re.fullmatch(r"\{(.*)\} (\S+) (\d+)", line)
    assert found, line
    pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[1])
    labels = {name: json.loads(f'"{text}"') for name, text in pairs}
    return labels.pop("__name__"), frozenset(labels.items()), float(found[2]), int(found[3])


# --- a dashboard ------------------------------------------------------------------------------------------------------


def dashboard_json() -> dict[str, Any]:
    return json.loads(dashboard_file().read_text())


def test_no_data_source_is_fixed():
    dashboard = dashboard_json()
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert set(re.findall(r'"uid": "([^"]*)"', json.dumps(dashboard))) == {
        "hpc-ml-bench", "${datasource}", "-- Grafana --",
    }  # fmt: skip
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_dashboard_and_alerts_know_only_our_names():
    mentioned = re.findall(r"hpc_ml_bench_\w+", dashboard_file().read_text() + ALERTS.read_text())
    assert set(mentioned) <= NAMES


def test_every_condition_has_a_word_and_a_colour():
    (timeline,) = [panel for panel in dashboard_json()["panels"] if panel["type"] == "state-timeline"]
    words = timeline["fieldConfig"]["defaults"]["mappings"][0]["options"].values()
    assert [word["text"] for word in words] == list(Condition)
    assert len({word["color"] for word in words}) == len(Condition)


@needs_promtool
def test_promtool_can_read_every_query_of_the_dashboard(tmp_path: Path):
    rules = [{"record": f"query_{at}", "expr": each} for at, each in enumerate(queries_of(dashboard_json()))]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def queries_of(dashboard: dict[str, Any]) -> list[str]:
    """Every expression, as Grafana sends it with every variable at its default."""
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    targets += [marks["target"] for marks in dashboard["annotations"]["list"] if "target" in marks]
    return [re.sub(r"\$(site|platform|test)", ".*", re.sub(r"\$\{?hours\}?", "36", each["expr"])) for each in targets]


# --- alerts -----------------------------------------------------------------------------------------------------------


@needs_promtool
@pytest.mark.parametrize(
    "words",
    [["check", "rules", str(ALERTS)], ["test", "rules", str(Path(__file__).with_name("alerts_test.yml"))]],
)
def test_the_alerts_fire_when_they_should(words: list[str]):
    done = subprocess.run([str(PROMTOOL), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# --- GitLab -----------------------------------------------------------------------------------------------------------


def as_gitlab_reads(made: ReportData) -> dict[str, str]:
    """Names and values, split as GitLab does: by a shell's rules, without what follows a `#`."""
    found = {}
    for line in gitlab.lines(made):
        words = shlex.split(re.sub("#.*$", "", line))
        if len(words) > 1:
            found[words[0]] = words[1]
    return found


def test_gitlab_shows_what_a_series_reaches_and_its_change():
    shown_there = as_gitlab_reads(sample())
    labels = f"{{test={SLOWER},metric={METRIC},unit=samples/s}}"
    assert shown_there[f"hpc_ml_bench_result{labels}"] == "90"
    assert shown_there[f"hpc_ml_bench_change_percent{labels}"] == "-10"
    assert len(shown_there) == 4
    assert {value for name, value in shown_there.items() if "latency" in name} == {"2.52", "0"}


def test_equal_speed_gives_equal_text_every_night():
    texts = {whole(gitlab.lines(report_of(nights(count, 100.0)))) for count in range(22, 30)}
    assert len(texts) == 1
    slower = {whole(gitlab.lines(report_of([*nights(30, 100.0), *nights(count, 90.0, 30)]))) for count in range(5, 12)}
    assert len(slower) == 1
    assert slower != texts


def test_a_failed_test_is_removed_from_the_widget():
    assert not [name for name in as_gitlab_reads(sample()) if "deepcam" in name]


def test_what_gitlab_reads_is_openmetrics_too():
    metrics = list(openmetrics_format.text_string_to_metric_families(whole(gitlab.lines(sample()))))
    assert [metric.name for metric in metrics] == ["hpc_ml_bench_result", "hpc_ml_bench_change_percent"]
