"""`python -m reporting comment`: the verdict as Markdown, which a CI job puts on its merge request."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from platforms import atomic_file
from platforms.job import RefusedError
from reporting.commands import answering
from reporting.commands.output_file import refuse_place
from reporting.commands.reported import add_report, report_of
from reporting.report.comment import comment


def add_options(parser: argparse.ArgumentParser) -> None:
    add_report(parser)
    parser.add_argument("--page", metavar="URL", help="the address of the report's page, for a link")
    parser.add_argument("--evidence", metavar="URL", help="the address of the evidence (default: this job's artifacts)")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--print", dest="prints", action="store_true", help="print it")
    place.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it to FILE")


def main(options: argparse.Namespace) -> int:
    """Write the comment. Raises BenchError."""
    links = _links(options, os.environ)
    reported = report_of(options)
    body = comment(reported.report, links)
    if options.prints:
        sys.stdout.buffer.write(body.encode())  # also where the locale has no letters for it
    else:
        refuse_place(options.output, "comment.md")
        atomic_file.write_text(options.output, body)
        print(f"the comment is written to {options.output}", file=sys.stderr)
    answering.warn(reported.report.problems)
    return 0


def _links(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """The addresses in the comment, by the words that are shown."""
    evidence = options.evidence
    if evidence is None and environ.get("CI_JOB_URL"):
        evidence = f"{environ['CI_JOB_URL']}/artifacts/browse"
    found = {
        "report": options.page,
        "evidence": evidence,
        "pipeline": environ.get("CI_PIPELINE_URL", ""),
    }
    for option in ("page", "evidence"):
        typed = getattr(options, option)
        if typed is not None and urlsplit(typed).scheme not in ("http", "https"):
            raise RefusedError(f"--{option}: {typed!r} is no address (write one that begins with https://)")
    return {word: address for word, address in found.items() if address}
