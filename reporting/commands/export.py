"""`python -m reporting export`: the report for Prometheus, Grafana and GitLab."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from platforms import atomic_file
from platforms.job import RefusedError
from reporting.commands import answering
from reporting.commands.output_file import refuse_place
from reporting.commands.reported import add_report, report_of
from reporting.report.data import ReportData
from reporting.report.exports import gitlab, grafana, openmetrics, prometheus

KINDS = {
    "prometheus": "how things stand now, as a .prom file for node_exporter's textfile collector",
    "openmetrics": "the whole history with timestamps, for `promtool tsdb create-blocks-from openmetrics`",
    "grafana": "a dashboard for Grafana, as JSON; it needs no history",
    "gitlab": "GitLab's metrics report, for the widget of merge requests",
}
EXAMPLES = {
    "prometheus": "hpc_ml_bench.prom",
    "openmetrics": "history.om",
    "grafana": "dashboard.json",
    "gitlab": "metrics.txt",
}
LINES = 10_000  # that are written at a time


def add_options(parser: argparse.ArgumentParser) -> None:
    described = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=described)
    add_report(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it to FILE (default: to the terminal)")


def main(options: argparse.Namespace) -> int:
    """Write a report for another program. Returns 0."""
    _refuse_what_cannot_be_written(options)
    if options.kind == "grafana":
        if options.selection:
            raise RefusedError(
                f"export grafana: {options.selection[0]!r}: the dashboard has a list of tests to choose from"
            )
        _write(options, [json.dumps(grafana.dashboard(), indent=1)])
        return 0
    report = report_of(options).report
    _write(options, _lines(options, report))
    answering.warn(report.problems)
    return 0


def _refuse_what_cannot_be_written(options: argparse.Namespace) -> None:
    path = options.output
    if path is None:
        return
    refuse_place(path, EXAMPLES[options.kind])
    if options.kind == "prometheus" and path.suffix != ".prom":
        raise RefusedError(f"{path}: node_exporter reads only files whose names end in .prom (-o {path}.prom)")


def _lines(options: argparse.Namespace, report: ReportData) -> Iterable[str]:
    if options.kind == "prometheus":
        return prometheus.lines(report, " ".join(sorted(options.selection)))
    if options.kind == "gitlab":
        return gitlab.lines(report)
    until_s = answering.now().timestamp() - openmetrics.HEAD_S
    left_out = openmetrics.left_out(report, until_s)
    if left_out:
        print(
            f"left out, since Prometheus still writes into the last 3 hours itself: {left_out} of the last runs",
            file=sys.stderr,
        )
    return openmetrics.lines(report, until_s)


def _write(options: argparse.Namespace, lines: Iterable[str]) -> None:
    if options.output is None:
        for line in lines:
            print(line)
        sys.stdout.flush()
    else:
        write_lines(options.output, lines)
        print(f"written to {options.output}", file=sys.stderr)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file that every user may read, as a whole or not at all. Raises OSError."""
    atomic_file.write_bytes(path, _blocks(lines), mode=0o644)


def _blocks(lines: Iterable[str]) -> Iterator[bytes]:
    """Many lines at a time, since one write for each line would take long."""
    rest = iter(lines)
    while block := list(islice(rest, LINES)):
        yield "".join(f"{line}\n" for line in block).encode()
