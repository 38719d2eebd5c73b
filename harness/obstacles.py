"""--try-unsupported: tests run although `unsupported:` or `cannot_run:` of their platform's file is against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from platforms.config import yaml_lines
from platforms.config.schema import Platform
from platforms.job import StillUnsupported

if TYPE_CHECKING:
    from harness.cases import Case
    from harness.inputs import Inputs
    from platforms.runner import Job


def refuse_nothing_to_try(inputs: Inputs, chosen: Sequence[Case]) -> None:
    """Raise UsageError where none of the chosen tests can be tried. In a dry run it is enough that they have an
    obstacle."""
    has_obstacle = any(case.obstacle is not None for case in chosen)
    if any(case.is_tried for case in chosen) or (has_obstacle and inputs.options.dry_run):
        return
    ended = " on a machine that is in service. With --dry-run their jobs are shown" if has_obstacle else ""
    raise pytest.UsageError(
        "--try-unsupported: there is nothing to try. It runs the tests of which the file of a named platform says that "
        f"they cannot run (`unsupported:`, `cannot_run:`), and none of the chosen tests is one{ended}"
    )


def line(test: str, job: Job, *, has_passed: bool) -> str | None:
    """Say at the end of a session of a tried test whether the obstacle in its platform's file still holds."""
    why = job.spec.unsupported
    if why is None or not job.done:
        return None
    places = " and ".join(_places(job.platform, job.spec.benchmark or ""))
    if has_passed and job.error is None:
        return f"{test}: it runs, although {places} says that it cannot ({why}): remove the obstacle there"
    if isinstance(job.error, StillUnsupported):
        return f"{test}: the obstacle in {places} still holds: {job.error.status.reason}"
    return None


def _places(platform: Platform, benchmark: str) -> Iterator[str]:
    """The file and line of each obstacle to a benchmark."""
    document = yaml_lines.read(platform.source)
    if platform.cannot_run is not None:
        yield f"{platform.source}:{document.lines.at(('cannot_run',))}"
    if benchmark in platform.unsupported:
        yield f"{platform.source}:{document.lines.at(('unsupported', benchmark))}"
