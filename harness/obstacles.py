"""--try-unsupported: tests run although `unsupported:` or `cannot_run:` of their platform's file is against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from harness import select
from platforms.config import yaml_lines
from platforms.config.schema import Platform
from platforms.job import StillUnsupported

if TYPE_CHECKING:
    from harness.suite import Suite


def refuse_nothing_to_try(suite: Suite, chosen: Sequence[pytest.Item]) -> None:
    """Raise UsageError where none of the chosen tests can be tried. In a dry run it is enough that they have an
    obstacle."""
    cases = [suite.case(item) for item in chosen]
    if any(case.is_tried for case in cases):
        return
    has_obstacle = any(case.obstacle is not None for case in cases)
    if has_obstacle and suite.options.dry_run:
        return
    lines = [
        "--try-unsupported: there is nothing to try. It runs the tests of which the file of a named platform says that "
        "they cannot run (`unsupported:`, `cannot_run:`), and none of the chosen tests is one"
    ]
    if has_obstacle:
        lines[0] += " on a machine that is in service. With --dry-run their jobs are shown"
    in_service = [platform for platform in suite.platforms.values() if select.ended(platform) is None]
    known = [_with_benchmarks(platform) for platform in in_service if _has_obstacles(platform)]
    if known:
        lines.append(f"Name a platform, as in -m {known[0].split()[0]}; it can be: {', '.join(known)}")
    raise pytest.UsageError(". ".join(lines))


def _has_obstacles(platform: Platform) -> bool:
    return platform.cannot_run is not None or bool(platform.unsupported)


def _with_benchmarks(platform: Platform) -> str:
    """Write `cerebras_cs3 (cosmoflow, deepcam)`."""
    names = ["all benchmarks"] if platform.cannot_run is not None else sorted(platform.unsupported)
    return f"{platform.name} ({', '.join(names)})"


def lines(suite: Suite) -> Iterator[str]:
    """Say at the end of a session of each tried test whether the obstacle in its platform's file still holds."""
    for test, job in suite.jobs.items():
        why = job.spec.unsupported
        if why is None or not job.done:
            continue
        places = " and ".join(_places(job.platform, job.spec.benchmark or ""))
        if test in suite.ended_tests and job.error is None and test not in suite.discarded:
            yield f"{test}: it runs, although {places} says that it cannot ({why}): remove the obstacle there"
        elif isinstance(job.error, StillUnsupported):
            yield f"{test}: the obstacle in {places} still holds: {job.error.status.reason}"


def _places(platform: Platform, benchmark: str) -> Iterator[str]:
    """The file and line of each obstacle to a benchmark."""
    document = yaml_lines.read(platform.source)
    if platform.cannot_run is not None:
        yield f"{platform.source}:{document.lines.at(('cannot_run',))}"
    if benchmark in platform.unsupported:
        yield f"{platform.source}:{document.lines.at(('unsupported', benchmark))}"
