"""`python -m reporting pull`: adds what a branch of a git repository holds to the history here."""

from __future__ import annotations

import argparse
import sys

from platforms.job import RefusedError
from platforms.output import print_errors
from platforms.printable import printable
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.commands.shared_history import add_branch, branch_of, runs_of
from reporting.history.place import refuse_missing
from reporting.phrases import counted
from reporting.shared_branch import history_files, run_folders
from reporting.shared_branch.scratch import Tree
from reporting.shared_branch.squashed import SquashedBranch


def add_options(parser: argparse.ArgumentParser) -> None:
    add_branch(parser)


def main(options: argparse.Namespace) -> int:
    """Write what is missing here. Returns 1 if a part of the history here cannot be read. Raises BenchError."""
    site = open_site(options)
    refuse_missing(site.history, options.history, site.folder)
    branch = branch_of(options, site)
    with branch.read() as tree:
        if tree.commit is None:
            print(printable(f"{branch.remote} has no branch {branch.branch} yet: the first push makes it"))
            return 0
        code = _pull_history(site, branch, tree, details=options.details)
        if options.runs:
            _pull_runs(options, tree)
    return code


def _pull_history(site: OpenedSite, branch: SquashedBranch, tree: Tree, *, details: bool) -> int:
    problems: list[str] = []
    local = history_files.local_files(site.history, details=details, problems=problems)
    outcome = history_files.to_pull(tree, local, details=details)
    try:
        history_files.write(site.history, outcome)
    except OSError as error:
        raise RefusedError(f"{site.history}: the history cannot be written: {error}; type it again then") from None
    if outcome.files:
        lines = f" and {counted(outcome.lines, 'line')} of past months" if outcome.lines else ""
        print(printable(f"pulled from {branch}: {counted(outcome.new, 'new file')}{lines}, to {site.history}"))
    else:
        print(printable(f"{site.history} has all of {branch} already"))
    for problem in outcome.problems:
        print(f"warning: {printable(problem)}", file=sys.stderr)
    return print_errors(problems)


def _pull_runs(options: argparse.Namespace, tree: Tree) -> None:
    runs = runs_of(options)
    carried = run_folders.to_pull(tree, runs)
    try:
        run_folders.write(runs, carried)
    except OSError as error:
        raise RefusedError(f"{runs}: the runs cannot be written: {error}; type it again then") from None
    for run_id in carried.runs:
        print(printable(f"run {run_id} is unfinished: pytest --resume={run_id} goes on with it"))
    for run_id in carried.finished:
        print(printable(f"run {run_id} has ended elsewhere"))
