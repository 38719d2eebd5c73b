"""The gate in pytest: a regression fails its test, and what people answer counts.

Nights are simulated. In most tests the history gets lines that are copies of one real run, with other dates and values.
In `test_a_lasting_loss_…` each bad night is a session of its own, with a real job, and before the next one all lines of
the history are moved a day back.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from platforms.job import Outcome, Role
from reporting.__main__ import main
from reporting.history import reader
from reporting.history.envelope import Envelope
from reporting.history.writer import HistoryWriter
from tests.harness.conftest import Project

DAY_S = 86_400.0
pytestmark = pytest.mark.slow
NOISE = (0.4, -0.7, 0.1, 0.9, -0.3, -0.9, 0.6, 0.2, -0.5, 0.8, -0.1, -0.8, 0.3, 0.7, -0.4, 0.5, -0.2, -0.6, 0.0, 1.0)
TEMPLATES: dict[str, list[Envelope]] = {}
CALM = [100 + noise for noise in NOISE]  # twenty nights at 100 +- 1 %
RATE = """
import os, pytest
from platforms.results import numbers

@pytest.mark.workload(command=["{python}", "-c", "import os; print('rate:', os.environ['%(name)s'])"])
def test_%(name)s(run, record):
    rate, = numbers(run.log, r"rate: (.+)")
    record(run, metrics={"rate": (rate, "GB/s", "higher")})
"""


@pytest.fixture
def series(project: Project, monkeypatch: pytest.MonkeyPatch) -> RateSeries:
    return RateSeries(project, monkeypatch)


class RateSeries:
    """A test whose program prints the rate that it is told, and its past."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project, self.monkeypatch = project, monkeypatch
        self.history = project.path / "site/history"
        self.add_test("triad")

    def add_test(self, name: str) -> None:
        self.project.write(f"test_{name}.py", RATE % {"name": name})
        self.monkeypatch.setenv(name, "100")

    def run(self, *words: str, **rates: float) -> pytest.RunResult:
        """One session tonight."""
        for name, rate in rates.items():
            self.monkeypatch.setenv(name, repr(rate))
        return self.project.pytest(*words)

    def entries(self) -> list[Envelope]:
        return reader.read(self.history)

    def last(self) -> Envelope:
        """The last run of a test, without its repeats."""
        return [entry for entry in self.entries() if entry.trial.role is Role.MEASURE][-1]

    def template(self) -> list[Envelope]:
        """The entries of a real session, which are in no history that is judged. Equal tests share one."""
        path = self.project.path
        files = [*path.glob("test_*.py"), *path.glob("site/platforms/*.yaml")]
        tests = "".join(file.read_text() for file in sorted(files))
        if tests not in TEMPLATES:
            folder = path / "template"
            folder.mkdir()
            self.run(f"--history={folder}", "--gate=off", "-q")
            TEMPLATES[tests] = reader.read(folder)
        return TEMPLATES[tests]

    def past(self, values: Sequence[float], until: int = 1, **changes: Any) -> None:
        """Write nights of all tests: copies of a real run with other values, the last one `until` nights ago."""
        writer = HistoryWriter(self.history)
        for entry in self.template():
            for night, value in enumerate(reversed(values), until):
                seconds = night * DAY_S
                key = entry.key._replace(run_id=f"night-{night}", submitted_s=entry.started_s - seconds)
                metrics = {name: replace(metric, value=value) for name, metric in entry.metrics.items()}
                moved = {"started_s": entry.started_s - seconds, "written_s": entry.written_s - seconds}
                writer.write(replace(entry, key=key, metrics=metrics, run=None, **{**moved, **changes}), None)

    def recede(self) -> None:
        """Let a day pass: move all lines of the history back by one."""
        for path in self.history.glob("*/*.jsonl"):
            if path.name.endswith(".runs.jsonl"):
                continue
            lines = []
            for line in path.read_text().splitlines():
                content = json.loads(line)
                for name in ("submitted_s", "started_s", "ended_s", "written_s"):
                    content[name] -= DAY_S
                lines.append(json.dumps(content) + "\n")
            path.write_text("".join(lines))


