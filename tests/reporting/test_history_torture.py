"""Many writers of one history, which are killed at any moment, with and without locks that work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reporting.history.reader import read, run_of
from reporting.history.writer import HistoryWriter
from tests.reporting.history_lines import BEGAN_S, envelope
from tests.reporting.history_writers import WRITERS, run_json

ROOT = Path(__file__).resolve().parents[2]
KILLS = 30
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
LOCKS_FAIL = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

static int no_locks(void) { errno = ENOLCK; return -1; }

int flock(int file, int operation) { (void)file; (void)operation; return no_locks(); }

int fcntl64(int file, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    switch (command) {
    case F_GETLK: case F_SETLK: case F_SETLKW: case F_OFD_GETLK: case F_OFD_SETLK: case F_OFD_SETLKW:
        return no_locks();
    }
    return (int)syscall(SYS_fcntl, file, command, argument);
}

int fcntl(int file, int command, ...) __attribute__((alias("fcntl64")));
"""


def write_and_kill(tmp_path: Path, environ: dict[str, str], seed: int) -> None:
    """Check that readers find every acknowledged line once and whole, while the writers write and afterwards."""
    history, acknowledged = tmp_path / "history", tmp_path / "acknowledged"
    acknowledged.mkdir()
    arguments = [str(history), str(acknowledged), str(KILLS), str(seed)]
    problems: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.reporting.history_writers", *arguments],
        cwd=ROOT,
        env=environ,
    ) as writers:
        while writers.poll() is None:
            for each in read(history, problems=problems)[-3:]:
                assert run_of(history, each) == run_json(each.key.run_id, each.key.attempt)
    assert writers.returncode == 0
    found = read(history, problems=problems)
    assert problems == []
    noted = {tuple(line.split()) for path in acknowledged.iterdir() for line in path.read_text().splitlines()}
    written = {(each.key.run_id, str(each.key.attempt)) for each in found}
    assert noted
    assert noted <= written
    assert len(written - noted) <= KILLS + WRITERS  # each writer may be killed before it notes its last line
    lines = sum(path.read_bytes().count(b"\n") for path in history.rglob("*[0-9a-f].jsonl"))
    assert len(found) == len(written) == lines
    for each in found:
        assert run_of(history, each) == run_json(each.key.run_id, each.key.attempt)


@pytest.mark.slow
def test_writers_that_are_killed_lose_no_acknowledged_line(tmp_path: Path) -> None:
    write_and_kill(tmp_path, dict(os.environ), seed=1)


@pytest.mark.nightly("reporting/history", "platforms/atomic_file.py", "tests/reporting/history_writers.py")
@pytest.mark.skipif(COMPILER is None, reason="cc is not installed (apt-get install gcc)")
def test_writers_need_no_locks(tmp_path: Path) -> None:
    source, library = tmp_path / "locks_fail.c", tmp_path / "locks_fail.so"
    source.write_text(LOCKS_FAIL)
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    environ = {**os.environ, "LD_PRELOAD": str(library)}
    for function in ("flock", "lockf"):
        code = f"import fcntl; fcntl.{function}(open({str(source)!r}), fcntl.LOCK_SH)"
        tried = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
        assert "No locks available" in tried.stderr
    write_and_kill(tmp_path, environ, seed=2)


@pytest.mark.slow
def test_half_a_year_of_nights_leaves_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)  # which only takes time here
    for night in range(180):
        began_s = BEGAN_S + night * 86400
        writer = HistoryWriter(tmp_path, clock=lambda began_s=began_s: began_s)
        for attempt in (1, 2):
            writer.write(envelope(run_id=f"nightly-{night}", attempt=attempt), {"attempt": attempt})
    assert sum(len(names) for _, _, names in os.walk(tmp_path)) == 360
    assert len(list(tmp_path.iterdir())) == 7
    assert len(read(tmp_path)) == 360
