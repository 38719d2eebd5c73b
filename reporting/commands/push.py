"""`python -m reporting push`: adds what the history has here to a branch of a git repository."""

from __future__ import annotations

import argparse
import datetime
import time

from platforms.job import RefusedError
from platforms.output import print_errors
from platforms.printable import printable
from reporting.commands.opened_site import open_site
from reporting.commands.shared_history import add_branch, bound_platforms, branch_of, runs_of
from reporting.history.place import refuse_missing
from reporting.phrases import counted
from reporting.shared_branch import history_files, run_folders
from reporting.shared_branch.history_files import Outcome
from reporting.shared_branch.run_folders import CarriedRuns
from reporting.shared_branch.scratch import Tree

README = """\
This branch is written by `python -m reporting push` of hpc-ml-bench. It has one commit, which each push replaces.
history/ holds the lines of the history, runs/ the records of unfinished runs. `python -m reporting pull` reads them.
"""
MESSAGE = "The history of the benchmarks [skip ci]\n"  # so that no pipeline begins because of it


def add_options(parser: argparse.ArgumentParser) -> None:
    add_branch(parser)
    parser.add_argument(
        "--try",
        dest="tries",
        action="store_true",
        help="test the right to push: the branch's commit is replaced by one with the same files",
    )


def main(options: argparse.Namespace) -> int:
    """Push what is missing in the branch. Returns 1 if a part of the history cannot be pushed. Raises BenchError."""
    site = open_site(options)
    refuse_missing(site.history, options.history, site.folder)
    branch = branch_of(options, site)
    if options.tries:
        branch.change(lambda tree: {"README.md": README.encode()}, MESSAGE, always=True)
        print(printable(f"{branch} can be pushed"))
        return 0
    problems: list[str] = []
    local = history_files.local_files(site.history, details=options.details, problems=problems)
    first_month = history_files.first_month_of_sessions(datetime.datetime.now(datetime.UTC).date())
    runs = runs_of(options) if options.runs else None
    bound = bound_platforms(site) if options.runs else set()
    if not local and runs is None:
        raise RefusedError(f"{site.history}: the history is empty, so there is nothing to push ({site.why_empty()})")
    outcome = Outcome()
    carried = CarriedRuns()

    def change(tree: Tree) -> dict[str, bytes | None]:
        nonlocal outcome, carried
        outcome = history_files.to_push(tree, local, first_month)
        carried = CarriedRuns() if runs is None else run_folders.to_push(tree, runs, bound, time.time())
        files = outcome.files | carried.files
        return {"README.md": README.encode(), **files} if files else {}

    if branch.change(change, MESSAGE):
        print(printable(f"pushed to {branch}: {_said(outcome, carried)}"))
    else:
        print(printable(f"{branch} has all of it already"))
    if runs is not None and not carried.runs and not carried.said:
        print(printable(f"no run in {runs} is unfinished"))
    for sentence in carried.said:
        print(printable(sentence))
    return print_errors([*problems, *map(printable, outcome.problems)])


def _said(outcome: Outcome, carried: CarriedRuns) -> str:
    """What a push has added, in a few words."""
    parts = []
    if outcome.new:
        parts.append(counted(outcome.new, "new file"))
    if outcome.lines:
        parts.append(f"{counted(outcome.lines, 'new line')} of past months")
    if carried.runs:
        parts.append(f"{counted(len(carried.runs), 'unfinished run')} ({', '.join(carried.runs)})")
    if carried.finished:
        parts.append(f"{counted(len(carried.finished), 'run')} that ended")
    if outcome.problems and not parts:
        parts.append("what was edited stands beside what was there")
    return ", ".join(parts) or "past months are joined, runs that ended are removed"
