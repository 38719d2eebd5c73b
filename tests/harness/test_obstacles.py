"""--try-unsupported: tests run although their platform's file says that they cannot, and what their ends mean."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from platforms.rundir import job_json
from tests.harness.conftest import ROOT

TEST = """
import pytest

@pytest.mark.workload(benchmark="resnet50")
def test_resnet50(run, record):
    assert not run.problems
    record(run)
"""
OBSTACLE = "unsupported:\n  resnet50: {reason: it does not compile, source: a paper}\n"
# Stands in for the Python of the job: it gets the archive and `train resnet50 …`, and ends as a compiler's error does.
REFUSES = """#!/bin/sh
sleep SECONDS
cat <<'END'
:::MLLOG {"namespace": "hpcml", "key": "hpcml_problem", "value": {"gate": "GATE", "text": "MaxPool3d cannot be lowered"}, "metadata": {"rank": 0, "seq": 0}}
:::MLLOG {"namespace": "hpcml", "key": "hpcml_end", "value": {"exit_code": CODE, "lines": 1}, "metadata": {"rank": 0, "seq": 1}}
END
exit STATUS
"""  # noqa: E501


def refusing(project, code=4, gate="compile", seconds=0, status=None):
    """A platform `old` with an obstacle. Its job says this code after these seconds, its launcher `status`."""
    text = REFUSES.replace("GATE", gate).replace("CODE", str(code)).replace("SECONDS", str(seconds))
    text = text.replace("STATUS", str(status or code))
    program = project.write("refuses.sh", text)
    program.chmod(0o755)
    project.write("test_resnet50.py", TEST)
    project.platform("old", f"python: {program}\nconfigurations: [gbs32]\nsize: smoke\n{OBSTACLE}")
    project.write("data/resnet50-smoke/any", "")


def entries(project):
    files = [path.read_text() for path in project.path.glob("site/history/*/*.jsonl") if "runs" not in path.name]
    return [json.loads(line) for text in files for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "gate", "state", "status"),
    [
        (4, "compile", "compile failed", 4),
        (4, "compile", "compile failed", 1),  # as torchrun ends
        (5, "device_memory", "device out of memory", 5),
    ],
)
def test_an_end_that_confirms_the_obstacle_is_skipped_and_not_red(project, code, gate, state, status):
    refusing(project, code, gate, status=status)
    result = project.pytest("-m", "old", "--try-unsupported", "-rs")
    assert result.ret == 0
    result.assert_outcomes(skipped=1)
    place = f"{project.path}/site/platforms/old.yaml:8"
    sentence = f"{state}: {gate}: MaxPool3d cannot be lowered (rank 0)"
    result.stdout.fnmatch_lines(
        [f"test_resnet50.py::test_resnet50[[]old-1x2gpu-gbs32[]]: the obstacle in {place} still holds: {sentence}"]
    )
    (path,) = project.path.glob("runs/2*/*/run.json")
    written = job_json.read_json(path)
    assert (written["outcome"], written["state"], written["exit_code"]) == ("skipped", "not supported there", status)
    assert written["asked"]["unsupported"] == "it does not compile (source: a paper)"
    assert {entry["outcome"] for entry in entries(project)} == {"skipped"}


@pytest.mark.slow
def test_another_end_confirms_nothing(project):
    refusing(project, 1, "failed")
    result = project.pytest("-m", "old", "--try-unsupported")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*tried: its platform's file says that it cannot run there: it does not compile*"])
    assert {"said not to run"} == {doubt for entry in entries(project) for doubt in entry.get("doubts", ())}
    result.stdout.no_fnmatch_line("*the obstacle in*")


@pytest.mark.slow
def test_without_the_option_such_an_end_is_a_failure(project):
    refusing(project)
    path = project.path / "site/platforms/old.yaml"
    path.write_text(path.read_text().replace(OBSTACLE, ""))
    project.pytest("-m", "old").assert_outcomes(failed=1)


@pytest.mark.slow
def test_a_pass_names_the_obstacle_to_remove_and_fills_no_pin(project):
    """A real training, of a few samples, on this machine."""
    project.write("test_cosmoflow.py", TEST.replace("resnet50", "cosmoflow"))
    text = "scheduler: local\ndevice: cpu\nlayouts: {default: [1x1]}\nconfigurations: [tuned]\nsize: smoke\n"
    project.write("site/platforms/old.yaml", f"{text}{OBSTACLE.replace('resnet50', 'cosmoflow')}")
    project.write("site/site.yaml", "enabled: [old]\n")
    words = ["data", "cosmoflow", "--samples", "4", "--data-dir", str(project.path / "data/cosmoflow-smoke")]
    subprocess.run([sys.executable, "-m", "models", *words, "--size", "smoke"], cwd=ROOT, check=True)
    result = project.pytest("-m", "old", "--try-unsupported")
    result.assert_outcomes(passed=1)
    place = f"{project.path}/site/platforms/old.yaml:7"
    reason = "it does not compile (source: a paper)"
    result.stdout.fnmatch_lines(
        [
            f"*tried: its platform's file says that it cannot run there: {reason}*",
            f"test_cosmoflow.py::*: it runs, although {place} says that it cannot ({reason}): remove the *",
        ]
    )
    (entry,) = [entry for entry in entries(project) if entry["outcome"] == "passed" and entry["revision"] == 3]
    assert "said not to run" in entry["doubts"]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("-m", "local"), ("-m", "not old")])
def test_nothing_to_try_is_refused(project, words):
    refusing(project)
    project.refuses("--try-unsupported", *words, says="*there is nothing to try. *none of the chosen tests is one")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--gate=require",), "--gate=require"),
        (("--repeat", "2", "--label", "x"), "--repeat, --label or --treated"),
        (("--each-node", "idle"), "--each-node"),
        (("--ab", "stack=a,b"), "--ab"),
    ],
)
def test_it_does_not_go_with_what_compares_numbers(project, words, named):
    refusing(project)
    said = f"*--try-unsupported asks whether a test runs at all, and {named} compares*"
    project.refuses("-m", "old", "--try-unsupported", *words, says=said)


def test_on_a_machine_that_has_ended_nothing_can_be_tried(project):
    refusing(project)
    path = project.path / "site/platforms/old.yaml"
    path.write_text(f"until: 2020-01-31\n{path.read_text()}")
    result = project.pytest("-m", "old", "--try-unsupported")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = "*none of the chosen tests is one on a machine that is in service. With --dry-run their jobs are shown"
    result.stderr.fnmatch_lines([said])
    assert not project.jobs()


@pytest.mark.parametrize("obstacle", [OBSTACLE, "cannot_run: its software is too old\n"])
def test_a_dry_run_shows_the_job_of_a_machine_that_has_ended_and_does_not_say_that_it_is_tried(project, obstacle):
    refusing(project)
    path = project.path / "site/platforms/old.yaml"
    path.write_text(f"until: 2020-01-31\n{path.read_text().replace(OBSTACLE, obstacle)}")
    result = project.pytest("-m", "old", "--try-unsupported", "--dry-run")
    result.stdout.fnmatch_lines(
        [
            "would be skipped: old: this machine ended on 2020-01-31*",
            "it could not run there: *",
            "*models-*.pyz*",
            "*dry run: 1 job rendered (1 of them would be skipped), none submitted*",
        ]
    )
    result.stdout.no_fnmatch_line("would be tried*")


def test_who_is_not_enabled_is_shown_the_option_again(project):
    refusing(project)
    project.write("site/site.yaml", "enabled: []\n")
    result = project.pytest("-m", "old", "--try-unsupported")
    result.stderr.fnmatch_lines(["*pytest --platform old --try-unsupported*"])


@pytest.mark.slow
def test_a_resumed_run_tries_again_and_takes_no_option_of_its_own(project):
    refusing(project, seconds=2)
    assert project.pytest("-m", "old", "--try-unsupported", "--wait", "0").ret == 75
    refused = project.pytest("--resume", "--try-unsupported")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*takes the tests and options of that run: leave the others out*"])
    result = project.pytest("--resume")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*the obstacle in *old.yaml:8 still holds: compile failed: *"])
