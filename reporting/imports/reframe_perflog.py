"""Reads ReFrame's perflogs: text files with a header line, and a line for each test case or for each of its metrics.

The default format has `|` between its columns. Other delimiters are taken from the header. ReFrame 3 wrote no header,
and a line for each metric. Where ReFrame 4 goes on with that format, the header that it writes names no columns.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from reporting.history.envelope_json import without_repetition
from reporting.imports.reframe import SETTINGS, PerformanceValue, ReframeCase

DELIMITERS = "|,;\t"
REQUIRED = ("system", "partition", "environ", "result")
NAMES = ("name", "display_name")
TIMES = ("job_completion_time_unix", "job_completion_time")
MULTILINE = "perf_var"  # the column that names the metric, where each metric has a line of its own
NOTHING = frozenset({"", "None", "null"})
MOST_DELIMITERS = 4  # in the texts of one line; one with more is no whole line

_OLD = re.compile(
    r"(?P<job_completion_time>[^|]+)\|(?:reframe )?(?P<version>[^|]+)\|(?P<name>.+?)(?: /[0-9a-f]{8})? (?:on |@)"
    r"(?P<system>[\w.-]+):(?P<partition>[\w.-]+)(?: using |\+)(?P<environ>[^|]+)\|jobid=(?P<jobid>[^|]*)\|"
    r"(?P<perf_var>[^|=]+)=(?P<perf_value>[^|]*)\|(?:(?P<perf_unit>.*)\|)?ref=(?P<perf_ref>[^| ]*)"
    r"(?: \(l=(?P<perf_lower_thres>[^|,]*), u=(?P<perf_upper_thres>[^|)]*)\))?(?:\|(?P<rest>.*))?"
)
_OLD_START = re.compile(r"(?=\d{4}-\d\d-\d\dT[^|]*\|reframe )")  # it can follow a line that got no end
_OLD_HEADER = "job_completion_time|"
_SHAPES = {  # what columns hold, by a pattern of their names; any other may hold any text, and the delimiter in it
    "|".join(REQUIRED): r"[\w.:+@-]*[a-zA-Z][\w.:+@-]*",
    "|".join(NAMES): r"[\w.:+@/-]+(?: .TEXT)?",  # parameters follow the blank
    "jobid": r"|None|null|[\w.-]*\d[\w.-]*",
    r"num_.*|job_.*_unix|job_submit_time|job_exitcode|.*_(?:value|ref|lower_thres|upper_thres)": (
        r"(?i:|None|null|true|false|[-+]?(?:\d*\.?\d*(?:e[-+]?\d+)?|nan|inf))"
    ),
    rf"job_completion_time|version|short_name|unique_name|hashcode|{MULTILINE}": f"[^{DELIMITERS}]*",
    ".*": ".TEXT",
}

_Read = tuple[ReframeCase, dict[str, str]]  # a test case, and by metric why its value is skipped


def read_perflog(path: Path, problems: list[str]) -> Iterator[ReframeCase]:
    """The test cases of a file in the order of its lines. Lines of one test case that follow each other are one.

    Args:
        problems: gets a sentence if the file, some of its lines, or values of a metric are skipped, with the number of
            the first line.

    Raises:
        OSError: the file cannot be read.
    """
    skipped: dict[str, list[str]] = {}
    waiting: ReframeCase | None = None
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        lines: Iterator[tuple[int, str]] = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        first, header = next(lines, (1, ""))
        table = _Table(header.rstrip("\r\n"))
        is_old = "|jobid=" in header or header.startswith(_OLD_HEADER) and f"{MULTILINE}=" in header
        if is_old:
            lines = ((number, part) for number, line in chain([(first, header)], lines) for part in _OLD_START.split(line))
        elif table.missing:
            problems.append(f"{path}:{first}: this file is skipped: {table.missing}")
            return
        for number, line in lines:
            try:
                case, bad = _read_old(line) if is_old else table.read(line)
            except ValueError as error:
                skipped.setdefault("lines of this file", []).append(f"{number}: {error}")
                continue
            for metric, why in bad.items():
                skipped.setdefault(f"values of `{metric}`", []).append(f"{number}: {why}")
            both = None if waiting is None or not (is_old or MULTILINE in table.columns) else _joined(waiting, case)
            if waiting is not None and both is None:
                yield waiting
            waiting = both or case
    if waiting is not None:
        yield waiting
    problems += [f"{path}:{found[0]}; {what} that are skipped: {len(found)}" for what, found in skipped.items()]


def _joined(one: ReframeCase, other: ReframeCase) -> ReframeCase | None:
    """The test case of two lines, each of which has one of its metrics; None if they are of two test cases."""
    if replace(one, values=(), result="") != replace(other, values=(), result=""):
        return None
    return replace(one, values=one.values + other.values, result=other.result if one.result == "pass" else one.result)


class _Table:
    """The lines below a header."""

    def __init__(self, header: str) -> None:
        self._delimiter = max(DELIMITERS, key=header.count)
        self.columns = header.split(self._delimiter)
        numbers = {f"{metric}{end}" for metric in _metrics(self.columns) for end in ("_value", *NUMBERS_BESIDE)}
        shapes = {
            "jobid": _JOB_ID,
            **dict.fromkeys(numbers, _NUMBER),
            **dict.fromkeys(REQUIRED, _WORD),
            **dict.fromkeys(NAMES, _NAME),
        }
        self._shapes = [shapes.get(name, _NUMBER if _NUMBERS.fullmatch(name) else _TEXT) for name in self.columns]
        self._texts = [
            index
            for index, shape in enumerate(self._shapes)
            if shape is _NAME or (shape is _TEXT and not _NO_TEXT.fullmatch(self.columns[index]))
        ]

    @property
    def missing(self) -> str | None:
        """Why its lines cannot be read; None if they can."""
        if not {*REQUIRED, *NAMES, *TIMES} & {*self.columns}:
            return (
                "its first line neither names columns, as ReFrame 4 writes them, nor is one of ReFrame 3: "
                "TIME|reframe VERSION|CHECK on SYSTEM:PARTITION using ENVIRON|jobid=ID|METRIC=VALUE|ref=…|UNIT"
            )
        for alternatives in (*((name,) for name in REQUIRED), NAMES, TIMES):
            if not any(name in self.columns for name in alternatives):
                names = " or ".join(f"`{name}`" for name in alternatives)
                return f"it has no column {names} (add it to ReFrame's `format`)"
        return None

    def read(self, line: str) -> _Read:
        """Read a line. Raises ValueError with a sentence.

        ReFrame does not mark a delimiter that stands in a text, such as a description or a unit. It is found if only
        one way to join the cells has words and numbers where they belong, or all such ways say the same.
        """
        if not line.endswith("\n"):
            raise ValueError("it has no end (if ReFrame writes it now, import the file again later)")
        cells = line.rstrip("\r\n").split(self._delimiter)
        more = len(cells) - len(self.columns)
        if more == 0:
            return _case(dict(zip(self.columns, cells, strict=True)))
        found: list[_Read] = []
        for where in combinations_with_replacement(self._texts, more) if 0 < more <= MOST_DELIMITERS else ():
            rest = iter(cells)
            joined = [self._delimiter.join(islice(rest, 1 + where.count(index))) for index in range(len(self.columns))]
            if all(shape.fullmatch(cell) for shape, cell in zip(self._shapes, joined, strict=True)):
                read = _case(dict(zip(self.columns, joined, strict=True)))
                if read not in found:
                    found.append(read)
        if len(found) == 1:
            return found[0]
        raise ValueError(f"it has {len(cells)} cells, and the header has {len(self.columns)} columns")


def _read_old(line: str) -> _Read:
    """Read a line in the format of ReFrame 3. Raises ValueError with a sentence.

    Whether the metric missed its reference is computed as ReFrame does it: a bound of 0 is none.
    """
    match = _OLD.fullmatch(line.rstrip("\r\n"))
    if match is None:
        raise ValueError(
            "it is no line as ReFrame 3 writes them: TIME|reframe VERSION|CHECK on SYSTEM:PARTITION using …"
        )
    cells = match.groupdict(default="")
    if not cells["perf_unit"] and not line.endswith("\n"):
        raise ValueError("it has no end (if ReFrame writes it now, import the file again later)")
    cells["perf_unit"] = cells["perf_unit"] or cells["rest"]
    case, bad = _case({**cells, "result": "pass"})
    for value in case.values:
        reference = _number(cells, "perf_ref")
        if reference is None or value.value is None:
            continue
        lower, upper = (
            None if bound is None else reference + abs(reference) * bound for bound in (value.lower, value.upper)
        )
        if (lower and value.value < lower) or (upper and value.value > upper):
            return replace(case, result="fail"), bad
    return case, bad


def _metrics(columns: Sequence[str]) -> list[str]:
    """The metrics of a header: `<metric>_value` has `<metric>_unit` or the like beside it. A parameter has not."""
    found = [column.removesuffix("_value") for column in columns if column.endswith("_value")]
    return [name for name in found if any(f"{name}{end}" in columns for end in ("_unit", *NUMBERS_BESIDE))] or found


def _case(cells: Mapping[str, str]) -> _Read:
    """A test case of a line. Raises ValueError with a sentence."""
    check = cells.get("name") or cells["display_name"]
    values: list[PerformanceValue] = []
    bad: dict[str, str] = {}
    for name in _metrics(list(cells)):
        if f" %{name}_value=" in check:  # it is a parameter
            continue
        metric = cells.get(MULTILINE, name)
        try:
            values.append(_value(cells, name, metric))
        except ValueError as error:
            bad[metric] = str(error)
    case = ReframeCase(
        check=without_repetition(check),
        system=cells["system"],
        partition=cells["partition"],
        environ=cells["environ"],
        result=cells["result"],
        values=tuple(values),
        fail_phase=_text(cells.get("fail_phase")),
        job_id=_text(cells.get("jobid")),
        submitted_s=_number(cells, "job_submit_time"),
        completed_s=_completed_s(cells),
        nodes=_text(cells.get("job_nodelist")) or "",
        version=_text(cells.get("version")),
        settings={name: cells[name] for name in SETTINGS if _text(cells.get(name))},
    )
    return case, bad


def _value(cells: Mapping[str, str], name: str, metric: str) -> PerformanceValue:
    """The metric of columns `<name>_value`, `<name>_unit`, …. Raises ValueError with a sentence."""
    return PerformanceValue(
        name=metric,
        unit=_text(cells.get(f"{name}_unit")) or "",
        value=_number(cells, f"{name}_value"),
        lower=_number(cells, f"{name}_lower_thres", f"{name}_lower"),
        upper=_number(cells, f"{name}_upper_thres", f"{name}_upper"),
    )


def _text(cell: str | None) -> str | None:
    if cell is None or cell in NOTHING:
        return None
    return cell


def _number(cells: Mapping[str, str], column: str, older: str = "") -> float | None:
    """The number of a column, which had another name in older versions. Raises ValueError with a sentence."""
    column = older if older in cells else column
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
