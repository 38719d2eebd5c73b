"""Reads ReFrame's perflogs: text files with a header line, and a line for each test case or for each of its metrics.

The default format has `|` between its columns. Other delimiters are taken from the header. ReFrame 3 wrote no header,
and a line for each metric. Where ReFrame 4 goes on with that format, the header that it writes names no columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations_with_replacement, groupby, islice
from pathlib import Path

from reporting.history.envelope_json import without_repetition
from reporting.imports.reframe import SETTINGS, PerformanceValue, ReframeCase, unix_seconds

DELIMITERS = "|,;\t"
REQUIRED = ("system", "partition", "environ", "result")
ALTERNATIVES = ("name|display_name", "job_completion_time_unix|job_completion_time")
MULTILINE = "perf_var"  # the column that names the metric, where each metric has a line of its own
NOTHING = frozenset({None, "", "None", "null"})
MOST_DELIMITERS = 4  # in the texts of one line; one with more is no whole line
OLD_LINE = "TIME|reframe VERSION|CHECK on SYSTEM:PARTITION using ENVIRON|jobid=ID|METRIC=VALUE|ref=…|UNIT"

_OLD = re.compile(
    r"(?P<job_completion_time>[^|]+)\|(?:reframe )?(?P<version>[^|]+)\|(?P<name>.+?)(?: /[0-9a-f]{8})? (?:on |@)"
    r"(?P<system>[\w.-]+):(?P<partition>[\w.-]+)(?: using |\+)(?P<environ>[^|]+)\|jobid=(?P<jobid>[^|]*)\|"
    r"(?P<perf_var>[^|=]+)=(?P<perf_value>[^|]*)\|(?:(?P<perf_unit>.*)\|)?ref=(?P<perf_ref>[^| ]*)"
    r"(?: \(l=(?P<perf_lower_thres>[^|,]*), u=(?P<perf_upper_thres>[^|)]*)\))?(?:\|(?P<rest>.*))?"
)
_OLD_START = re.compile(r"(?<=.)(?=\d{4}-\d\d-\d\dT[^|]*\|reframe )")  # it can follow a line that got no end
_LINE = re.compile(r"(?=.*\S).+\n?")
_NAME = r"[\w.:+@/-]+( .*)?"  # with parameters, which may hold any text
_NUMBER = r"(?i)|none|null|true|false|[-+]?(nan|inf|\d*\.?\d*(e[-+]?\d+)?)"
_TEXT = ".*"
_SHAPES = {  # what a column holds, by a pattern of its name
    "|".join(REQUIRED): r"(?=.*[a-zA-Z])[\w.:+@-]+",
    ALTERNATIVES[0]: _NAME,
    "jobid": r"|None|null|[\w.-]*\d[\w.-]*",
    r"num_.*|job_(\w+_unix|submit_time|exitcode)|.*_(value|ref|lower_thres|upper_thres)": _NUMBER,
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
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        lines = _lines(file)
        first = next(lines, (1, ""))
        header = first[1].rstrip("\r\n")
        is_old = re.search(rf"\|jobid=|\|ref=|{MULTILINE}=", header) is not None
        try:
            read = _read_old if is_old else _Table(header).read
        except ValueError as error:
            problems.append(f"{path}:{first[0]}: this file is skipped: {error}")
            return
        cases = _cases(lines if MULTILINE in header or not is_old else chain([first], lines), read, skipped)
        yield from _joined(cases) if is_old or MULTILINE in header else cases
    problems += [f"{path}:{found[0]}; {what} that are skipped: {len(found)}" for what, found in skipped.items()]


def _lines(file: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, with their numbers."""
    return ((at, part) for at, line in enumerate(file, 1) for part in _LINE.findall(_OLD_START.sub("\n", line)))


def _cases(
    lines: Iterable[tuple[int, str]], read: Callable[[str], _Read], skipped: dict[str, list[str]]
) -> Iterator[ReframeCase]:
    """The test cases of lines. What is skipped, and why, is added by what it is."""
    for at, line in lines:
        try:
            if not line.endswith("\n"):
                raise ValueError("it has no end (if ReFrame writes it now, import the file again later)")
            case, bad = read(line.rstrip("\r\n"))
        except ValueError as error:
            skipped.setdefault("lines of this file", []).append(f"{at}: {error}")
            continue
        for metric, why in bad.items():
            skipped.setdefault(f"values of `{metric}`", []).append(f"{at}: {why}")
        yield case


