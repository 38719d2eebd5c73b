"""A report's data as JSON, and the schema of that JSON."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from reporting.report.data import ReportData


@cache
def _adapter() -> TypeAdapter[ReportData]:
    return TypeAdapter(ReportData)


def to_json(report: ReportData) -> bytes:
    """The report as one JSON object, in UTF-8."""
    return _adapter().dump_json(report, indent=1) + b"\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a report."""
    return _adapter().json_schema()
