"""Machines x tests: a row for each workload and setting, a column for each platform, in a cell a test per layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reporting.report.data import PlatformReport, ReportData, TestReport


@dataclass(frozen=True)
class GridRow:
    """A workload in one setting; `cells` has its tests on each platform, in the order of the columns."""

    workload: str
    setting: str
    cells: tuple[tuple[TestReport, ...], ...]

    @property
    def has_layouts(self) -> bool:
        """Its tests have several layouts, so a cell must say which one it shows."""
        return len({test.layout for test in self.tests}) > 1

    @property
    def tests(self) -> tuple[TestReport, ...]:
        return tuple(test for cell in self.cells for test in cell)


@dataclass(frozen=True)
class Grid:
    columns: tuple[PlatformReport, ...]
    rows: tuple[GridRow, ...]


def grid(report: ReportData) -> Grid:
    """The grid of a report."""
    keys = sorted({(test.workload, test.setting) for test in report.tests})
    rows = [GridRow(workload, setting, _cells(report, workload, setting)) for workload, setting in keys]
    return Grid(report.platforms, tuple(rows))


def _cells(report: ReportData, workload: str, setting: str) -> tuple[tuple[TestReport, ...], ...]:
    of_row = [test for test in report.tests if (test.workload, test.setting) == (workload, setting)]
    return tuple(_of_platform(of_row, platform.name) for platform in report.platforms)


def _of_platform(tests: Sequence[TestReport], platform: str) -> tuple[TestReport, ...]:
    return tuple(sorted((test for test in tests if test.platform == platform), key=lambda test: test.layout))