def _joined(cases: Iterable[ReframeCase]) -> Iterator[ReframeCase]:
    """Those that follow each other and differ only in their metrics, and whether these are good, are one."""
    for case, lines in groupby(cases, lambda case: replace(case, values=(), result="")):
        parts = list(lines)
        first_bad = max(parts, key=lambda part: part.result != "pass")
        yield replace(case, values=tuple(chain(*(part.values for part in parts))), result=first_bad.result)


class _Table:
    """The lines below a header. Raises ValueError with a sentence if it lacks columns."""

    def __init__(self, header: str) -> None:
        self._delimiter = max(DELIMITERS, key=header.count)
        columns = header.split(self._delimiter)
        self._columns = [re.sub("_(lower|upper)$", r"_\1_thres", column) for column in columns]  # ReFrame 4.0
        for names in REQUIRED + ALTERNATIVES:
            if not {*names.split("|")} & {*columns}:
                raise ValueError(
                    f"it has no column `{names.replace('|', '` or `')}` (add it to ReFrame's `format`), and no line of "
                    f"ReFrame 3: {OLD_LINE}"
                )
        self._shapes = [
            next(shape for names, shape in _SHAPES.items() if re.fullmatch(names, column)) for column in self._columns
        ]

    def read(self, line: str) -> _Read:
        """Read a line. Raises ValueError with a sentence.

        ReFrame does not mark a delimiter that stands in a text, such as a description or a unit. It is found if only
        one way to join the cells has words and numbers where they belong, or all such ways say the same.
        """
        cells = line.split(self._delimiter)
        ways = [cells] if len(cells) == len(self._columns) else self._ways(cells)
        found = [_case(dict(zip(self._columns, way, strict=True))) for way in ways]
        if not found or any(read != found[0] for read in found):
            raise ValueError(f"it has {len(cells)} cells, and the header has {len(self._columns)} columns")
        return found[0]

    def _ways(self, cells: list[str]) -> Iterator[list[str]]:
        """The ways to join cells to as many as there are columns."""
        more = len(cells) - len(self._columns)
        texts = [index for index, shape in enumerate(self._shapes) if shape in (_NAME, _TEXT)]
        for where in combinations_with_replacement(texts, more) if 0 < more <= MOST_DELIMITERS else ():
            rest = iter(cells)
            joined = [self._delimiter.join(islice(rest, 1 + where.count(index))) for index in range(len(self._columns))]
            if all(map(re.fullmatch, self._shapes, joined)):
                yield joined


def _read_old(line: str) -> _Read:
    """Read a line in the format of ReFrame 3, which does not say the result. Raises ValueError with a sentence."""
    match = _OLD.fullmatch(line)
    if match is None:
        raise ValueError(f"it is no line as ReFrame 3 writes them: {OLD_LINE}")
    cells = match.groupdict(default="")
    return _case({**cells, "perf_unit": cells["perf_unit"] or cells["rest"], "result": "pass"})


def _case(cells: Mapping[str, str]) -> _Read:
    """A test case of a line. Raises ValueError with a sentence."""
    values, bad = _values(cells)
    case = ReframeCase(
        check=without_repetition(cells.get("name") or cells["display_name"]),
        system=cells["system"],
        partition=cells["partition"],
        environ=cells["environ"],
        result=cells["result"],
        values=values,
        fail_phase=_text(cells.get("fail_phase")),
        job_id=_text(cells.get("jobid")),
        submitted_s=_number(cells, "job_submit_time"),
        completed_s=_completed_s(cells),
        nodes=_text(cells.get("job_nodelist")) or "",
        version=_text(cells.get("version")),
        settings={name: cells[name] for name in SETTINGS if _text(cells.get(name))},
    )
    return case, bad


def _values(cells: Mapping[str, str]) -> tuple[tuple[PerformanceValue, ...], dict[str, str]]:
    """The metrics of a line, and why others have no value."""
    values: list[PerformanceValue] = []
    bad: dict[str, str] = {}
    for name in _metrics(cells):
        metric = cells.get(MULTILINE, name)
        try:
            value, lower, upper = (_number(cells, f"{name}_{end}") for end in ("value", "lower_thres", "upper_thres"))
        except ValueError as error:
            bad[metric] = str(error)
            continue
        if value is not None:
            values.append(PerformanceValue(metric, _text(cells.get(f"{name}_unit")) or "", value, lower, upper))
    return tuple(values), bad


def _metrics(columns: Collection[str]) -> list[str]:
    """The metrics of a header: `<metric>_value` has `<metric>_unit` beside it. A parameter of such a name has not."""
    found = [column.removesuffix("_value") for column in columns if column.endswith("_value")]
    return [name for name in found if f"{name}_unit" in columns] or found


def _text(cell: str | None) -> str | None:
    return None if cell in NOTHING else cell


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
