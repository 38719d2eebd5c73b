"""`python -m reporting push`: adds what the history has here to a branch of a git repository."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from platforms.job import RefusedError
from platforms.output import print_errors
from platforms.printable import printable
from reporting.commands.opened_site import open_site
from reporting.commands.shared_history import add_branch, bound_platforms, branch_of, mistakes, runs_of
from reporting.history.place import refuse_missing
from reporting.phrases import counted
from reporting.shared_branch import history_files, run_folders
from reporting.shared_branch.history_files import Brought
from reporting.shared_branch.run_folders import CarriedRuns

README = """\
This branch is written by `python -m reporting push` of hpc-ml-bench. history/ holds the lines of the history, runs/ the
records of unfinished runs. `python -m reporting pull` reads them.
"""
MESSAGE = "The history of the benchmarks [skip ci]"  # so that no pipeline begins because of it


def add_options(parser: argparse.ArgumentParser) -> None:
    add_branch(parser)
    parser.add_argument(
        "--try", dest="tries", action="store_true", help="only test the right to push, by a commit without changes"
    )


def main(options: argparse.Namespace) -> int:
    """Push what is missing in the branch. Returns 1 if a part of the history cannot be pushed. Raises BenchError."""
    site = open_site(options)
    refuse_missing(site.history, options.history, site.folder)
    branch = branch_of(options, site)
    if options.tries:
        branch.change(lambda folder: None, MESSAGE, always=True)
        print(printable(f"{branch} can be pushed"))
        return 0
    runs = runs_of(options)
    brought = Brought()
    carried = CarriedRuns()

    def write(folder: Path) -> None:
        nonlocal brought, carried
        (folder / "README.md").write_text(README)
        brought = history_files.bring(site.history, folder / history_files.FOLDER, details=options.details)
        if options.runs:
            carried = run_folders.push(runs, folder / run_folders.FOLDER, bound_platforms(site), time.time())

    if not options.runs and not any(site.history.glob("*/*.jsonl")):
        raise RefusedError(f"there is nothing to push: {site.why_empty()}")
    if branch.change(write, MESSAGE):
        print(printable(f"pushed to {branch}: {_said(brought, carried)}"))
    else:
        print(printable(f"{branch} has all of it already"))
    if options.runs and not carried.unfinished and not carried.said:
        print(printable(f"no run in {runs} is unfinished"))
    for sentence in carried.said:
        print(printable(sentence))
    return print_errors(mistakes(brought, branch, site))


def _said(brought: Brought, carried: CarriedRuns) -> str:
    """What a push has added, in a few words."""
    parts = [counted(brought.new, "new file")]
    if carried.unfinished:
        parts.append(f"{counted(len(carried.unfinished), 'unfinished run')} ({', '.join(carried.unfinished)})")
    if carried.finished:
        parts.append(f"{counted(len(carried.finished), 'run')} that ended")
    return ", ".join(parts)
