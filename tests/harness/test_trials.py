"""Tests that have several jobs in one session: campaigns, their results, and how they are resumed."""

from __future__ import annotations

import json

import pytest

from platforms.job import Outcome
from reporting.history import reader
from reporting.history.envelope import Envelope
from tests.clusters.slurm import Cluster
from tests.harness.conftest import Project
from tests.harness.test_confirmations import COUNTING

RATE_ON_SLURM = """
import pytest
from platforms.results import numbers

@pytest.mark.workload(command=["echo", "rate: 100"])
def test_rate(run, record):
    rate, = numbers(run.log, r"rate: (.+)")
    record(run, metrics={"rate": (rate, "GB/s", "higher")})
"""


def write_test(project: Project, rates: list[float | None]) -> None:
    """A test whose n-th job prints the n-th rate, and fails where there is none. Its body refuses 200 and more."""
    project.write("test_triad.py", COUNTING)
    project.write("counter/rates", " ".join(map(str, rates)))


def entries(project: Project) -> list[Envelope]:
    return reader.read(project.path / "site/history")


@pytest.mark.slow
def test_each_repeat_of_a_campaign_is_measured_and_judged_by_the_tests_body(project: Project) -> None:
    write_test(project, [100.0, 101.0, 99.0])
    result = project.pytest("--repeat=3", "--label=before", "--benchmark-json=saved.json")
    result.assert_outcomes(passed=1)
    written = entries(project)
    assert [(run.trial.label, run.trial.repeat, run.metrics["rate"].value) for run in written] == [
        ("before", 1, 100.0),
        ("before", 2, 101.0),
        ("before", 3, 99.0),
    ]
    assert all(run.sane and run.outcome is Outcome.PASSED for run in written)
    assert len({run.key.run_id for run in written}) == 1
    result.stdout.fnmatch_lines(["*triad-1x1cpu-* (measure-before-2) on local: succeeded*"])
    result.stdout.fnmatch_lines(["*campaign before: 3 of 3 jobs measured; median rate 100 GB/s, 99 to 101*"])
    (saved,) = json.loads((project.path / "saved.json").read_text())["benchmarks"]
    assert saved["stats"]["rounds"] == 3


@pytest.mark.slow
def test_a_labelled_session_is_in_no_series(project: Project) -> None:
    """Its nodes may be half upgraded."""
    write_test(project, [100.0, 98.0, 101.0, 99.0])
    result = project.pytest("--repeat=3", "--label=after", "--gate=require")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*learning*")
    assert not any(run.eligible or run.verdicts for run in entries(project))
    project.pytest().stdout.fnmatch_lines(["*learning, 1 of 20 runs*"])


@pytest.mark.slow
def test_the_row_of_several_jobs_names_the_one_that_it_is(project: Project) -> None:
    write_test(project, [100.0, 95.0, 99.0, 96.0])
    result = project.pytest("--repeat=4")
    result.stdout.fnmatch_lines(
        [
            "*OPS: rate in GB/s, the mean of 4 jobs*",
            "*the figures are those of triad-1x1cpu-k*, the slower middle one of 4 jobs*",
        ],
        consecutive=False,
    )


@pytest.mark.slow
def test_a_job_that_fails_beside_others_fails_the_test_and_loses_no_number(project: Project) -> None:
    write_test(project, [100.0, None, 99.0])
    result = project.pytest("--repeat=3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*2 of 3 jobs measured*failed: measure-2 on * (exited with an error*)*"])
    assert [(run.outcome, run.sane) for run in entries(project)] == [
        (Outcome.PASSED, True),
        (Outcome.FAILED, False),
        (Outcome.PASSED, True),
    ]


@pytest.mark.slow
def test_where_all_jobs_fail_the_test_does_and_the_end_says_how_many(project: Project) -> None:
    write_test(project, [None, None])
    result = project.pytest("--repeat=2", "--label=before")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*campaign before: 0 of 2 jobs measured; failed: measure-before-1 *, measure-before-2*"]
    )


@pytest.mark.slow
def test_a_job_whose_numbers_the_body_refuses_is_named(project: Project) -> None:
    write_test(project, [100.0, 500.0, 99.0])
    result = project.pytest("--repeat=3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*2 of 3 jobs measured*failed: measure-2 on * (assert 500*"])
    assert [run.sane for run in entries(project)] == [True, False, True]