# --- red -------------------------------------------------------------------------------------------------------------


def test_a_regression_fails_its_test_and_is_kept_and_marked(series: RateSeries) -> None:
    series.past(CALM)
    result = series.run("--junitxml=junit.xml", "--benchmark-autosave", triad=89.0)
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            *("*FAILURES*", "*rate*11.* % below*", "*results*", "*-11.* %, slower since*"),
            "FAILED test_triad.py::test_triad* - rate: -11.*",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    report = (series.project.path / "junit.xml").read_text()
    assert 'failures="1"' in report
    assert re.search(r"<failure message=.*rate", report)
    entry = series.last()
    assert (entry.outcome, entry.sane, entry.metrics["rate"].value) == (Outcome.FAILED, True, 89.0)
    assert entry.verdicts["rate"]["red"] is True
    assert series.project.saved() == []


def test_of_several_slow_metrics_the_one_that_lost_most_has_the_text_and_the_others_a_line_each(
    series: RateSeries,
) -> None:
    path = series.project.path / "test_triad.py"
    squared = '{"copy": (rate**2 / 100, "GB/s", "higher"), "rate"'
    path.write_text(path.read_text().replace('{"rate"', squared))
    series.past(CALM)
    result = series.run(triad=85.0)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*: copy 72.2* is 27.* % below its pin*",
            "Other metrics of the same run (python -m reporting judge *test_triad* says all of them):",
            "  rate: -15.* %, slower since *",
        ]
    )
    assert result.stdout.str().count("How it was computed") == 1
    assert {name: verdict["red"] for name, verdict in series.last().verdicts.items()} == {"rate": True, "copy": True}


def test_an_equal_run_is_green(series: RateSeries) -> None:
    series.past(CALM)
    result = series.run("--benchmark-autosave", triad=99.0)
    result.assert_outcomes(passed=1)
    assert series.last().verdicts["rate"] == {
        "kind": "ok",
        "red": False,
        "change": pytest.approx(-0.0105, rel=0.01),
        "since": None,
        "limit": 0.03,
        "level": 100.05,
        "scale": pytest.approx(0.00857, rel=0.01),
    }
    assert len(series.project.saved()) == 1
    assert len([entry for entry in series.entries() if entry.key.run_id[:6] != "night-"]) == 1  # nothing is repeated


def test_off_only_records(series: RateSeries) -> None:
    series.past(CALM)
    series.run("--gate=off", triad=50.0).assert_outcomes(passed=1)
    entry = series.last()
    assert (entry.sane, entry.metrics["rate"].value, entry.verdicts) == (True, 50.0, {})


def test_the_site_chooses_the_gate(series: RateSeries) -> None:
    series.past(CALM)
    series.project.write("site/site.yaml", "options: {gate: off}\n")
    series.run(triad=50.0).assert_outcomes(passed=1)
    series.run("--gate=on", triad=50.0).assert_outcomes(failed=1)
    series.project.write("site/site.yaml", "options: {gate: maybe}\n")
    result = series.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*options: gate: 'maybe' is none of on, off, require"])


def test_resume_keeps_the_gate(series: RateSeries) -> None:
    series.past(CALM)
    assert series.run("--wait=0", "--gate=off", triad=50.0).ret == 75
    series.run("--resume").assert_outcomes(passed=1)
    assert (series.last().sane, series.last().verdicts) == (True, {})


def test_a_metric_that_has_gone_and_another_unit_are_said(
    series: RateSeries, capsys: pytest.CaptureFixture[str]
) -> None:
    series.past(CALM)
    path = series.project.path / "test_triad.py"
    path.write_text(path.read_text().replace("GB/s", "MB/s"))
    line = "test_triad.py::test_triad*: rate is in MB/s now, was in GB/s: a new series"
    series.run().stdout.fnmatch_lines([line])
    path.write_text(path.read_text().replace('{"rate"', '{"speed"'))
    gone = "test_triad.py::test_triad*: rate is no longer recorded; its last value, 100.0 MB/s, is of *"
    series.run().stdout.fnmatch_lines([gone])
    capsys.readouterr()
    assert main(["judge", f"--site={series.project.path}/site"]) == 0
    assert "rate is no longer recorded; its last value, 100.0 MB/s, is of " in capsys.readouterr().out


