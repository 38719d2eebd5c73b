"""--try-unsupported: tests that run although `unsupported:` or `cannot_run:` of their platform's file marks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from platforms.config import yaml_lines
from platforms.config.schema import Platform
from platforms.job import StillUnsupported

if TYPE_CHECKING:
    from harness.suite import Suite


def refuse_nothing_to_try(suite: Suite, chosen: Sequence[pytest.Item]) -> None:
    """Raise UsageError where none of the chosen tests is marked on a platform that was named."""
    if any(suite.case(item).is_tried for item in chosen):
        return
    marked = []
    for platform in suite.platforms.values():
        names = ["all benchmarks"] if platform.cannot_run is not None else sorted(platform.unsupported)
        if names:
            marked.append(f"{platform.name} ({', '.join(names)})")
    raise pytest.UsageError(
        "--try-unsupported: none of the chosen tests is marked by `unsupported:` or `cannot_run:` of a platform that "
        "is named, so there is nothing to try. Name a platform, as in -m graphcore; marked are: "
        f"{', '.join(marked) or 'none'}"
    )


def lines(suite: Suite) -> Iterator[str]:
    """Say at the end of a session of each tried test whether its mark still holds."""
    for test, job in suite.jobs.items():
        why = job.spec.unsupported
        if why is None or not job.done:
            continue
        places = " and ".join(_places(job.platform, job.spec.benchmark or ""))
        if test in suite.ended_tests and job.error is None and test not in suite.discarded:
            yield f"{test}: it runs, although {places} says that it cannot ({why}): remove the mark there"
        elif isinstance(job.error, StillUnsupported):
            yield f"{test}: the mark in {places} holds: {job.error.status.reason}"


def _places(platform: Platform, benchmark: str) -> Iterator[str]:
    """The file and line of each mark of a benchmark."""
    document = yaml_lines.read(platform.source)
    if platform.cannot_run is not None:
        yield f"{platform.source}:{document.line(('cannot_run',))}"
    if benchmark in platform.unsupported:
        yield f"{platform.source}:{document.line(('unsupported', benchmark))}"
