"""The state of one session: what it begins with, which tests it has chosen, and, from submission on, their jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from harness.inputs import Inputs
from harness.selection import Selection

if TYPE_CHECKING:
    from harness.report_page import ReportPage
    from harness.running import Running


@dataclass
class Suite:
    """One per session, in the config's stash.

    Attributes:
        running: None before jobs are submitted, and in a session without jobs.
        report: the page of --report; None before it is known that tests are to run.
    """

    inputs: Inputs
    selection: Selection
    running: Running | None = None
    report: ReportPage | None = None


SUITE = pytest.StashKey[Suite]()


def suite_of(config: pytest.Config) -> Suite:
    return config.stash[SUITE]
