"""The page: a whole report as one HTML file that needs nothing else, neither a network nor a script to be read."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from reporting.phrases import counted, spaced
from reporting.report.charts.bars import UNMEASURED, bars
from reporting.report.charts.flags import flags
from reporting.report.charts.markup import STYLE
from reporting.report.charts.month_nights import month_nights, night_key
from reporting.report.charts.prose import night_text, number, prose, whole_verdict
from reporting.report.charts.scaling_chart import scaling_chart
from reporting.report.charts.spark import spark
from reporting.report.charts.split_bars import doubts_of_last_run, split_bars
from reporting.report.charts.trend import trend
from reporting.report.charts.trend_runs import runs_beyond
from reporting.report.data import Condition, NightState, NodeReport, ReportData, TestReport
from reporting.report.month import hours_said, share
from reporting.report.month_text import month_name
from reporting.report.page import words
from reporting.report.page.first_screen import first_screen
from reporting.report.page.grid import grid
from reporting.report.page.run_values import run_values

TEMPLATES = Path(__file__).parent / "templates"
LINKED = ("http://", "https://")
ID_LETTERS = 10
MOST_AT_ONCE = 1000
"""Tests of a page that a browser makes at once. Of more it makes at first the answer and a line for each test."""
FLAGS = 8  # the latest ones, which are listed below a trend
SPARK_NIGHTS = 14, 90  # at least, so that a dot is no line, and at most
SHOWN_BEYOND = 4  # runs beyond the scale of a trend, the latest ones
# A test that is out of sight costs no layout then. Nothing is drawn around it, so its outline must be within it.
UNSEEN = ".test{content-visibility:auto;contain-intrinsic-size:auto 2.3rem}.test>summary{outline-offset:-3px}"
GRID_WIDTH = ".grid{{min-width:calc(7rem + {columns} * 7.3rem);max-width:calc(7.2rem + {columns} * 18rem)}}"


def render(
    report: ReportData, *, evidence: str | None, is_kept: Callable[[str, str], bool] = lambda _run, _folder: True
) -> str:
    """The page of a report. The same report gives the same bytes.

    Args:
        evidence: what stands before `<run id>/<folder>/` in links to evidence: a URL, or a path relative to the page.
            None: the page says where the evidence is, without links.
        is_kept: whether the evidence of a run id in a folder exists, so that it can be linked.
    """
    environment = _environment()

    def evidence_link(run_id: str, folder: str) -> str:
        if evidence is None or not run_id or not folder or not is_kept(run_id, folder):
            return ""
        place = f"{quote(run_id, safe='', errors='replace')}/{quote(folder, safe='', errors='replace')}/"
        return f"{evidence.rstrip('/')}/{place}"

    names = {test.id: _name(test.id) for test in report.tests}
    series = {
        (test.id, one.metric): f"{names[test.id]}-{at}" for test in report.tests for at, one in enumerate(test.series)
    }
    last_run = max((platform.last_night for platform in report.platforms), default=report.night)
    first_script, script = _file("first.js"), _file("page.js")
    style = STYLE + (TEMPLATES / "page.css").read_text("utf-8") + GRID_WIDTH.format(columns=len(report.platforms))
    dark = _file("dark.css")
    # To a browser with scripts this element is one text, until page.js makes elements of it. Others show it at once.
    held = held_end = ""
    if len(report.tests) > MOST_AT_ONCE:
        held, held_end = "<noscript>", "</noscript>"
        style += UNSEEN
    return environment.get_template("page.html").render(
        report=report,
        held=Markup(held),
        held_end=Markup(held_end),
        screen=first_screen(report),
        grid=grid(report),
        last_run=last_run,
        spark_nights=_spark_nights(report),
        names=names,
        labels=words.labels_of(report.tests),
        series_names=series,
        run_values=run_values(report, series),
        evidence_link=evidence_link,
        counts=Counter(test.condition for test in report.tests),
        first_script=first_script,
        script=script,
        style=Markup(style),
        dark=dark,
        policy=_policy([first_script, script], [Markup(style), dark]),
    )


def _spark_nights(report: ReportData) -> int:
    """How many nights the lines of the grid show: a young site's lines fill their cells, too."""
    least, most = SPARK_NIGHTS
    return min(max(words.nights_between(report.first_night, report.night) + 1, least), most)


def _name(test: str) -> str:
    """The page's name of a test, which stays the same from report to report, so that links to it do."""
    return f"t-{hashlib.sha256(test.encode('utf-8', 'replace')).hexdigest()[:ID_LETTERS]}"


def _metrics(tests: Sequence[TestReport]) -> list[str]:
    """The metrics of some tests, in the order of their series."""
    return list(dict.fromkeys(one.metric for test in tests for one in test.series))


def _with_parts(tests: Sequence[TestReport]) -> list[TestReport]:
    """The tests that know where the time of a step goes."""
    return [test for test in tests if any(one.parts for one in test.series[:1])]


def _doubtful_nodes(nodes: Sequence[NodeReport]) -> list[NodeReport]:
    """The nodes that are slow or suspect, the slowest first."""
    found = [node for node in nodes if node.standing in ("slow", "suspect")]
    return sorted(found, key=lambda node: (node.standing != "slow", node.deviation or 0.0))


def _file(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text("utf-8"))


def _policy(scripts: list[Markup], styles: list[Markup]) -> str:
    """The page's Content-Security-Policy: nothing runs but its own scripts, and it asks nobody but its own server."""
    return (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )


def _hashes(texts: list[Markup]) -> str:
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    return " ".join(f"'sha256-{digest}'" for digest in digests)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=words.visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # else it asks for the time of a file at each test
    )
    environment.filters.update(
        percent=words.percent,
        size=words.size,
        number=number,
        hours=words.hours,
        short_day=night_text,
        moment=words.moment,
        spaced=spaced,
        typeset=prose,
        whole_verdict=whole_verdict,
        breakable=words.breakable,
        leading=words.leading,
    )
    environment.globals.update(
        Condition=Condition,
        MEANINGS=words.MEANINGS,
        FLAGS=FLAGS,
        SHOWN_BEYOND=SHOWN_BEYOND,
        UNMEASURED=UNMEASURED,
        ago=words.ago,
        counted=counted,
        nights_between=words.nights_between,
        flags=flags,
        metrics=_metrics,
        with_parts=_with_parts,
        doubtful_nodes=_doubtful_nodes,
        is_link=lambda text: text.startswith(LINKED),
        spark=lambda *arguments, **named: Markup(spark(*arguments, **named)),
        trend=lambda *arguments, **named: Markup(trend(*arguments, **named)),
        bars=lambda *arguments: Markup(bars(*arguments)),
        scaling_chart=lambda scaling: Markup(scaling_chart(scaling)),
        doubts_of_last_run=doubts_of_last_run,
        runs_beyond=runs_beyond,
        split_bars=lambda *arguments: Markup(split_bars(*arguments)),
        month_nights=lambda month: Markup(month_nights(month)),
        night_key=lambda state: Markup(night_key(state)),
        NightState=NightState,
        hours_said=hours_said,
        month_name=month_name,
        share=share,
    )
    return environment
