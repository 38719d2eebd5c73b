"""What `python -m reporting trend` prints: a test's picture with the four answers, or one line for each of many."""

from __future__ import annotations

import datetime
import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence
from statistics import median

from reporting.columns import aligned
from reporting.gate.estimates import change_from
from reporting.history.endings import Ending
from reporting.phrases import percent
from reporting.report.charts.scales import ValueScale
from reporting.report.data import Condition, ReportData, SeriesReport, TestReport
from reporting.report.display import BOLD, CYAN, RED, YELLOW, Display
from reporting.report.one_test import URGENCY
from reporting.report.trend_columns import NightColumn, NightMark, columns_of, values_of
from reporting.report.trend_picture import HEIGHT, legend, line, line_of, picture, scale_of, step_of_line, symbol
from reporting.tables.row import number

COLOURS = {
    Condition.SLOWER: RED,
    Condition.FAILED: RED,
    Condition.SUSPECT: YELLOW,
    Condition.ACKNOWLEDGED: YELLOW,
    Condition.BLIND: YELLOW,
    Condition.FASTER: CYAN,
}
LOUD = (Condition.SLOWER, Condition.FAILED)  # in capitals
_IS_IT_SLOWER = {
    Condition.SLOWER: "YES",
    Condition.FAILED: "not known: its jobs fail",
    Condition.SUSPECT: "perhaps",
    Condition.ACKNOWLEDGED: "yes, and it is known",
    Condition.BLIND: "not known",
    Condition.PAUSED: "not judged: paused",
    Condition.FASTER: "no, faster",
    Condition.LEARNING: "not known yet: it learns its pin",
    Condition.OK: "no",
}
WITHOUT_VERDICT = (Condition.FAILED, Condition.BLIND, Condition.PAUSED)
INDENT = 15  # of the answers
GAP = "  "
CLEAR_DAYS = 300  # for so long a date needs no year
LEAST_COLUMNS = 14  # of a trend beside a test's name; with less it has a line of its own


def one_test(report: ReportData, test: TestReport, display: Display, options: str = "") -> list[str]:
    """A picture of each metric of a test, and the four answers below it.

    Args:
        options: what printed commands need beside their arguments, such as `--site=DIR`.
    """
    lines = [display.painted(display.plain(test.id), BOLD)]
    for series in test.series:
        lines += ["", *_series(report, series, display)]
    lines.append("")
    if test.failed_nights:
        count = "night has" if test.failed_nights == 1 else f"{test.failed_nights} nights have"
        end = Ending(test.failed_as, test.failed_why)
        lines += _wrapped(f"The last {count} no numbers; the last job that failed: {end}", display)
    command = " ".join(filter(None, ("python -m reporting show", shlex.quote(test.id), options)))
    return [*lines, display.plain(f"The numbers, what changed when, and what can be answered: {command}")]


def many_tests(report: ReportData, display: Display) -> list[str]:
    """One line for each test, the worst one first, each with the metric that stands worst.

    On a narrow terminal the name and the trend have lines of their own.
    """
    chosen = [(test, min(test.series, key=_rank, default=None)) for test in report.tests]
    chosen.sort(key=lambda pair: _rank_of_test(*pair))
    above, *facts = aligned([("", "to pin", "since"), *(_facts(report, *pair) for pair in chosen)], (0, 2))
    names = [_name(report, *pair) for pair in chosen]
    shared = Counter(names)
    names = [_name(report, *pair, whole=shared[name] > 1) for pair, name in zip(chosen, names, strict=True)]
    names = [display.plain(name) for name in names]
    facts_width = max(map(len, [above, *facts]))
    name_width = max(map(len, names), default=0)
    room = display.width - facts_width - name_width - 2 * len(GAP)
    is_beside = room >= LEAST_COLUMNS
    if not is_beside:
        room = display.width - len(GAP)
    drawn = [_columns(report, series, room) for _test, series in chosen]
    longest = max(map(len, drawn))
    if is_beside:
        above = f"{above:<{facts_width + name_width + len(GAP)}}{GAP}{f'to {report.night}'.rjust(longest)[:room]}"
    lines = []
    for (test, series), fact, name, columns in zip(chosen, facts, names, drawn, strict=True):
        trend = "no numbers"
        if series is not None and columns:
            trend = " " * (longest - len(columns))  # so that each night stands below itself
            trend += line(columns, _reference(series, columns), series.better, display)
        condition = _condition(test, series)
        word = _word(condition)
        words = f"{display.painted(word, COLOURS.get(condition, ''))}{fact[len(word) :]:<{facts_width - len(word)}}"
        if is_beside:
            lines.append(f"{words}{GAP}{name:<{name_width}}{GAP}{trend}".rstrip())
        else:
            lines += [words.rstrip(), f"{GAP}{name}", f"{GAP}{trend}".rstrip()]
    below = _wrapped(_how_to_read(drawn, display), display)
    return [*_wrapped(report.headline, display), "", above.rstrip(), *lines, "", *below]


