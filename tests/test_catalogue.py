"""The tests of catalogue/, with stand-ins that print what tools printed (tests/catalogue/), and with planted faults.

The script of a job runs for real, in sh; the stand-ins of its tools are first on PATH.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalogue import test_fio, test_hpl, test_mpi, test_stream, test_user_path
from platforms.job import Run, State, Status
from tests.harness.conftest import ROOT, Project
from tests.harness.conftest import nursery as nursery
from tests.harness.conftest import project as project

RECORDED = Path(__file__).parent / "catalogue"
LSCPU = 'case $1 in -p*) echo "0,0"; echo "1,0" ;; *) echo "ALL-SIZE"; echo " 33554432" ;; esac'
# Writes the file that fio would have written: from /dev/urandom, or zeros.
FIO = """
for word; do case $word in --directory=*) folder=${word#*=} ;; esac; done
head -c 1M %s > "$folder/data"
cat "$RECORDED/fio.txt"
"""
# As gcc: makes a program that prints the recording.
GCC = (
    'while [ "$1" != -o ]; do shift; done; printf "#!/bin/sh\\ncat %s/stream.txt\\n" "$RECORDED" > "$2"; chmod +x "$2"'
)
NETPIPE = """
for word; do case $word in -i) cat "$RECORDED/netpipe.txt" ;; esac; done
for word; do last=$word; done
[ "$last" = /dev/null ] || cat "$RECORDED/netpipe_results.txt" > "$last"
"""


class Replay:
    """One test of the catalogue: its job's script with stand-ins, its log, and what its body records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.recorded = folder / "recorded"
        self.metrics: dict[str, Any] = {}
        self.programs.mkdir()
        self.recorded.mkdir()
        for path in RECORDED.iterdir():
            self.recorded.joinpath(path.name).write_text(path.read_text())

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def edit(self, name: str, old: str, new: str) -> None:
        """Plant a fault into a recording."""
        path = self.recorded / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def job(self, test: Callable[..., None], **environ: str) -> subprocess.CompletedProcess[str]:
        """Run the job of a test; what it prints is its log."""
        (mark,) = [mark for mark in getattr(test, "pytestmark") if mark.name == "workload"]  # noqa: B009
        words = [word.replace("{data_dir}", str(self.folder / "data")) for word in mark.kwargs["command"]]
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        environ = {**os.environ, "PATH": path, "RECORDED": str(self.recorded), **environ}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
        (self.folder / "log").write_text(done.stdout)
        return done

    def body(self, test: Callable[..., None], log: str | None = None) -> None:
        """Run the body of a test on the log."""
        if log is not None:
            (self.folder / "log").write_text(log)
        status = Status(State.SUCCEEDED, started_s=100.0, ended_s=100.25)
        test(Run(folder=self.folder, status=status), self._record)

    def _record(self, run: Run, metrics: dict[str, Any], **extra: object) -> None:
        self.metrics = metrics

    def passes(self, test: Callable[..., None], **environ: str) -> dict[str, float]:
        done = self.job(test, **environ)
        assert done.returncode == 0, done.stdout + done.stderr
        self.body(test)
        return {name: round(value, 3) for name, (value, _, _) in self.metrics.items()}

    def fails(self, test: Callable[..., None], says: str, **environ: str) -> None:
        self.job(test, **environ)
        with pytest.raises(AssertionError, match=says):
            self.body(test)
        assert not self.metrics


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    return Replay(tmp_path)


@pytest.fixture
def fio(replay: Replay) -> Replay:
    replay.program("fio", FIO % "/dev/urandom")
    replay.program("awk", "echo 716726272")  # reads /proc/PID/io: what the kernel fetched at the recording
    return replay


@pytest.fixture
def hpcc(replay: Replay) -> Replay:
    replay.program("hpcc", "")
    replay.program("mpirun", 'cp "$RECORDED/hpcc.txt" hpccoutf.txt; cp hpccinf.txt "$RECORDED/input"')
    replay.program("lscpu", LSCPU)
    return replay


@pytest.fixture
def stream(replay: Replay) -> Replay:
    replay.program("gcc", GCC)
    replay.program("lscpu", LSCPU)
    return replay


@pytest.fixture
def netpipe(replay: Replay) -> Replay:
    replay.program("NPopenmpi", "")
    replay.program("mpirun", NETPIPE)
    return replay


def test_fio_is_read_and_its_files_are_removed(fio: Replay) -> None:
    assert fio.passes(test_fio.test_fio) == {"checkpoint": 0.872, "read": 0.742, "iops": 36445.037, "create": 6006.006}
    assert list((fio.folder / "data").iterdir()) == []


def test_fio_without_direct_io_fails(fio: Replay) -> None:
    fio.edit("fio.txt", '"direct" : "1"', '"direct" : "0"')
    fio.fails(test_fio.test_fio, "fio did not use direct I/O: the page cache is no storage")


def test_a_page_cache_that_answers_for_the_storage_fails(fio: Replay) -> None:
    fio.program("awk", "echo 4096")
    fio.fails(test_fio.test_fio, r"of \d+ bytes, 4096 came from storage, the rest from a cache")


def test_data_that_compress_fail(fio: Replay) -> None:
    fio.program("fio", FIO % "/dev/zero")
    fio.fails(test_fio.test_fio, r"the data are compressible: gzip makes \d{4} bytes of 1048576")


