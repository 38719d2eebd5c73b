"""Reads ReFrame's perflogs: text files with a header line, and a line for each test case or for each of its metrics.

The default format has `|` between its columns. Other delimiters are taken from the header.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reporting.imports.reframe import SETTINGS, PerformanceValue, ReframeCase

DELIMITERS = "|,;\t"
REQUIRED = ("system", "partition", "environ", "result")
NAMES = ("name", "display_name")
TIMES = ("job_completion_time_unix", "job_completion_time")
MULTILINE = "perf_var"  # the column that names the metric, where each metric has a line of its own
NOTHING = frozenset({"", "None", "null"})

_REPEAT = re.compile(r" %\.repeat_no=\d+")


def read_perflog(path: Path, problems: list[str]) -> Iterator[ReframeCase]:
    """The test cases of a file in the order of its lines. Lines of one test case that follow each other are one.

    Args:
        problems: gets a sentence if the file or some of its lines are skipped, with the number of the first one.

    Raises:
        OSError: the file cannot be read.
    """
    bad: list[tuple[int, str]] = []
    waiting: ReframeCase | None = None
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        header = file.readline().rstrip("\r\n")
        delimiter = max(DELIMITERS, key=header.count)
        columns = header.split(delimiter)
        missing = _missing(columns)
        if missing:
            problems.append(
                f"{path}:1: this file is skipped: it has no column {missing} (add it to ReFrame's `format`)"
            )
            return
        for number, line in enumerate(file, 2):
            try:
                case = _case(_cells(line, columns, delimiter))
            except ValueError as error:
                bad.append((number, str(error)))
                continue
            if waiting is None:
                waiting = case
            elif MULTILINE in columns and replace(waiting, values=()) == replace(case, values=()):
                waiting = replace(waiting, values=waiting.values + case.values)
            else:
                yield waiting
                waiting = case
    if waiting is not None:
        yield waiting
    if bad:
        number, why = bad[0]
        problems.append(f"{path}:{number}: {why}; lines of this file that are skipped: {len(bad)}")


def _cells(line: str, columns: Sequence[str], delimiter: str) -> dict[str, str]:
    """The cells of a line by the names of their columns. Raises ValueError with a sentence."""
    if not line.endswith("\n"):
        raise ValueError("it has no end (if ReFrame writes it now, import the file again later)")
    cells = line.rstrip("\r\n").split(delimiter)
    if len(cells) != len(columns):
        raise ValueError(f"it has {len(cells)} cells, and the header has {len(columns)} columns")
    return dict(zip(columns, cells, strict=True))


def _missing(columns: Sequence[str]) -> str | None:
    for name in REQUIRED:
        if name not in columns:
            return f"`{name}`"
    for alternatives in (NAMES, TIMES):
        if not any(name in columns for name in alternatives):
            return " or ".join(f"`{name}`" for name in alternatives)
    return None


def _case(cells: Mapping[str, str]) -> ReframeCase:
    """A test case of a line. Raises ValueError with a sentence."""
    check = cells.get("name") or cells["display_name"]
    return ReframeCase(
        check=_REPEAT.sub("", check),
        system=cells["system"],
        partition=cells["partition"],
        environ=cells["environ"],
        result=cells["result"],
        values=tuple(_values(cells)),
        fail_phase=_text(cells.get("fail_phase")),
        job_id=_text(cells.get("jobid")),
        submitted_s=_number(cells, "job_submit_time"),
        completed_s=_completed_s(cells),
        nodes=_text(cells.get("job_nodelist")) or "",
        version=_text(cells.get("version")),
        settings={name: cells[name] for name in SETTINGS if _text(cells.get(name))},
    )


def _values(cells: Mapping[str, str]) -> Iterator[PerformanceValue]:
    """The metrics of a line: columns `<metric>_value`, `<metric>_unit`, …, or one metric named in `perf_var`."""
    prefixes = [column.removesuffix("_value") for column in cells if column.endswith("_value")]
    for name in prefixes:
        yield PerformanceValue(
            name=cells.get(MULTILINE, name),
            unit=_text(cells.get(f"{name}_unit")) or "",
            value=_number(cells, f"{name}_value"),
            lower=_number(cells, f"{name}_lower_thres"),
            upper=_number(cells, f"{name}_upper_thres"),
        )


def _text(cell: str | None) -> str | None:
    if cell is None or cell in NOTHING:
        return None
    return cell


def _number(cells: Mapping[str, str], column: str) -> float | None:
    cell = cells.get(column, "")
    if cell in NOTHING:
        return None
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"column `{column}`: {cell!r} is no number") from None


def _completed_s(cells: Mapping[str, str]) -> float | None:
    """Unix seconds. A time without a zone is that of this machine, since ReFrame writes local times."""
    precise = _number(cells, "job_completion_time_unix")
    text = _text(cells.get("job_completion_time"))
    if precise is not None or text is None:
        return precise
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError(f"column `job_completion_time`: {text!r} is no time like 2026-01-31T22:00:00") from None
