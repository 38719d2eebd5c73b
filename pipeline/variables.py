"""The BENCH_* variables of a CI job: their names, their types, and what is wrong with one.

GitLab checks the inputs of the component before a pipeline begins. Variables of a schedule and of other CI
systems have no types, so they are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from platforms.config.durations import seconds_of
from platforms.config.loading import nearest
from platforms.job import RefusedError
from platforms.printable import printable

PREFIX = "BENCH_"

_NAME = (r"[a-z][a-z0-9_]*", "the name of a platform: small letters, digits and _")
_ANY = (r"(?s).*", "any text")
_FOLDER = (r"/.+", "an absolute folder")


def _one_of(*words: str) -> tuple[str, str]:
    return "|".join(words), f"one of {', '.join(words)}"


CHECKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "PLATFORM": _NAME,
        "JOB_PLATFORM": _NAME,
        "ONLY": _NAME,
        "SITE": _ANY,
        "MARKS": _ANY,
        "TESTS": _ANY,
        "SIZE": _one_of("default", "smoke", "quick", "subset", "full"),
        "WAIT": (r"0|(\d+h)?(\d+m)?(\d+s)?|(\d+-)?\d+:[0-5]\d:[0-5]\d", "a time: 0, 5m, 1h, 1:30:00"),
        "GATE": _one_of("on", "off", "require"),
        "HISTORY": (r"/.+|\w[\w./-]*", "an absolute folder, or the name of a branch"),
        "RUNS": _FOLDER,
        "STEP": _one_of("all", "submit", "fetch", "cancel"),
        "RUN": (r"\w[\w.=+-]{0,99}", "a run's id: letters, digits and . _ = + -"),
        "SUITE": _ANY,
        "SUITE_VERSION": _ANY,
        "MERGE_REQUESTS": _one_of("never", "check", "manual"),
        "PAGES": _one_of("true", "false"),
    }
)
"""By the name of a variable, the pattern of its value, and in words. An empty value is as none."""


@dataclass(frozen=True)
class BenchJob:
    """What one CI job is asked to do."""

    project: Path
    """The checkout of the centre's project, in which the CI job runs."""
    pipeline: str
    """The id of the CI system's pipeline; empty outside of one."""
    platform: str
    site: Path
    marks: str
    tests: tuple[str, ...]
    size: str | None
    """None: each platform's own."""
    wait_s: float
    gate: str
    history: Path
    branch: str | None
    """The branch in which the history is kept; None: `history` is a folder that all jobs see."""
    runs: Path
    """The folder of runs."""
    carries_runs: bool
    """The branch of the history also carries the unfinished runs, from one runner to another."""
    run: str | None
    """The only run that is meant; None: all that are unfinished."""
    only: str | None
    """The only platform whose jobs do something; None: all."""

    @property
    def out(self) -> Path:
        """The folder whose content becomes artifacts."""
        return self.project / "bench-out"

    @property
    def kept(self) -> Path:
        """The folder of what jobs of one pipeline leave for each other."""
        return self.project / ".bench"

    @property
    def run_id(self) -> str:
        """The id of the run that this pipeline begins on the platform."""
        return f"{self.pipeline}-{self.platform}"


def read(environ: Mapping[str, str], project: Path, *, needs_platform: bool = True) -> BenchJob:
    """Read the variables of a CI job.

    Raises:
        RefusedError: variables are unknown or have values of another type. The text names all.
    """
    given = {name.removeprefix(PREFIX): value for name, value in environ.items() if name.startswith(PREFIX) and value}
    _refuse_wrong(given)
    if {"PLATFORM", "JOB_PLATFORM"} <= given.keys():
        raise RefusedError(
            f"{PREFIX}PLATFORM={given['PLATFORM']}: the template says that this job is of {given['JOB_PLATFORM']}. A "
            f"pipeline measures one platform alone with {PREFIX}ONLY={given['PLATFORM']}. Nothing was submitted"
        )
    platform = given.get("JOB_PLATFORM", given.get("PLATFORM", ""))
    if needs_platform and not platform:
        raise RefusedError(
            f"{PREFIX}PLATFORM is not set: it names the platform of this job, as in {PREFIX}PLATFORM=local"
        )
    history = given.get("HISTORY", "bench-history")
    shared = history.startswith("/")
    site = project / given.get("SITE", "site")
    if not site.is_dir():
        raise RefusedError(
            f"{PREFIX}SITE: there is no folder {site}. It holds site.yaml and platforms/, and its path begins at the "
            "top of the project (docs/ci.md)"
        )
    if shared and "RUNS" not in given:
        raise RefusedError(
            f"{PREFIX}RUNS is not set. {PREFIX}HISTORY={history} is a folder, so it must be one, too: the next "
            "pipeline looks for unfinished runs there"
        )
    runs = Path(given.get("RUNS", project / ".bench/runs"))
    if "RUNS" in given and not runs.is_dir():
        raise RefusedError(
            f"{PREFIX}RUNS: there is no folder {runs}: is its file system mounted? (mkdir -p {runs} makes it)"
        )
    branch: str | None = history
    folder = project / ".bench/history"
    if shared:
        branch = None
        folder = Path(history)
    size = given.get("SIZE", "default")
    wait = given.get("WAIT", "5m")
    return BenchJob(
        project=project,
        pipeline=environ.get("CI_PIPELINE_ID", ""),
        platform=platform,
        site=site,
        marks=given.get("MARKS", ""),
        tests=tuple(given.get("TESTS", "").split()),
        size=None if size == "default" else size,
        wait_s=0.0 if wait == "0" else seconds_of(wait),
        gate=given.get("GATE", "on"),
        history=folder,
        branch=branch,
        runs=runs,
        carries_runs="RUNS" not in given,
        run=given.get("RUN"),
        only=given.get("ONLY"),
    )


def _refuse_wrong(given: Mapping[str, str]) -> None:
    known = [PREFIX + name for name in CHECKS]
    wrong = []
    for name, value in given.items():
        if name not in CHECKS:
            wrong.append(f"{PREFIX}{printable(name)}: there is no such variable {nearest(PREFIX + name, known)}")
            continue
        pattern, meaning = CHECKS[name]
        if not re.fullmatch(pattern, value, re.ASCII):
            wrong.append(f"{PREFIX}{name}: {value!r}: it is {meaning}")
    if wrong:
        raise RefusedError("\n".join([*wrong, "Nothing was submitted. docs/ci.md lists the variables"]))