# --- the other verdicts ----------------------------------------------------------------------------------------------


def test_a_lasting_gain_is_a_finding(series: RateSeries) -> None:
    series.past([*CALM, *(105 + noise for noise in NOISE[:6])])
    result = series.run(triad=105.0)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_triad*: rate: +4.* %, faster since *"])


# --- require ---------------------------------------------------------------------------------------------------------


def test_require_without_a_pin_is_an_error_in_setup(series: RateSeries) -> None:
    series.past(CALM[:19])
    result = series.run("--gate=require")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*--gate=require: *test_triad* has no pin in *20 eligible runs with --gate=on*"])
    assert (series.last().outcome, series.last().sane) == (Outcome.ERROR, False)


def test_a_series_without_eligible_runs_is_blind_and_red_under_require(series: RateSeries) -> None:
    (series.project.path / "test_triad.py").unlink()
    series.project.job_test("seconds=2,2,2", "warning=not alone: others used its cores")
    series.past([50.0] * 20, until=4, doubts=())
    series.past([50.0] * 3)
    result = series.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_it*: effective_throughput: blind since *"])
    series.run("--gate=require").assert_outcomes(failed=1)


@pytest.mark.parametrize("gate", ["on", "require"])
def test_a_gate_that_cannot_read_everything_says_so(series: RateSeries, gate: str) -> None:
    series.past(CALM)
    series.project.write("site/history/2026-01/torn.jsonl", '{"test": \n')
    series.project.write("site/references/test_triad/2026-11-01-ack-12345678.yaml", "nonsense: [\n")
    result = series.run(f"--gate={gate}", triad=100.0)
    said = "*the gate does not see everything: *torn.jsonl:1:*2026-11-01-ack-12345678.yaml:*"
    result.stdout.fnmatch_lines([said])
    if gate == "on":
        result.assert_outcomes(passed=1)
    else:
        result.assert_outcomes(errors=1)


# --- holes of pytest-benchmark's own comparison ----------------------------------------------------------------------


# --- what people answer ----------------------------------------------------------------------------------------------


def answer(series: RateSeries, *words: str) -> None:
    assert main([*words, f"--site={series.project.path / 'site'}", "--by=a person"]) == 0


def test_a_lasting_loss_is_red_within_six_nights_and_until_it_is_answered(series: RateSeries) -> None:
    """Twenty-six nights at 100 +- 1 %, then -6 %, beside an equal series.

    The good nights are copies of one real run. Each bad night is a session with two real jobs.
    """
    series.add_test("equal")
    series.past([*CALM, *(100 + noise for noise in NOISE[:6])])
    outcomes = []
    for noise in NOISE[6:12]:
        result = series.run("-q", triad=94 + noise, equal=100 + noise)
        outcomes.append(result.parseoutcomes())
        result.stdout.no_fnmatch_line("FAILED *test_equal*")
        series.recede()
    first_red = [outcome.get("failed", 0) for outcome in outcomes].index(1)
    assert first_red < 6
    assert outcomes[first_red:] == [{"passed": 1, "failed": 1}] * (6 - first_red)  # until it is answered

    tonight = datetime.date.today()
    answer(series, "ack", "test_triad", "--ticket=https://example.org/1", f"--until={tonight}")
    result = series.run("-q", triad=94.0, equal=100.0)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_triad*: rate: acked until *"])
    series.run("-q", triad=84.0, equal=100.0).assert_outcomes(passed=1, failed=1)  # it is worse
    answer(series, "ack", "test_triad", "--end")
    series.run("-q", triad=94.0, equal=100.0).assert_outcomes(passed=1, failed=1)

    since = tonight - datetime.timedelta(days=6)
    answer(series, "accept", "test_triad", f"--since={since}", "--reason=the new driver costs that")
    series.run("-q", triad=94.0, equal=100.0).assert_outcomes(passed=2)
    series.run("-q", triad=84.0, equal=100.0).assert_outcomes(passed=1, failed=1)
