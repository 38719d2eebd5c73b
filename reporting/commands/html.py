"""`python -m reporting html [WORD…] -o FILE.html`: the report as one page for a browser, a wall or a printer.

With `--month` the page has a section on that month, and its tables stand in the terminal, too.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

from platforms import atomic_file, checkout
from platforms.job import RefusedError
from platforms.printable import printable
from reporting.commands import answering
from reporting.commands.output_file import refuse_place
from reporting.commands.reported import add_month, add_report, report_of
from reporting.report.data import ReportData
from reporting.report.month_text import month_lines
from reporting.report.page import render

SUFFIXES = (".html", ".htm")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_report(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE.html", type=Path, help="write the page to FILE; only --month does without it"
    )
    add_month(parser, "print, and show on the page,")
    parser.add_argument(
        "--evidence",
        metavar="URL",
        help="what stands before `RUN/FOLDER/` in links to evidence: a URL, or a path from the page "
        "(default: the path to the folder of runs on this machine, for evidence that is there)",
    )
    parser.add_argument(
        "--runs-dir",
        type=Path,
        metavar="DIR",
        help="that folder of runs (default: runs/ of the suite, or of the folder that --site names)",
    )


def main(options: argparse.Namespace) -> int:
    """Write the page, and say its headline; print the month that is asked for. Returns 0."""
    output: Path | None = options.output
    if output is None:
        if options.month is None:
            raise RefusedError(
                "-o FILE.html is missing: where to write the page (--month YYYY-MM alone prints a month)"
            )
    else:
        _refuse_name(output)
    refuse_evidence(options.evidence)
    report = report_of(options).report
    if report.month is not None:
        print("\n".join(map(printable, month_lines(report.month))))
        sys.stdout.flush()
    if output is not None:
        runs = options.runs_dir or checkout.home(options.site) / "runs"
        write_page(report, output, runs, options.evidence)
        print(printable(f"{report.headline}: written to {output}"), file=sys.stderr)
    answering.warn(report.problems)
    return 0


def _refuse_name(output: Path) -> None:
    refuse_place(output, "report.html")
    if output.suffix.lower() not in SUFFIXES:
        page = shlex.quote(str(output.with_suffix(SUFFIXES[0])))
        raise RefusedError(f"{output}: the name of a page ends with .html, so that browsers show it (-o {page})")


def write_page(report: ReportData, output: Path, runs: Path, evidence: str | None = None) -> None:
    """Write the page of a report.

    Args:
        runs: the folder of the runs on this machine.
        evidence: what stands before `<run id>/<folder>/` in links to evidence. None: the path from the page to `runs`,
            for each folder that is there.

    Raises:
        OSError: the page cannot be written.
    """
    if evidence is not None:
        page = render(report, evidence=evidence)
    else:
        path = quote(os.path.relpath(runs.absolute(), output.absolute().parent))
        page = render(report, evidence=path, is_kept=lambda run, folder: _is_folder(runs / run / folder))
    atomic_file.write_bytes(output, page.encode(), mode=0o644)


def refuse_evidence(evidence: str | None) -> None:
    """Raise RefusedError for what is neither a URL of http or https nor a path."""
    if evidence is not None and urlsplit(evidence).scheme not in ("", "http", "https"):
        raise RefusedError(f"--evidence: {evidence!r} is no link for a page (as in https://ci.example.org/runs)")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file system has, as one with a zero byte
        return False
