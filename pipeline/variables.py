"""The BENCH_* variables of a CI job: their names, their types, and what is wrong with one.

GitLab checks the inputs of the component before a pipeline begins. Variables of a schedule and of other CI
systems have no types, so they are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from platforms.config.durations import seconds_of
from platforms.config.loading import nearest
from platforms.job import RefusedError
from platforms.printable import printable

PREFIX = "BENCH_"
SIZES = ("smoke", "quick", "subset", "full")
GATES = ("on", "off", "require")
STEPS = ("all", "submit", "fetch", "cancel")


def _any(text: str) -> None:
    del text


def _one_of(*words: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text not in words:
            raise ValueError(f"it is one of {', '.join(words)}")

    return check


def _matches(pattern: str, meaning: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(f"it is {meaning}")

    return check


def _time(text: str) -> None:
    if text != "0":
        seconds_of(text)


_NAME = _matches(r"[a-z][a-z0-9_]*", "the name of a platform: small letters, digits and _")
_FOLDER = _matches(r"[^\0\n]+", "a folder")
_RUN = _matches(r"\w[\w.=+-]{0,99}", "a run's id: letters, digits and . _ = + -")
CHECKS: Mapping[str, Callable[[str], None]] = MappingProxyType(
    {
        "PLATFORM": _NAME,
        "JOB_PLATFORM": _NAME,
        "ONLY": _NAME,
        "SITE": _FOLDER,
        "MARKS": _any,
        "TESTS": _any,
        "SIZE": _one_of("default", *SIZES),
        "WAIT": _time,
        "GATE": _one_of(*GATES),
        "HISTORY": _matches(r"/.+|\w[\w./-]*", "an absolute folder, or the name of a branch"),
        "RUNS": _matches(r"/.+", "an absolute folder"),
        "STEP": _one_of(*STEPS),
        "RUN": _RUN,
        "SUITE": _any,
        "SUITE_VERSION": _any,
        "MERGE_REQUESTS": _one_of("never", "check", "manual"),
        "PAGES": _one_of("true", "false"),
    }
)
"""The variables without their prefix, and what checks the value of each. An empty value is as none."""


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
    scheduled: bool
    """A schedule of GitLab has started the pipeline."""

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
        RefusedError: a variable is unknown or has a value of another type. The text names all such variables.
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
        history=Path(history) if shared else project / ".bench/history",
        branch=None if shared else history,
        runs=runs,
        carries_runs="RUNS" not in given,
        run=given.get("RUN"),
        only=given.get("ONLY"),
        scheduled=environ.get("CI_PIPELINE_SOURCE") == "schedule",
    )


def _refuse_wrong(given: Mapping[str, str]) -> None:
    known = [PREFIX + name for name in CHECKS]
    wrong = []
    for name, value in given.items():
        if name not in CHECKS:
            wrong.append(f"{PREFIX}{printable(name)}: there is no such variable {nearest(PREFIX + name, known)}")
            continue
        try:
            CHECKS[name](value)
        except ValueError as error:
            wrong.append(f"{PREFIX}{name}: {value!r}: {error}")
    if wrong:
        raise RefusedError("\n".join([*wrong, "Nothing was submitted. docs/ci.md lists the variables"]))
