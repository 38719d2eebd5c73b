"""Suspect runs are repeated in their session: on this machine, where there is one node, and for many tests at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.outcome import EXIT_PENDING
from platforms.job import Outcome, Role
from reporting.__main__ import main
from reporting.gate.verdict import Kind
from reporting.history import reader
from reporting.history.envelope import Envelope
from tests.harness.conftest import Project
from tests.harness.test_gate import CALM, NOISE, RateSeries

pytestmark = pytest.mark.slow

COUNTING = """
import pytest
from platforms.results import numbers

# The n-th job of this test prints the n-th rate of the file.
PROGRAM = '''
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
rates = (folder / "rates").read_text().split()
number = len(list(folder.glob("job-*")))
(folder / f"job-{number}").touch()
while (folder / "gate").exists() and number: time.sleep(0.05)
print("rate:", float(rates[number]))
'''

@pytest.mark.workload(command=["{python}", "-c", PROGRAM, "{root}/counter"])
def test_triad(run, record):
    rate, = numbers(run.log, r"rate: (.+)")
    assert rate < 200
    record(run, metrics={"rate": (rate, "GB/s", "higher")})
"""


class CountingSeries(RateSeries):
    """A test whose jobs print one rate after the other, and its twenty calm nights."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(project, monkeypatch)
        project.write("test_triad.py", COUNTING)
        self.tell(100.0)
        self.past(CALM)

    def tell(self, *rates: float) -> None:
        for path in (self.project.path / "counter").glob("job-*"):
            path.unlink()
        self.project.write("counter/rates", " ".join(map(str, rates)))

    def tonight(self) -> list[Envelope]:
        return [entry for entry in self.entries() if not entry.key.run_id.startswith("night-")]


@pytest.fixture
def series(project: Project, monkeypatch: pytest.MonkeyPatch) -> CountingSeries:
    return CountingSeries(project, monkeypatch)


def test_a_run_whose_repeat_is_normal_passes_and_is_marked(
    series: CountingSeries, capsys: pytest.CaptureFixture[str]
) -> None:
    series.tell(89.0, 99.5)
    result = series.run("--benchmark-json=saved.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_triad*: rate -11.0 %: suspect, so confirm-1 begins"])
    result.stdout.fnmatch_lines(["*test_triad*: rate: transient: -11.0 %, then -0.5 %*"])
    first, again = series.tonight()
    assert (first.trial.role, first.outcome, first.metrics["rate"].value) == (Role.MEASURE, Outcome.PASSED, 89.0)
    assert (again.trial.key, again.outcome, again.metrics["rate"].value) == ("confirm-1", Outcome.PASSED, 99.5)
    assert (first.verdicts["rate"]["kind"], first.verdicts["rate"]["red"]) == ("transient", False)
    assert again.verdicts == {}
    (saved,) = json.loads((series.project.path / "saved.json").read_text())["benchmarks"]
    assert saved["stats"]["rounds"] == 1  # the repeat is no part of what was measured
    capsys.readouterr()
    assert main(["judge", f"--site={series.project.path}/site"]) == 0  # the command says what the session has said
    assert "transient: -11.0 %, then -0.5 %" in capsys.readouterr().out


def test_a_run_that_is_slow_again_fails_its_test(series: CountingSeries) -> None:
    series.tell(89.0, 88.0)
    result = series.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            *("*rate 89.0 GB/s is 11.* % below its pin*", "*It is slow again, -12.* %, in a repeat*no other node*"),
            *("*this run * 89.0 GB/s*slow*", "*confirm-1 * 88.0 GB/s*slow*", "FAILED *rate: -11.*"),
        ]
    )
    first, again = series.tonight()
    assert (first.outcome, first.verdicts["rate"]["kind"]) == (Outcome.FAILED, "slower")
    assert (again.outcome, again.sane) == (Outcome.PASSED, True)


@pytest.mark.parametrize("words", [["--gate=off"], ["--repeat=2"]])
def test_nothing_is_confirmed_without_the_gate_or_beside_repeats(series: CountingSeries, words: list[str]) -> None:
    series.tell(89.0, 89.0)
    series.run(*words)
    assert {entry.trial.role for entry in series.tonight()} == {Role.MEASURE}


