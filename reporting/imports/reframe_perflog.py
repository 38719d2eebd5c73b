"""Reads ReFrame's perflogs: text files with a header line, and a line for each test case or for each of its metrics.

The default format has `|` between its columns. Other delimiters are taken from the header. ReFrame 3 wrote no header,
and a line for each metric. Where ReFrame 4 goes on with that format, the header that it writes names no columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations_with_replacement, islice
from pathlib import Path

from reporting.history.envelope_json import without_repetition
from reporting.imports.reframe import SETTINGS, PerformanceValue, ReframeCase, unix_seconds

DELIMITERS = "|,;\t"
REQUIRED = (
    "system",
    "partition",
    "environ",
    "result",
    "name|display_name",
    "job_completion_time_unix|job_completion_time",
)
MULTILINE = "perf_var"  # the column that names the metric, where each metric has a line of its own
NOTHING = frozenset({"", "None", "null"})
MOST_DELIMITERS = 4  # in the texts of one line; one with more is no whole line
OLD_LINE = "TIME|reframe VERSION|CHECK on SYSTEM:PARTITION using ENVIRON|jobid=ID|METRIC=VALUE|ref=…|UNIT"

_OLD = re.compile(
    r"(?P<job_completion_time>[^|]+)\|(?:reframe )?(?P<version>[^|]+)\|(?P<name>.+?)(?: /[0-9a-f]{8})? (?:on |@)"
    r"(?P<system>[\w.-]+):(?P<partition>[\w.-]+)(?: using |\+)(?P<environ>[^|]+)\|jobid=(?P<jobid>[^|]*)\|"
    r"(?P<perf_var>[^|=]+)=(?P<perf_value>[^|]*)\|(?:(?P<perf_unit>.*)\|)?ref=(?P<perf_ref>[^| ]*)"
    r"(?: \(l=(?P<perf_lower_thres>[^|,]*), u=(?P<perf_upper_thres>[^|)]*)\))?(?:\|(?P<rest>.*))?"
)
_OLD_START = re.compile(r"(?<=.)(?=\d{4}-\d\d-\d\dT[^|]*\|reframe )")  # it can follow a line that got no end
_NAME = r"[\w.:+@/-]+( .*)?"  # with parameters, which may hold any text
_TEXT = ".*"
_SHAPES = {  # what a column holds, by a pattern of its name
    "system|partition|environ|result": r"(?=.*[a-zA-Z])[\w.:+@-]+",
    "name|display_name": _NAME,
    "jobid": r"|None|null|[\w.-]*\d[\w.-]*",
    r"num_.*|job_\w+_unix|job_submit_time|job_exitcode|.*_(value|ref|lower_thres|upper_thres)": (
        r"(?i)|None|null|true|false|[-+]?(\d*\.?\d*(e[-+]?\d+)?|nan|inf)"
    ),
    rf"job_completion_time|version|short_name|unique_name|hashcode|{MULTILINE}": rf"[^{DELIMITERS}]*",
    ".*": _TEXT,
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
        parts = ((at, part) for at, line in enumerate(file, 1) for part in _OLD_START.sub("\n", line).splitlines(True))
        lines = (line for line in parts if line[1].strip())
        first = next(lines, (1, ""))
        try:
            read = _reader_below(first[1].rstrip("\r\n"))
        except ValueError as error:
            problems.append(f"{path}:{first[0]}: this file is skipped: {error}")
            return
        for at, line in chain([first] if "|jobid=" in first[1] and MULTILINE not in first[1] else [], lines):
            try:
                if not line.endswith("\n"):
                    raise ValueError("it has no end (if ReFrame writes it now, import the file again later)")
                case, bad = read(line.rstrip("\r\n"))
            except ValueError as error:
                skipped.setdefault("lines of this file", []).append(f"{at}: {error}")
                continue
            for metric, why in bad.items():
                skipped.setdefault(f"values of `{metric}`", []).append(f"{at}: {why}")
            both = _joined(waiting, case)
            if waiting is not None and both is None:
                yield waiting
            waiting = both or case
    if waiting is not None:
        yield waiting
    problems += [f"{path}:{found[0]}; {what} that are skipped: {len(found)}" for what, found in skipped.items()]


def _joined(one: ReframeCase | None, other: ReframeCase) -> ReframeCase | None:
    """The test case of two lines, each of which has some of its metrics; None if they are of two test cases."""
    if one is None or replace(one, values=(), result="") != replace(other, values=(), result=""):
        return None
    if {value.name for value in one.values} & {value.name for value in other.values}:
        return None
    return replace(one, values=one.values + other.values, result=other.result if one.result == "pass" else one.result)


def _reader_below(header: str) -> Callable[[str], _Read]:
    """What reads the lines of a file with this first line. Raises ValueError with a sentence."""
    if "|jobid=" in header or f"{MULTILINE}=" in header:
        return _read_old
    table = _Table(header)
    for names in REQUIRED:
        if not {*names.split("|")} & {*table.columns}:
            raise ValueError(
                f"it has no column `{names.replace('|', '` or `')}` (add it to ReFrame's `format`), and its first line is "
                f"none of ReFrame 3: {OLD_LINE}"
            )
    return table.read


class _Table:
    """The lines below a header."""

    def __init__(self, header: str) -> None:
        self._delimiter = max(DELIMITERS, key=header.count)
        columns = header.split(self._delimiter)
        self.columns = [re.sub("_(lower|upper)$", r"_\1_thres", column) for column in columns]  # as ReFrame 4.0 has it
        self._shapes = [
            next(shape for names, shape in _SHAPES.items() if re.fullmatch(names, column)) for column in self.columns
        ]

    def read(self, line: str) -> _Read:
        """Read a line. Raises ValueError with a sentence.

        ReFrame does not mark a delimiter that stands in a text, such as a description or a unit. It is found if only
        one way to join the cells has words and numbers where they belong, or all such ways say the same.
        """
        cells = line.split(self._delimiter)
        ways = [cells] if len(cells) == len(self.columns) else self._ways(cells)
        found = [_case(dict(zip(self.columns, way, strict=True))) for way in ways]
        if not found or any(read != found[0] for read in found):
            raise ValueError(f"it has {len(cells)} cells, and the header has {len(self.columns)} columns")
        return found[0]

    def _ways(self, cells: list[str]) -> Iterator[list[str]]:
        """The ways to join cells to as many as there are columns."""
        more = len(cells) - len(self.columns)
        texts = [index for index, shape in enumerate(self._shapes) if shape in (_NAME, _TEXT)]
        for where in combinations_with_replacement(texts, more) if 0 < more <= MOST_DELIMITERS else ():
            rest = iter(cells)
            joined = [self._delimiter.join(islice(rest, 1 + where.count(index))) for index in range(len(self.columns))]
            if all(map(re.fullmatch, self._shapes, joined)):
                yield joined


def _read_old(line: str) -> _Read:
    """Read a line in the format of ReFrame 3. Raises ValueError with a sentence."""
    match = _OLD.fullmatch(line)
    if match is None:
        raise ValueError(f"it is no line as ReFrame 3 writes them: {OLD_LINE}")
    cells = match.groupdict(default="")
    case, bad = _case({**cells, "perf_unit": cells["perf_unit"] or cells["rest"], "result": "pass"})
    reference = _number(cells, "perf_ref")
    if any(_misses(value, reference) for value in case.values):
        return replace(case, result="fail"), bad
    return case, bad


def _misses(value: PerformanceValue, reference: float | None) -> bool:
    """Whether a metric misses its reference, as ReFrame computes it. One of 0 cannot be missed."""
    if not reference:
        return False
    too_low = value.lower is not None and value.value < reference + abs(reference) * value.lower
    return too_low or (value.upper is not None and value.value > reference + abs(reference) * value.upper)


def _case(cells: Mapping[str, str]) -> _Read:
    """A test case of a line. Raises ValueError with a sentence."""
    names = [column.removesuffix("_value") for column in cells if column.endswith("_value")]
    values: list[PerformanceValue] = []
    bad: dict[str, str] = {}
    for name in [name for name in names if f"{name}_unit" in cells] or names:  # a parameter has no unit
        metric = cells.get(MULTILINE, name)
        unit = _text(cells.get(f"{name}_unit")) or ""
        try:
            value, lower, upper = (_number(cells, f"{name}_{end}") for end in ("value", "lower_thres", "upper_thres"))
        except ValueError as error:
            bad[metric] = str(error)
        else:
            if value is not None:
                values.append(PerformanceValue(metric, unit, value, lower, upper))
    case = ReframeCase(
        check=without_repetition(cells.get("name") or cells["display_name"]),
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


def _text(cell: str | None) -> str | None:
    if cell is None or cell in NOTHING:
        return None
    return cell


def _number(cells: Mapping[str, str], column: str) -> float | None:
    """The number of a column, if it has one. Raises ValueError with a sentence."""
    cell = _text(cells.get(column))
    try:
        return None if cell is None else float(cell)
    except ValueError:
        raise ValueError(f"column `{column}`: {cell!r} is no number") from None


def _completed_s(cells: Mapping[str, str]) -> float | None:
    """Unix seconds. A time without a zone is that of this machine, since ReFrame writes local times."""
    precise = _number(cells, "job_completion_time_unix")
    text = _text(cells.get("job_completion_time"))
    if precise is not None or text is None:
        return precise
    return unix_seconds(text, "column `job_completion_time`")