@pytest.mark.slow
def test_a_fixture_that_uses_the_run_is_refused(project: Project) -> None:
    write_test(project, [100.0, 101.0])
    path = project.path / "test_triad.py"
    fixture = "@pytest.fixture\ndef rates(run):\n    return numbers(run.log, r'rate: (.+)')\n\n"
    text = (
        path.read_text()
        .replace("@pytest.mark", f"{fixture}@pytest.mark")
        .replace("(run, record)", "(rates, run, record)")
    )
    path.write_text(text)
    result = project.pytest("--repeat=2")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the fixture rates uses `run`*"])


@pytest.mark.slow
def test_a_campaign_goes_on_after_its_session_was_killed(project: Project) -> None:
    write_test(project, [100.0, 101.0, 102.0, 103.0])
    gate = project.write("counter/gate", "")
    words = ("--repeat=4", "--label=before", "--run-id=campaign")
    project.killed((project.path / "counter/job-1").exists, *words)
    gate.unlink()
    result = project.pytest("--resume=campaign")
    result.assert_outcomes(passed=1)
    written = entries(project)
    assert [run.trial.repeat for run in written] == [1, 2, 3, 4]
    assert sorted(run.metrics["rate"].value for run in written) == [100.0, 101.0, 102.0, 103.0]


@pytest.fixture
def on_slurm(project: Project, slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose platform `mine` is the partition of cn1, cn2 and cn3."""
    project.on_slurm(tmp_path_factory.mktemp("work"))
    project.write("test_rate.py", RATE_ON_SLURM)
    return project


@pytest.mark.real_slurm
def test_the_repeats_of_a_campaign_are_spread_over_idle_nodes(on_slurm: Project) -> None:
    on_slurm.pytest("--platform=mine", "--repeat=3", "--label=before").assert_outcomes(passed=1)
    assert sorted(run.nodes for run in entries(on_slurm)) == [("cn1",), ("cn2",), ("cn3",)]


@pytest.mark.real_slurm
def test_treated_and_control_nodes_take_turns_and_one_that_cannot_start_is_named_with_the_reason(
    on_slurm: Project, slurm: Cluster
) -> None:
    slurm.ask("scontrol", "update", "nodename=cn2", "state=drain", "reason=bad DIMM")
    result = on_slurm.pytest("--platform=mine", "--label=before", "--treated=cn1,cn2", "--control=cn3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*warning: --treated and --control: a group of one node has no verdict in *",
            "*measure-before-3 on cn2 (can never start: *cn2 is drained*bad DIMM*",
        ]
    )
    measured = [run for run in entries(on_slurm) if run.sane]
    assert [(run.nodes, run.trial.label, run.trial.repeat, run.provenance["group"]) for run in measured] == [
        (("cn1",), "before", 1, "treated"),
        (("cn3",), "before", 2, "control"),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--repeat=0"], "--repeat: '0' is no number from 1 to 1000"),
        (["--label=be-fore"], "--label: 'be-fore' can be no label*"),
        (["--repeat=2", "--each-node=idle"], "--repeat, --label or --treated and --each-node are two questions*"),
        (["--each-node=idle", "--nodes=n01"], "--nodes: --each-node names the nodes already*"),
        (["--blocks=3"], "--blocks is for --ab stack=A,B"),
        (["--ab=cuda12,cuda13"], "--ab: 'cuda12,cuda13': write two of the platform's `stacks:`*"),
        (["--treated=n01", "--label=before"], "--treated and --control belong together*"),
        (["--treated=n01", "--control=n02"], "--treated and --control need --label before*"),
        (["--treated=n01,n02", "--control=n02", "--label=a"], "--treated and --control: n02 cannot be both"),
        (["--nodes=n01,n02"], "*--nodes names 2 nodes, and test_triad.py::* runs on 1: name 1, or add --repeat 2*"),
        (["--nodes=n[01-"], "--nodes: *"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_before_anything_is_submitted(
    project: Project, words: list[str], message: str
) -> None:
    write_test(project, [100.0])
    project.refuses(*words, says=f"ERROR: {message}")
    assert not list((project.path / "counter").glob("job-*"))