@pytest.mark.parametrize(("rate", "failed"), [(94.0, False), (85.0, True)])
def test_a_repeat_that_fails_leaves_a_suspect_that_is_red_only_if_it_is_large(
    series: CountingSeries, rate: float, failed: bool
) -> None:
    series.tell(rate)  # the second job finds no rate
    result = series.run()
    result.assert_outcomes(passed=not failed, failed=failed)
    result.stdout.fnmatch_lines(["*suspect: -*confirm-1 has no numbers: exited with an error*"])
    assert series.tonight()[0].verdicts["rate"]["kind"] == "suspect"


def test_require_fails_a_suspect(series: CountingSeries) -> None:
    series.tell(94.0)
    series.run("--gate=require").assert_outcomes(failed=1)


def test_a_repeat_that_cannot_be_afforded_leaves_a_suspect(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--platform=mine")
    project.platform("mine", "time_limit: 1h\n")
    series = CountingSeries(project, monkeypatch)
    project.write("site/site.yaml", "enabled: [mine]\nmax_device_hours: 3\n")
    series.tell(94.0)
    result = series.run()
    result.assert_outcomes(passed=1)
    assert [entry.trial.key for entry in series.tonight()] == [""]
    result.stdout.fnmatch_lines(["*suspect: -*; confirm-1 has no numbers: max_device_hours does not allow it*"])


def test_a_session_that_stops_waiting_for_a_repeat_is_pending(series: CountingSeries) -> None:
    series.tell(94.0, 100.0)
    gate = series.project.write("counter/gate", "")
    result = series.run("--run-id=night", "--wait=3s")
    assert result.ret == EXIT_PENDING
    result.assert_outcomes(skipped=1)
    assert not any(run.sane for run in series.tonight())  # nothing has judged it yet
    gate.unlink()
    series.run("--resume=night").assert_outcomes(passed=1)
    measured, _repeat = series.tonight()
    assert measured.verdicts["rate"]["kind"] == Kind.TRANSIENT


def test_an_interrupt_during_a_repeat_keeps_what_was_measured(series: CountingSeries) -> None:
    series.tell(94.0, 100.0)
    series.project.write("counter/gate", "")
    session = series.project.begin("--run-id=night")
    session.until((series.project.path / "counter/job-1").exists)
    session.send(signal.SIGINT)
    session.ends()
    assert [run.metrics["rate"].value for run in series.tonight() if run.sane] == [94.0]


def test_a_confirmation_is_found_again_after_its_session_was_killed(series: CountingSeries) -> None:
    series.tell(89.0, 99.5)
    gate = series.project.write("counter/gate", "")
    series.project.killed((series.project.path / "counter/job-1").exists, "--run-id=night")
    gate.unlink()
    result = series.run("--resume=night")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*rate: transient: -11.0 %, then -0.5 %*"])
    assert len(list((series.project.path / "counter").glob("job-*"))) == 2
    assert [entry.trial.key for entry in series.tonight()] == ["", "confirm-1"]


# --- many tests at once ----------------------------------------------------------------------------------------------

MANY = """
import pytest

@pytest.mark.workload(command=["cat", "{root}/wire-%(speed)s"])
@pytest.mark.parametrize("number", range(%(count)d))
def test_%(speed)s(run, record, number):
    record(run)
"""


def write_wire(project: Project, name: str, seconds: float) -> None:
    """A log of a run, which `cat` prints in place of a program."""
    words = [sys.executable, str(project.path / "program.py"), f"seconds={seconds},{seconds}"]
    log = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    project.write(f"wire-{name}", log)


class ManySeries(RateSeries):
    """Tests whose programs take two seconds, twenty nights each; tonight some of them may take longer."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch, **counts: int) -> None:
        super().__init__(project, monkeypatch)
        (project.path / "test_triad.py").unlink()
        project.platform("many", "max_running: 8\npoll_s: 0.2\n")
        self.counts = counts
        for name, count in counts.items():
            project.write(f"test_{name}.py", MANY % {"speed": name, "count": count})
            write_wire(project, name, 2.0)
        self.past([50.0 + noise / 2 for noise in NOISE])

    def run(self, *words: str, **rates: float) -> pytest.RunResult:
        return self.project.pytest("--platform=many", *words)

    def template(self) -> list[Envelope]:
        """The entry of one real job, for each of the tests."""
        folder = self.project.path / "template"
        folder.mkdir()
        self.run(f"--history={folder}", "--gate=off", "-q", "-k", "many-1x2gpu-0 and slow")
        (entry,) = reader.read(folder)
        return [
            replace(entry, key=entry.key._replace(test=f"test_{name}.py::test_{name}[many-1x2gpu-{number}]"))
            for name, count in self.counts.items()
            for number in range(count)
        ]


def confirmations(series: RateSeries) -> list[Envelope]:
    return [entry for entry in series.entries() if entry.trial.role is not Role.MEASURE]


def test_a_mass_event_costs_two_confirmations(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    series = ManySeries(project, monkeypatch, slow=12)
    write_wire(project, "slow", 2.4)
    result = series.run("-q")
    result.assert_outcomes(failed=12)
    assert len(confirmations(series)) == 2
    said = "12 of 12 tests are slow, and 2 repeats too: it is the platform, not a node"
    result.stdout.fnmatch_lines([f"On this platform {said}.", "Repeated were test_slow.py::* and *", f"many: {said}"])


def test_a_mass_event_goes_on_with_the_same_two_confirmations_after_a_kill(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = ManySeries(project, monkeypatch, slow=6)
    write_wire(project, "slow", 2.2)
    begun = project.path / "begun"
    begun.mkdir()
    waits = "[ $(ls {root}/begun | wc -l) -le 6 ] || while [ ! -e {root}/go ]; do sleep 0.05; done"
    script = f"touch {{root}}/begun/$$; {waits}; cat {{root}}/wire-slow"  # from the seventh job on
    path = project.path / "test_slow.py"
    path.write_text(path.read_text().replace('["cat", "{root}/wire-slow"]', f'["sh", "-c", "{script}"]'))
    words = ("--platform=many", "--run-id=night", "-k", "slow")
    project.killed(lambda: len(list(begun.iterdir())) >= 8, *words)
    project.write("go", "")
    series.project.pytest("--resume=night", "-q").assert_outcomes(failed=6)
    assert len(list(begun.iterdir())) == 8
    assert len(confirmations(series)) == 2


# --- nodes -----------------------------------------------------------------------------------------------------------

ON_NODES = """
import pytest
from platforms.results import numbers

# The node of the first job is slow.
PROGRAM = '''
import os, pathlib, sys
node = os.environ["SLURMD_NODENAME"]
first = pathlib.Path(sys.argv[1]) / "slow-node"
if not (first.parent / "calm").exists():
    if not first.exists(): first.write_text(node)
    slow = first.read_text() == node
else:
    slow = False
print("rate:", 95.0 if slow else 100.0)
'''

@pytest.mark.workload(command=["{python}", "-c", PROGRAM, "{root}"])
def test_triad(run, record):
    rate, = numbers(run.log, r"rate: (.+)")
    record(run, metrics={"rate": (rate, "GB/s", "higher")})
"""


class SlurmSeries(RateSeries):
    """A test on a real Slurm whose speed depends on its node."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
        super().__init__(project, monkeypatch)
        project.write("test_triad.py", ON_NODES)
        project.on_slurm(work)
        project.write("calm", "")
        self.past(CALM)
        (project.path / "calm").unlink()

    def run(self, *words: str, **rates: float) -> pytest.RunResult:
        return self.project.pytest("--platform=mine", *words)

    def trials(self) -> list[tuple[str, tuple[str, ...]]]:
        tonight = [entry for entry in self.entries() if not entry.key.run_id.startswith("night-")]
        return [(entry.trial.key, entry.nodes) for entry in tonight]


@pytest.mark.real_slurm
@pytest.mark.usefixtures("slurm")
def test_a_slow_node_is_named_with_the_command_that_drains_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    series = SlurmSeries(project, monkeypatch, tmp_path_factory.mktemp("work"))
    result = series.run()
    result.assert_outcomes(failed=1)
    node = (project.path / "slow-node").read_text()
    (_, first), (_, elsewhere), *pinned = series.trials()
    assert first == (node,)
    assert pinned == [("pinned-1", (node,)), ("pinned-2", (node,))]
    assert elsewhere != (node,)
    result.stdout.fnmatch_lines(
        [
            f"It is node {node}: -5.* % in 3 of 3, {elsewhere[0]} normal. *",
            f"  scontrol update nodename={node} state=drain reason='slow: -5.* %'",
        ]
    )
