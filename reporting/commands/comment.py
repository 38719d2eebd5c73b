"""`python -m reporting comment`: the verdict as a comment on this pipeline's merge request, changed in place later."""

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
from reporting.gitlab import notes
from reporting.gitlab import token as gitlab_token
from reporting.gitlab.api import GitLab, project_here
from reporting.report.comment import comment, marker


def add_options(parser: argparse.ArgumentParser) -> None:
    add_report(parser)
    parser.add_argument("--page", metavar="URL", help="the address of the report's page, for a link")
    parser.add_argument("--evidence", metavar="URL", help="the address of the evidence (default: this job's artifacts)")
    parser.add_argument("--name", metavar="NAME", help="which of several comments it is (default: the site's name)")
    parser.add_argument("--print", dest="prints", action="store_true", help="print it, and ask no server")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it to FILE, and ask no server")


def main(options: argparse.Namespace) -> int:
    """Write the comment. Returns 0, also where there is no merge request. Raises BenchError."""
    links = _links(options, os.environ)
    found = None
    if not options.prints and options.output is None:
        found = notes.merge_request_here()
        if found is None:
            print("This pipeline has no merge request, so there is nothing to comment on (--print shows the comment).")
            return 0
    gitlab = None if found is None else _gitlab(found[0])
    reported = report_of(options, with_sight=False)
    name = options.name or reported.site.settings.name
    body = comment(reported.report, name, links)
    if options.prints:
        sys.stdout.buffer.write(body.encode())  # also where the locale has no letters for it
    if options.output is not None:
        _write(options.output, body)
    if gitlab is not None and found is not None:
        said = notes.write_once(gitlab, found[1], marker(name), body)
        print(f"the comment on merge request !{found[1]} is {said}")
    answering.warn(reported.report.problems)
    return 0


def _gitlab(project: str) -> GitLab:
    api, _ = project_here()
    token = os.environ.get(gitlab_token.VARIABLE, "").strip()
    if not token:
        raise RefusedError(
            f"{gitlab_token.VARIABLE} is not set: a comment needs an access token of the project, with the scope api "
            "and the role Developer, as a masked variable (Settings > CI/CD > Variables). CI_JOB_TOKEN may read "
            "comments, and write none"
        )
    return GitLab(api, project, token)


def _links(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """The addresses in the comment, by the words that are shown."""
    job = environ.get("CI_JOB_URL", "")
    found = {
        "report": options.page,
        "evidence": options.evidence or (f"{job}/artifacts/browse" if job else ""),
        "pipeline": environ.get("CI_PIPELINE_URL", ""),
    }
    for option in ("page", "evidence"):
        typed = getattr(options, option)
        if typed is not None and urlsplit(typed).scheme not in ("http", "https"):
            raise RefusedError(f"--{option}: {typed!r} is no address (write one that begins with https://)")
    return {word: address for word, address in found.items() if address}


def _write(path: Path, body: str) -> None:
    refuse_place(path, "comment.md")
    atomic_file.write_text(path, body)
    print(f"the comment is written to {path}", file=sys.stderr)