def _columns(report: ReportData, series: SeriesReport | None, room: int) -> list[NightColumn]:
    if series is None or not series.points:
        return []
    return columns_of(series, datetime.date.fromisoformat(report.night), room)


def _how_to_read(drawn: Sequence[Sequence[NightColumn]], display: Display) -> str:
    at_pin = "▇" if display.has_symbols else ":"
    step = f"{100 * step_of_line(display):g} %"
    told = f"A column is a night; {at_pin} is at the pin, each step is {step}, and lower is worse."
    if any(column.value is None and column.mark is NightMark.FAILED for columns in drawn for column in columns):
        told += f" {symbol(NightMark.FAILED, display)} {NightMark.FAILED.said}."
    return f"{told} To see the picture of one test, add words of its line that no other line has."


def _series(report: ReportData, series: SeriesReport, display: Display) -> list[str]:
    """The picture of one metric and its answers."""
    name = f"{series.metric}, {series.unit}" if series.unit else series.metric
    lines = _wrapped(f"{name}, {series.better} is better", display)
    values = [point.value for point in series.points if point.comparable and point.value is not None]
    if not values:
        return [*lines, "  no run has numbers"]
    room = display.width - len("pin ") - len(number(max(values))) - 2
    columns = _columns(report, series, room)
    if not values_of(columns):
        lines.append("  no run with numbers in these nights")
    else:
        scale = scale_of(columns, series.pin, display)
        labels = _labels(scale, series)
        lines += picture(columns, scale, labels, display)
        lines.append(" " * (len(labels[0]) + 1) + _dates(columns))
        lines += _wrapped(_scale_text(columns, scale, series), display)
    lines += _wrapped(legend(columns, display), display)
    return [*lines, "", *_answers(series, display)]


def _answers(series: SeriesReport, display: Display) -> list[str]:
    """Is it slower, since when, where, why."""
    said = _IS_IT_SLOWER[series.condition]
    lines = [f"{'Is it slower?':<{INDENT}}{display.painted(said, COLOURS.get(series.condition, ''))}"]
    facts = []
    if series.condition is not Condition.OK:
        facts.append(series.short)
    if series.value is not None:
        facts.append(_numbers(series))
    for fact in facts:
        lines += _wrapped(fact, display, " " * INDENT, " " * INDENT)
    since = series.since or ""
    if since and series.since_run:
        since += f", from run {series.since_run} on"
    answers = {"Since when?": since, "Where?": series.where, "Why?": series.why, "Ticket": series.ticket}
    for question, text in answers.items():
        if text:
            lines += _wrapped(f"{question:<{INDENT}}{text}", display, " " * INDENT)
    return lines


def _numbers(series: SeriesReport) -> str:
    """The last value, and what was compared with the pin."""
    facts = f"{number(series.value)} {series.unit}".rstrip()
    if series.value_night:
        facts += f" in the night of {series.value_night}"
    if series.change is None or series.pin is None:
        return facts
    compared = "it is"
    if series.compared_nights > 1 and series.compared is not None:
        compared = f"the median of {series.compared_nights} nights, {number(series.compared)}, is"
    facts += f"; {compared} {percent(series.change)} from the pin of {number(series.pin)}"
    if series.limit is not None:
        facts += f", limit {100 * series.limit:.1f} %"
    return facts


