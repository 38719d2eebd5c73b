"""Exports a site, starts a real Prometheus with the files, and asks it everything that the dashboard asks.

    python -m tests.reporting.report_year FOLDER
    python benchmarks/exports_in_prometheus.py FOLDER [--million]

It needs `prometheus` and `promtool`. It prints sizes and times, how many samples were written and how many the blocks
hold, and each query of the dashboard that has no answer. `--million` also writes the backfill of a million runs, those
of one series over and over, and says by how much the memory grows meanwhile.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reporting.__main__ import main as reporting_main
from reporting.commands.export import write_lines
from reporting.report.data import ReportData
from reporting.report.exports import dashboard_file, openmetrics
from tests.reporting.exported_reports import SLOWER, report
from tests.reporting.grafana_queries import queries_of
from tests.reporting.prometheus_server import PROMETHEUS, PROMTOOL, blocks_of, prometheus_server

YEAR_S = 365 * 24 * 3600.0
PANEL_POINTS = 1000  # that Grafana asks for in a wide panel
MARK_POINTS = 100  # that it asks for in a query of annotations
TESTS, RUNS = 250, 4000  # a million


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", metavar="FOLDER", help="a site with a history")
    parser.add_argument("--million", action="store_true", help="also write the backfill of a million runs")
    options = parser.parse_args()
    if PROMETHEUS is None or PROMTOOL is None:
        parser.error("prometheus and promtool are not installed (apt install prometheus)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, file in {"prometheus": "site.prom", "openmetrics": "past.om", "gitlab": "metrics.txt"}.items():
            export(options.site, kind, folder / file)
        with timed("promtool makes blocks"):
            blocks_of(folder / "past.om", folder / "data")
        count_samples(folder)
        ask_everything(folder)
        if options.million:
            write_a_million_runs(folder / "million.om")
    return 0


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - began:.1f} s", flush=True)


def export(site: str, kind: str, file: Path) -> None:
    with timed(f"export {kind}"):
        assert reporting_main(["export", kind, f"--site={site}", "-o", str(file)]) == 0
    print(f"  {size(file)}")


def size(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.2f} MB"


def count_samples(folder: Path) -> None:
    data = folder / "data"
    (data / "wal").mkdir()  # the dump wants a database, not only its blocks
    with (folder / "past.om").open() as lines:
        written = sum(not line.startswith("#") for line in lines)
    dump = subprocess.run([str(PROMTOOL), "tsdb", "dump", str(data)], check=True, capture_output=True)
    in_blocks = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    blocks = len(list(data.glob("*/meta.json")))
    print(f"{written} samples written, {len(dump.stdout.splitlines())} in {blocks} blocks of {in_blocks / 1e6:.2f} MB")


def ask_everything(folder: Path) -> None:
    """Ask what the dashboard asks for a year."""
    queries = list(queries_of(json.loads(dashboard_file().read_text())))
    empty = 0
    with prometheus_server(folder, folder / "data", folder / "site.prom") as server:
        now = time.time()
        slowest, its_title = 0.0, ""
        for query in queries:
            began = time.perf_counter()
            if query.is_range:
                points = MARK_POINTS if query.is_annotation else PANEL_POINTS
                found = server.over_time(query.expression, now - YEAR_S, now, YEAR_S / points)
            else:
                found = server.now(query.expression)
            taken = time.perf_counter() - began
            if taken > slowest:
                slowest, its_title = taken, query.title
            if not found:
                empty += 1
                print(f"no answer: {query.title}: {query.expression}")
    print(f"{len(queries)} queries, {empty} without an answer; the slowest: {slowest:.2f} s, {its_title}")


def write_a_million_runs(file: Path) -> None:
    history = long_history(report())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with timed("a million runs"):
        write_lines(file, openmetrics.lines(history, float("inf")))
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"  {size(file)}; the memory grew by {more / 1024:.0f} MiB, and was {before / 1024:.0f} MiB before")


def long_history(made: ReportData) -> ReportData:
    test = next(test for test in made.tests if test.id == SLOWER)
    series = test.series[0]
    tests = []
    for number in range(TESTS):
        points = tuple(
            replace(series.points[run % len(series.points)], started_s=1.5e9 + 3600.0 * run) for run in range(RUNS)
        )
        tests.append(replace(test, id=f"{test.id}-{number}", series=(replace(series, points=points),)))
    return replace(made, tests=tuple(tests))


if __name__ == "__main__":
    sys.exit(main())
