"""The comment on a merge request: what a reviewer reads in ten seconds, and the rest folded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reporting.phrases import counted, percent, plain
from reporting.report.data import Condition, Incident, ReportData, SeriesReport, TestReport

INCIDENTS = 3  # that are shown; the others are folded
ROWS = 8  # of the table that is not folded
FOLDED_ROWS = 300  # a page has them all
PROBLEMS = 10

SYMBOLS: Mapping[Condition, str] = {
    Condition.SLOWER: "🔴",
    Condition.FAILED: "❌",
    Condition.SUSPECT: "🟠",
    Condition.ACKNOWLEDGED: "🟡",
    Condition.BLIND: "⚪",
    Condition.PAUSED: "⏸",
    Condition.FASTER: "🔵",
    Condition.LEARNING: "⚪",
    Condition.OK: "🟢",
}
URGENT = (Condition.SLOWER, Condition.FAILED, Condition.SUSPECT, Condition.ACKNOWLEDGED, Condition.BLIND)
_REFERENCE = re.compile(r"([@#!~$%&^])(?=[\w\"])|(:)(?=\w+:)")
_JOINER = "\N{WORD JOINER}"  # takes no room; behind it GitLab sees no name of a person and no number of an issue


def comment(report: ReportData, links: Mapping[str, str]) -> str:
    """The comment as GitLab's Markdown.

    Args:
        links: addresses by the words that are shown for them.
    """
    urgent = [test for test in report.tests if test.condition in URGENT]
    others = [test for test in report.tests if test.condition not in URGENT]
    shown, more = report.incidents[:INCIDENTS], report.incidents[INCIDENTS:]
    lines = [f"### {_symbol(report)} {escaped(report.headline)}", ""]
    for incident in shown:
        lines += _incident(incident)
    if urgent:
        lines += ["", *_table(urgent[:ROWS])]
    lines += _folded(f"{counted(len(more), 'more finding')}", [line for each in more for line in _incident(each)])
    if len(urgent) > ROWS:
        lines += _folded(counted(len(urgent[ROWS:]), "more test"), _table(urgent[ROWS:][:FOLDED_ROWS]))
    if others:
        lines += _folded(_conditions(others), _table(others[:FOLDED_ROWS]))
    problems = [f"- {escaped(problem)}" for problem in report.problems[:PROBLEMS]]
    lines += _folded(f"{counted(len(report.problems), 'part')} of the history cannot be read", problems)
    lines += ["", _last_line(report, links)]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text that is shown as it is: nothing is set in italics, no cell ends, no person and no issue is referred to."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    plain = _REFERENCE.sub(lambda found: found[0] + _JOINER, plain)
    return re.sub(r"([\\`*_\[\]<>|~#$&!])", r"\\\1", plain)


def _symbol(report: ReportData) -> str:
    for condition in SYMBOLS:
        if any(test.condition is condition for test in report.tests):
            return SYMBOLS[condition]
    return SYMBOLS[Condition.OK]


def _incident(incident: Incident) -> list[str]:
    since = ""
    if incident.since is not None:
        nights = f", {incident.nights} nights" if incident.nights > 1 else ""
        since = f" since {incident.since}{nights}"
    first = f"- {SYMBOLS[incident.condition]} **{incident.condition.value}**{since}, {escaped(incident.platform)}: "
    lines = [first + escaped(incident.what)]
    for word, text in (("Where", incident.where), ("Why", incident.why)):
        if text:
            lines.append(f"  <br>{word}: {escaped(text)}")
    return lines


def _table(tests: Sequence[TestReport]) -> list[str]:
    lines = ["| test | now | value | against its pin | since |", "| :--- | :--- | ---: | ---: | :--- |"]
    return [*lines, *map(_row, tests)]


def _row(test: TestReport) -> str:
    series = next((each for each in test.series if each.condition is test.condition), None)
    words = f"{test.workload} {test.layout} {test.setting}".split()
    cells = [
        f"{escaped(' '.join(words))} on {escaped(test.platform)}",
        f"{SYMBOLS[test.condition]} {test.condition.value}",
        _value(series),
        "" if series is None or series.change is None else percent(series.change),
        "" if series is None or series.since is None else series.since,
    ]
    return f"| {' | '.join(cells)} |"


def _value(series: SeriesReport | None) -> str:
    if series is None or series.value is None:
        return "none"
    return escaped(f"{plain(series.value, 4)} {series.unit}".rstrip())


def _conditions(tests: Sequence[TestReport]) -> str:
    """As in `59 other tests: 57 ok, 2 learning`."""
    counts = {condition: sum(test.condition is condition for test in tests) for condition in reversed(Condition)}
    said = [f"{count} {condition.value}" for condition, count in counts.items() if count]
    return f"{counted(len(tests), 'other test')}: {', '.join(said)}"


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    return ["", f"<details><summary>{title}</summary>", "", *lines, "", "</details>"]


def _last_line(report: ReportData, links: Mapping[str, str]) -> str:
    parts = [f"[{word}](<{_url(address)}>)" for word, address in links.items()]
    return " · ".join([*parts, f"night of {report.night}", f"written {report.made_at}"])


def _url(address: str) -> str:
    return re.sub(r"[<>\s\\]", "", address)
