"""`python -m reporting bundle`: one file from which a stranger recomputes the numbers of runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import textwrap
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from platforms.job import Outcome
from platforms.rundir.session_history import DONE, PENDING
from platforms.rundir.session_journal import Journal
from reporting.__main__ import main
from reporting.bundle.methods import methods_text
from reporting.bundle.records import RunRecord
from reporting.history.run_facts import envelope_of
from tests.reporting.bundled_session import (
    ALL,
    COSMOFLOW,
    MINE,
    RECORDED,
    RESNET,
    RUN_ID,
    STREAM,
    BundledSession,
    contents_of,
    session,
)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return captured.out + captured.err


def verified(bundle: Path, *options: str) -> int:
    return main(["verify", str(bundle), *options])


def test_it_holds_everything_that_there_is_of_each_run(tmp_path: Path) -> None:
    files = contents_of(session(tmp_path, with_code=True).bundle())
    of_resnet = {name.rpartition("/")[2] for name in files if name.startswith(f"jobs/{RUN_ID}/{RESNET}/")}
    assert of_resnet == {
        "run.json",
        "history.json",
        "job.sh",
        "wire.log",
        "steps-rank0.csv",
        "steps-rank1.csv",
    }
    of_stream = {name.rpartition("/")[2] for name in files if name.startswith(f"jobs/{RUN_ID}/{STREAM}/")}
    assert of_stream == {"run.json", "history.json", "job.sh"}, "a program without windows has no steps"
    others = {name for name in files if not name.startswith("jobs/")}
    (code,) = (name for name in others if name.startswith("code/models-"))
    assert others - {code} == {
        "MANIFEST",
        "README.md",
        "METHODS.md",
        "REPLACED.md",
        "contents.json",
        "tables/tables.txt",
        "tables/tables.md",
        "tables/tables.csv",
    }
    assert f"`jobs/{RUN_ID}/{RESNET}`: from the raw values of 2 ranks to the tables" in files["README.md"].decode()


def test_its_tables_are_those_of_the_command_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = session(tmp_path)
    files = contents_of(made.bundle())
    capsys.readouterr()
    assert main(["table", "--all", *made.options]) == 0
    numbers = ("25.4", "99.4%", "25.1", "2.1%", "81000")  # of ResNet-50, and of the program of the site
    shown = capsys.readouterr().out
    for number in numbers:
        assert number in shown
        assert number in files["tables/tables.txt"].decode()
        assert number in files["tables/tables.md"].decode()
    assert b"25.07830415077567" in files["tables/tables.csv"], "all digits"
    assert b"against pin" not in files["tables/tables.txt"], "a verdict depends on runs that are not in the bundle"


def test_what_the_methods_say(tmp_path: Path) -> None:
    methods = contents_of(session(tmp_path).bundle())["METHODS.md"].decode()
    for words in (
        "On twin the runs used the devices AMD EPYC and x86_64 in the layout 1x1cpu",
        "torch 2.13.0+cpu",
        "ResNet-50 was trained with variant v1.5, configuration gbs32, size smoke, samples of 64x64, number format "
        "fp32, global batch size 8 (4 per rank and micro-batch, 1 micro-batch), mode overlap.",
        "Its data set was synthetic, 64 samples as jpeg of 0.117 MB on average; at least 90 % of its bytes were in the",
        "2 steps of warm-up were discarded, then 3 windows of 4 steps were measured, back to back, of 1.26 to 1.31 s.",
        "4 runs started on 2026-11-23 between 04:18 and 04:19 UTC.",
        "Other processes disturbed 0 of 2 runs in which that was measured.",
        "site/test_mine.py::test_stream[twin-1x1cpu] is another program, from whose output triad in MB/s was read",
        "Not known: whether the nodes were reserved for these jobs alone;",
        "how much runs differ, of a test that ran once.",
    ):
        assert words in methods


def test_the_methods_name_replicas_where_a_rank_drives_several_devices() -> None:
    content = json.loads((RECORDED / RESNET / "run.json").read_text())
    content["start"]["world"].update(replicas=4, devices_per_replica=2)
    content["start"]["request"].update(replicas=4)
    envelope = envelope_of(
        content, site="centre", run_id="r", attempt=1, outcome=Outcome.PASSED, sane=True, revision=3, written_s=0.0
    )
    methods = methods_text([RunRecord("jobs/r/t", content, envelope, 0, False, "", ())])
    assert "with 2 ranks, which drive 4 replicas of 2 devices, on nodes" in methods
    assert "global batch size 8 (4 per replica and micro-batch, 1 micro-batch)" in methods


def test_the_same_runs_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = session(tmp_path, with_code=True)
    first = made.bundle(name="first.zip")
    for path in made.jobs.rglob("*"):
        os.utime(path, (1, 1))
    monkeypatch.setenv("TZ", "Australia/Sydney")
    time.tzset()
    try:
        assert made.bundle(name="second.zip").read_bytes() == first.read_bytes()
        assert verified(first) == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    with zipfile.ZipFile(first) as packed:
        assert {member.date_time for member in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {member.extra + member.comment for member in packed.infolist()} == {b""}


def test_the_digest_is_the_sha256_of_the_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = session(tmp_path).bundle()
    digest = f"sha256:{hashlib.sha256(contents_of(bundle)['MANIFEST']).hexdigest()}"
    assert f"digest: {digest}\n" in said(capsys)
    assert verified(bundle, "--digest", digest) == 0
    assert "identical: " in said(capsys)
    assert verified(bundle, "--digest", f"sha256:{'0' * 64}") == 1
    assert f"the digest of this bundle is {digest}, and sha256:0000" in said(capsys)
    assert verified(bundle, "--digest", "sha256:12") == 2
    assert "'sha256:12' is none: it is sha256: and 64 hexadecimal digits" in said(capsys)


@pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed")
def test_a_stranger_checks_its_files_without_the_suite(tmp_path: Path) -> None:
    bundle = session(tmp_path).bundle()
    out = tmp_path / "unpacked"
    subprocess.run(["unzip", "-q", str(bundle), "-d", str(out)], check=True)
    done = subprocess.run(["sha256sum", "-c", "MANIFEST"], cwd=out, capture_output=True, text=True, check=True)
    assert "FAILED" not in done.stdout
    assert "improperly formatted" not in done.stderr
    assert len(done.stdout.splitlines()) == len(contents_of(bundle)) - 1


def test_what_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = session(tmp_path)
    shutil.rmtree(made.jobs / COSMOFLOW)
    (made.jobs / RESNET / "work" / "steps-rank1.csv.gz").unlink()
    (made.jobs / MINE / "work" / "steps-rank0.csv.gz").write_bytes(b"no gzip")
    bundle = made.bundle()
    out = said(capsys)
    assert f"missing: jobs/{RUN_ID}/{COSMOFLOW}: its script, log, steps and code are not in the bundle" in out
    assert (
        f"missing: jobs/{RUN_ID}/{RESNET}: the steps of 1 of 2 ranks are not in its folder: copy steps-rank<N>" in out
    )
    assert "the steps cannot be used: steps-rank0.csv.gz: steps-rank0.csv.gz is damaged" in out
    assert "models-b5cf5c583633.pyz is not in runs/archives" in out
    readme = contents_of(bundle)["README.md"].decode()
    assert "the steps of 1 of 2 ranks are not in its folder" in readme
    assert f"`jobs/{RUN_ID}/{COSMOFLOW}`: from the record of the run to the tables" in readme
    assert verified(bundle) == 0
    assert "of 2 jobs from what was reported, without raw values, of 2 jobs from the records alone" in said(capsys)


def test_the_steps_of_a_slurm_job_are_read_where_it_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = session(tmp_path, (RESNET,))
    far = tmp_path / "scratch" / "a job's folder" / "work"
    far.parent.mkdir(parents=True)
    (made.jobs / RESNET / "work").rename(far)
    script = f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --chdir={shlex.quote(str(far))}\n#SBATCH --account=12\n"
    (made.jobs / RESNET / "job.sh").write_text(script)
    files = contents_of(made.bundle())
    assert f"jobs/{RUN_ID}/{RESNET}/steps-rank1.csv" in files
    job = files[f"jobs/{RUN_ID}/{RESNET}/job.sh"].decode()
    assert "#SBATCH --nodes=1\n" in job
    assert "#SBATCH --account=account-1\n" in job
    assert "scratch" not in job
    assert "steps of" not in said(capsys)


@pytest.mark.parametrize("scheduler", ["slurm", "ssh"])
def test_the_loops_of_the_page_bring_the_steps_here(scheduler: str, tmp_path: Path) -> None:
    """`ssh` runs the command on this machine, by a shell, as sshd does on the other one."""
    made = session(tmp_path, (RESNET,))
    there = tmp_path / "far" / "jobs" / "resnet50-k1"
    there.mkdir(parents=True)
    (made.jobs / RESNET / "work").rename(there / "work")
    record = made.jobs / RESNET / "run.json"
    if scheduler == "slurm":
        (made.jobs / RESNET / "job.sh").write_text(f"#!/bin/bash\n#SBATCH --chdir={there / 'work'}\n")
    else:
        record.write_text(json.dumps({**json.loads(record.read_text()), "job_id": str(there)}))
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\n[ "$1 $2" = "-n login.example.org" ] || exit 1\nexec sh -c "$3"\n')
    ssh.chmod(0o755)
    page = (Path(__file__).parents[2] / "docs" / "bundle.md").read_text()
    found = re.findall(r"^    for .*?^    done$", page, re.DOTALL | re.MULTILINE)
    loops = dict(zip(("slurm", "ssh"), map(textwrap.dedent, found), strict=True))
    typed = loops[scheduler].replace("20261123-041727-5bf2", RUN_ID)
    environ = {**os.environ, "PATH": f"{ssh.parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", typed], cwd=tmp_path, env=environ, check=True)
    assert {path.name for path in (made.jobs / RESNET).glob("steps-*")} == {
        "steps-rank0.csv.gz",
        "steps-rank1.csv.gz",
    }


def test_imported_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = session(tmp_path, ())
    recorded = Path(__file__).parent / "recordings" / "reframe" / "results.db"
    assert main(["import", "reframe", str(recorded), *made.options]) == 0
    capsys.readouterr()
    bundle = made.bundle("platform=generic:default")
    out = said(capsys)
    assert " and 18 more: it is imported, so it has no run.json, log, steps or code\n" in out
    assert out.count("left out: insane@generic:default+builtin of reframe-") == 5
    assert "left out: 2 more, which README.md in the bundle names\n" in out
    methods = contents_of(bundle)["METHODS.md"].decode()
    assert "The numbers of 19 runs were recorded by reframe and imported." in methods
    assert "hpc-ml-bench" not in methods
    assert verified(bundle) == 0
    assert "of 19 jobs from the records alone" in said(capsys)


def test_an_archived_run_says_how_it_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = session(tmp_path, (STREAM,))
    (tmp_path / "runs" / "old").mkdir()
    made.jobs.rename(tmp_path / "runs" / "old" / "going")
    (tmp_path / "runs" / "old" / f"{RUN_ID}.tar.gz").touch()
    made.bundle()
    assert f"its folder was archived (tar -xf runs/old/{RUN_ID}.tar.gz -C runs brings it back)" in said(capsys)


def test_a_folder_of_another_job_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = session(tmp_path, (STREAM,))
    record = made.jobs / STREAM / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "started_s": 1.0}))
    made.bundle()
    assert "its folder here is that of another job" in said(capsys)


def test_a_run_without_numbers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = session(tmp_path, (RESNET,), sane=False)
    assert main(["bundle", RUN_ID, "-o", str(tmp_path / "b.zip"), *made.options]) == 2
    out = said(capsys)
    assert f"{RUN_ID}: no run has numbers, so there is nothing to bundle" in out
    assert "recorded no numbers: error" in out
    assert not (tmp_path / "b.zip").exists()


@pytest.mark.parametrize("word", ["latest", "platform=twin", "date=2026-11-22..2026-11-23", f"run={RUN_ID}"])
def test_which_runs_are_chosen(tmp_path: Path, word: str) -> None:
    files = contents_of(session(tmp_path).bundle(word))
    assert all(f"jobs/{RUN_ID}/{name}/run.json" in files for name in ALL)


def test_the_runs_of_a_label(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["trial"] = {"label": "before", "repeat": 2}

    bundle = session(tmp_path, (RESNET,), change_run=change).bundle("before")
    assert f"jobs/{RUN_ID}/{RESNET}+measure-before-2/steps-rank1.csv" in contents_of(bundle)
    assert verified(bundle) == 0


def test_an_unknown_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = session(tmp_path, (STREAM,))
    assert main(["bundle", "nightly", "-o", str(tmp_path / "b.zip"), *made.options]) == 2
    assert f"'nightly' is no run of {tmp_path / 'history'} and no label; the last runs are {RUN_ID}" in said(capsys)
    assert main(["bundle", "latest", "-o", str(tmp_path / "no" / "b.zip"), *made.options]) == 2
    assert "its folder does not exist (mkdir -p " in said(capsys)


ANOTHER = "test_deepcam.py::test_deepcam[twin-1x1cpu-gbs32]"


def journal_of(made: BundledSession) -> Journal:
    """The record of a session of the run, which has one more test than the history. This process is the session."""
    tests = [json.loads((made.jobs / RESNET / "run.json").read_text())["test"], ANOTHER]
    return Journal(made.jobs, {"tests": tests, "options": {}})


def test_a_run_whose_session_still_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = session(tmp_path, (RESNET,))
    journal = journal_of(made)
    words = ["bundle", "latest", "-o", str(tmp_path / "b.zip"), f"--runs-dir={tmp_path / 'runs'}", *made.options]
    assert main(words) == 2
    said_of_it = f"error: {RUN_ID}: its session still runs, and results of 1 of its 2 tests are there: bundle it when"
    assert said_of_it in said(capsys)
    assert not (tmp_path / "b.zip").exists()
    sentence = (
        f"1 of the 2 tests of run {RUN_ID} had no result when the bundle was made: its session was still running."
    )
    bundle = made.bundle("latest", "--unfinished")
    assert f"not finished: {sentence}" in said(capsys)
    for name in ("README.md", "METHODS.md"):
        assert sentence in contents_of(bundle)[name].decode()
    assert verified(bundle) == 0
    journal.end(DONE)
    finished = made.bundle()
    assert "not finished" not in said(capsys).partition("digest: ")[0]
    assert b"unfinished" not in contents_of(finished)["contents.json"]


def test_a_run_with_pending_tests_is_bundled_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = session(tmp_path, (RESNET,))
    journal_of(made).end(PENDING)
    bundle = made.bundle()
    sentence = f"1 of the 2 tests of run {RUN_ID} had no result when the bundle was made: its session had left them."
    assert f"{bundle}: 1 job of 1 run, " in (out := said(capsys))
    assert f"not finished: {sentence}" in out
    assert sentence in contents_of(bundle)["METHODS.md"].decode()
    assert verified(bundle) == 0


def test_numbers_that_do_not_follow_from_the_raw_values_are_said_when_the_bundle_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(text: str) -> str:
        return text.replace('"wall_s": 1.2625227329990594', '"wall_s": 1.1625', 1)

    made = session(tmp_path, (RESNET,), change=lambda text: change(text) if '"asked"' in text else text)
    path = tmp_path / "b.zip"
    assert main(["bundle", RUN_ID, "-o", str(path), f"--runs-dir={tmp_path / 'runs'}", *made.options]) == 1
    out = said(capsys)
    assert f"{RESNET}/run.json: windows[0].wall_s: 1.1625 stands there, and 1.2625227329990594 in wire.log" in out
    assert f"{path}: its numbers do not follow from its raw values" in out


def test_whole_logs_are_taken_only_if_asked_for(tmp_path: Path) -> None:
    made = session(tmp_path)
    log = made.jobs / RESNET / "log"
    log.write_text("a line of another program\n" + log.read_text())
    assert not any(b"another program\n" in content for content in contents_of(made.bundle()).values())
    files = contents_of(made.bundle("--with-logs"))
    assert files[f"jobs/{RUN_ID}/{RESNET}/log"].startswith(b"a line of another program\n")
    assert verified(made.folder / "bundle.zip") == 0
