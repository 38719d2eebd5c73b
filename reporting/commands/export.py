"""`python -m reporting export`: the report for Prometheus, Grafana and GitLab; runs for another centre."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from platforms import atomic_file, checkout
from platforms.job import RefusedError
from platforms.output import print_errors
from reporting import bundle
from reporting.commands import answering
from reporting.commands.chosen_runs import LATEST, chosen_runs
from reporting.commands.opened_site import open_site
from reporting.commands.output_file import refuse_place
from reporting.commands.reported import add_report, report_of
from reporting.commands.selection import WORDS
from reporting.report.data import ReportData
from reporting.report.exports import dashboard_file, gitlab, openmetrics, prometheus

KINDS = {
    "prometheus": "how things stand now, as a .prom file for node_exporter's textfile collector",
    "openmetrics": "the whole history with timestamps, for `promtool tsdb create-blocks-from openmetrics`",
    "grafana": "a dashboard for Grafana, as JSON; it needs no history",
    "gitlab": "GitLab's metrics report, for the widget of merge requests",
    "bundle": "whole runs for another centre, as a tar.gz that `import runs` takes",
}
EXAMPLES = {
    "prometheus": "hpc_ml_bench.prom",
    "openmetrics": "history.om",
    "grafana": "dashboard.json",
    "gitlab": "metrics.txt",
    "bundle": "runs.tar.gz",
}
WORDS_OR_RUNS = (
    f"{WORDS}; bundle: a run's id, latest (the default), a label, or conditions, as in "
    "platform=a100,date=2026-11-17; grafana: none"
)
LINES = 10_000  # that are written at a time


def add_options(parser: argparse.ArgumentParser) -> None:
    described = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=described)
    add_report(parser, WORDS_OR_RUNS)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it to FILE (default: to the terminal)")
    parser.add_argument(
        "--runs-dir",
        metavar="DIR",
        type=Path,
        help="bundle: the folder of runs (default: runs/ of the suite, or of the folder that --site names)",
    )


def main(options: argparse.Namespace) -> int:
    """Write a report for another program. Returns 0."""
    _refuse_what_cannot_be_written(options)
    if options.kind == "grafana":
        if options.selection:
            raise RefusedError(
                f"export grafana: {options.selection[0]!r}: the dashboard has a list of tests to choose from"
            )
        _write(options, dashboard_file().read_text(encoding="utf-8").splitlines())
        return 0
    if options.kind == "bundle":
        return _bundle(options)
    report = report_of(options).report
    _write(options, _lines(options, report))
    answering.warn(report.problems)
    return 0


def _bundle(options: argparse.Namespace) -> int:
    """Write whole runs into one file. Returns 0, or 1 if a file of the history cannot be read."""
    if options.output is None:
        raise RefusedError("export bundle: -o FILE is missing (-o runs.tar.gz)")
    site = open_site(options)
    runs = options.runs_dir or checkout.home(options.site) / "runs"
    if not runs.is_dir():
        raise RefusedError(f"--runs-dir: there is no folder {runs}; it is the one in which each run has a folder")
    problems: list[str] = []
    envelopes = chosen_runs(site, options.selection or [LATEST], runs, problems)
    missing = bundle.pack(options.output, envelopes, site.settings, site.history, runs)
    run_ids = dict.fromkeys(envelope.key.run_id for envelope in envelopes)
    size_kb = options.output.stat().st_size / 1e3
    print(f"{options.output}: {size_kb:,.0f} kB with everything of {', '.join(run_ids)}")
    if missing:
        print(f"without scripts and logs, since {runs} has no folder of: {', '.join(missing)}")
    print(
        "the folders are as they were: scripts and logs name users, machines and paths, and may hold secrets such as "
        "tokens: read them before you publish"
    )
    return print_errors(problems)


def _refuse_what_cannot_be_written(options: argparse.Namespace) -> None:
    if options.kind == "bundle" and options.tonight is not None:
        raise RefusedError("--tonight: a bundle holds whole runs (choose them, as in date=..2026-11-17)")
    if options.kind != "bundle" and options.runs_dir is not None:
        raise RefusedError("--runs-dir: only export bundle reads the folder of runs")
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
