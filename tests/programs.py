"""Programs that some tests need and a machine may lack: Slurm, sshd, Chromium, gitlab-ci-local.

A test is skipped where one of them is missing, and with HPC_ML_BENCH_REQUIRE_REAL=1 it fails. The end of a session says
how many tests each missing program has cost.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from typing import NoReturn

import pytest

REASON = re.compile(r"(?:Skipped: )?(?P<program>\S+) is not installed(?: \((?P<install>.*)\))?$")


def find(program: str) -> str | None:
    """Its path; system folders count, which are not in everybody's PATH."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin")


def require(*programs: str, install: str) -> None:
    """Skip the test, or fail it, where one of the programs is not installed. `install` is the line that installs it."""
    for program in programs:
        if find(program) is None:
            missing(program, install)


def missing(program: str, install: str) -> NoReturn:
    """Skip the test for want of a program, or fail it with HPC_ML_BENCH_REQUIRE_REAL=1."""
    reason = f"{program} is not installed ({install})"
    if os.environ.get("HPC_ML_BENCH_REQUIRE_REAL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the tests that were skipped for want of a program, for each program."""
    counts: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        found = REASON.match(reason)
        if found:
            counts[found["program"], found["install"] or ""] += 1
    for (program, install), count in counts.most_common():
        tests = "test was" if count == 1 else "tests were"
        how = f": {install}" if install else ""
        terminalreporter.write_line(f"{count} {tests} skipped for want of {program}{how}")
