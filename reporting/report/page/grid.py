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
    tests: dict[tuple[str, str], list[TestReport]] = {}
    for test in report.tests:
        tests.setdefault((test.workload, test.setting), []).append(test)
    rows = []
    for (workload, setting), of_row in sorted(tests.items()):
        cells = tuple(_of_platform(of_row, platform.name) for platform in report.platforms)
        rows.append(GridRow(workload, setting, cells))
    return Grid(report.platforms, tuple(rows))


def _of_platform(tests: Sequence[TestReport], platform: str) -> tuple[TestReport, ...]:
    return tuple(sorted((test for test in tests if test.platform == platform), key=lambda test: test.layout))