def _wrapped(text: str, display: Display, later: str = "", first: str = "") -> list[str]:
    """The text in lines of the terminal. A word that is longer, such as a ticket's address, stays whole."""
    return textwrap.wrap(
        display.plain(text),
        display.width,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _labels(scale: ValueScale, series: SeriesReport) -> list[str]:
    """What stands before each line of the picture, from below: the edges of the scale, and the pin in its line."""
    labels = [number(scale.low), *[""] * (HEIGHT - 2), number(scale.high)]
    if series.pin is not None:
        labels[line_of(series.pin, scale)] = f"pin {number(series.pin)}"
    width = max(map(len, labels))
    return [label.rjust(width) for label in labels]


def _scale_text(columns: Sequence[NightColumn], scale: ValueScale, series: SeriesReport) -> str:
    told = f"from {number(scale.low)} to {number(scale.high)}"
    if series.pin:
        low, high = (change_from(series.pin, value, series.better) for value in (scale.low, scale.high))
        told += f", {percent(low)} to {percent(high)} beside the pin"
    told += "; a column is a night"
    beyond = sum(not scale.shows(value) for value in values_of(columns))
    if beyond:
        told += f"; beyond the scale: {beyond}"
    return told


def _dates(columns: Sequence[NightColumn]) -> str:
    """The first and the last night, below their columns."""
    first, last = str(columns[0].night), str(columns[-1].night)
    room = len(columns) - len(first) - len(last)
    if room <= 0:
        return last
    return first + " " * room + last


def _facts(report: ReportData, test: TestReport, series: SeriesReport | None) -> tuple[str, str, str]:
    """What stands before a test's name: its condition, its change, since when."""
    condition = _condition(test, series)
    if series is None or condition is Condition.FAILED:
        return _word(condition), "", _short_date(test.failed_since, report)
    change = ""
    if series.change is not None:
        change = percent(series.change)
    if condition in (Condition.OK, Condition.LEARNING):
        return _word(condition), change, ""
    return _word(condition), change, _short_date(series.since, report)


def _name(report: ReportData, test: TestReport, series: SeriesReport | None, whole: bool = False) -> str:
    """The words that choose a test, or its whole id, and its metric if it has several."""
    words = [test.id] if whole else [test.workload, test.layout, test.setting]
    if len(report.platforms) > 1 and not whole:
        words.insert(0, test.platform)
    if series is not None and len(test.series) > 1:
        words.append(series.metric)
    return " ".join(filter(None, words))


def _short_date(night: str | None, report: ReportData) -> str:
    """`11-17`; with its year if that is not clear."""
    if night is None:
        return ""
    age = datetime.date.fromisoformat(report.night) - datetime.date.fromisoformat(night)
    return night[len("2026-") :] if age.days < CLEAR_DAYS else night


def _condition(test: TestReport, series: SeriesReport | None) -> Condition:
    """How a row stands: like its series, unless the whole test has no verdict of tonight."""
    if series is None or (test.condition in WITHOUT_VERDICT and series.condition is not Condition.SLOWER):
        return test.condition
    return series.condition


def _word(condition: Condition) -> str:
    return condition.value.upper() if condition in LOUD else condition.value


def _rank(series: SeriesReport) -> tuple[int, float]:
    return URGENCY.index(series.condition), series.change or 0.0


def _rank_of_test(test: TestReport, series: SeriesReport | None) -> tuple[int, float, str]:
    if series is None:
        return URGENCY.index(test.condition), 0.0, test.id
    return URGENCY.index(_condition(test, series)), series.change or 0.0, test.id


def _reference(series: SeriesReport, columns: Sequence[NightColumn]) -> float:
    """What a line compares with: the pin; of a series that learns the median of its nights."""
    if series.pin is not None:
        return series.pin
    return median(values_of(columns) or [0.0])
