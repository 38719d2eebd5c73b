"""A report's data as JSON, and the schema of that JSON."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from platforms.job import RefusedError
from reporting.report.data import SCHEMA, ReportData


@cache
def _adapter() -> TypeAdapter[ReportData]:
    return TypeAdapter(ReportData)


def to_json(report: ReportData) -> bytes:
    """The report as one JSON object, in UTF-8."""
    return _adapter().dump_json(report, indent=1) + b"\n"


def from_json(content: bytes, name: str) -> ReportData:
    """Read what `to_json` has written.

    Args:
        name: of the file, for the message.

    Raises:
        RefusedError: it is no report, or one of another version.
    """
    try:
        report = _adapter().validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise RefusedError(
            f"{name}: {where}: {first['msg']}: this is no report of `python -m reporting data`"
        ) from None
    if report.schema != SCHEMA:
        raise RefusedError(f"{name}: schema: {report.schema} is not {SCHEMA}: another version of the suite wrote it")
    return report


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a report."""
    return _adapter().json_schema()