def test_hpcc_is_read(hpcc: Replay) -> None:
    assert hpcc.passes(test_hpl.test_hpl, HPCC_N="7200") == {"hpl": 1.518, "stream": 9.045}
    lines = (hpcc.recorded / "input").read_text().splitlines()
    assert (lines[5], lines[10], lines[11]) == ("7200 N", "1 P", "2 Q")


def test_a_wrong_residual_of_hpl_fails(hpcc: Replay) -> None:
    hpcc.edit("hpcc.txt", "0.0054099 ...... PASSED", "54.0990000 ...... FAILED")
    hpcc.fails(test_hpl.test_hpl, "HPL's residual is wrong")


def test_an_error_of_another_part_of_hpcc_fails(hpcc: Replay) -> None:
    hpcc.edit("hpcc.txt", "Success=1", "Success=0")
    hpcc.fails(test_hpl.test_hpl, "hpcc says that one of its tests is wrong")


def test_arrays_that_fit_into_the_last_cache_fail(hpcc: Replay, stream: Replay) -> None:
    hpcc.program("lscpu", LSCPU.replace("33554432", "335544320"))
    hpcc.fails(test_hpl.test_hpl, "STREAM measured a cache: let HPCC_N")
    stream.fails(test_stream.test_stream, "arrays of 134217728 bytes", STREAM_C=__file__)


def test_stream_is_compiled_and_read(stream: Replay) -> None:
    assert stream.passes(test_stream.test_stream, STREAM_C=__file__) == {"triad": 4.968}


def test_a_wrong_result_of_stream_fails(stream: Replay) -> None:
    stream.edit("stream.txt", "Solution Validates", "Failed Validation on array a[]")
    stream.fails(test_stream.test_stream, "STREAM says that its results are wrong", STREAM_C=__file__)


def test_netpipe_is_read(netpipe: Replay) -> None:
    assert netpipe.passes(test_mpi.test_ping_pong) == {"latency": 3.88, "bandwidth": 1.219}


def test_messages_that_arrive_changed_fail(netpipe: Replay) -> None:
    netpipe.edit("netpipe.txt", "19:    6144 bytes      3 times -->  Integrity check passed", " Integrity check failed")
    netpipe.fails(test_mpi.test_ping_pong, "what arrived is not what was sent")


def test_imports_are_those_of_the_slowest_node(replay: Replay) -> None:
    node = "cold import: %s s, 500000000 bytes fetched from storage\nwarm import: 2.5 s, 0 bytes fetched from storage\n"
    replay.body(test_user_path.test_import_torch, node % "9.79" + node % "11.0")
    assert replay.metrics == {"cold_import": (11.0, "s", "lower"), "warm_import": (2.5, "s", "lower")}
    with pytest.raises(AssertionError, match="the first import was not cold"):
        replay.body(test_user_path.test_import_torch, node.replace("500000000", "0") % "3.0")


def test_an_empty_job_takes_as_long_as_its_status_says(replay: Replay) -> None:
    replay.body(test_user_path.test_empty_job, "")
    assert replay.metrics == {"empty_job": (0.25, "s", "lower")}


def test_an_empty_step_of_slurm_is_timed_in_its_job(replay: Replay) -> None:
    replay.program("srun", "sleep 0.05")
    metrics = replay.passes(test_user_path.test_empty_job, SLURM_JOB_ID="7")
    assert metrics.keys() == {"empty_step"}
    assert metrics["empty_step"] >= 0.05


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (test_fio.test_fio, "fio is not on this node: Debian's package fio, or https://github.com/axboe/fio"),
        (test_hpl.test_hpl, "hpcc is not on this node: Debian's package hpcc"),
        (test_mpi.test_ping_pong, "NPopenmpi is not on this node: Debian's package netpipe-openmpi"),
    ],
)
def test_a_tool_that_is_not_there_is_a_sentence(replay: Replay, test: Callable[..., None], says: str) -> None:
    replay.program("sh", 'PATH=; export PATH; exec /bin/sh "$@"')
    done = replay.job(test)
    assert (done.returncode, done.stdout) == (127, f"{says}\n")


def test_stream_without_its_source_is_a_sentence(replay: Replay) -> None:
    done = replay.job(test_stream.test_stream, STREAM_C="/nowhere/stream.c")
    assert done.returncode == 127
    assert "names no file: get stream.c from https://www.cs.virginia.edu/stream/" in done.stdout


@pytest.mark.slow
def test_the_catalogue_runs_where_it_is_named(project: Project, fio: Replay) -> None:
    project.platform("mine", f"env: {{PATH: '{fio.programs}:{os.environ['PATH']}', RECORDED: {fio.recorded}}}\n")
    for name in ("test_fio.py", "test_hpl.py", "tools.py"):
        project.write(f"catalogue/{name}", (ROOT / "catalogue" / name).read_text())
    result = project.pytest("catalogue", "-m", "mine and nightly", "-k", "fio")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*mine*checkpoint*0.872*GB/s*"])
    assert not project.pytest("--collect-only", "-q").stdout.str().count("catalogue")


def test_what_the_readme_says_is_primary_is_what_is_recorded() -> None:
    text = (ROOT / "catalogue" / "README.md").read_text()
    for path in (ROOT / "catalogue").glob("test_*.py"):
        row = next(line for line in text.splitlines() if line.startswith(f"| `{path.name}`"))
        recorded = re.findall(r'"(\w+)": \(.*?, "(?:higher|lower)"\)', path.read_text())
        assert [name for name in recorded if f"`{name}`" not in row] == []
