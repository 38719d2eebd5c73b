"""`python -m reporting pull`: adds what a branch of a git repository holds to the history here."""

from __future__ import annotations

import argparse

from platforms.job import RefusedError
from platforms.output import print_errors
from platforms.printable import printable
from reporting.commands.opened_site import open_site
from reporting.commands.shared_history import add_branch, branch_of, mistakes, runs_of
from reporting.history.place import refuse_missing
from reporting.phrases import counted
from reporting.shared_branch import history_files, run_folders


def add_options(parser: argparse.ArgumentParser) -> None:
    add_branch(parser)


def main(options: argparse.Namespace) -> int:
    """Write what is missing here. Returns 1 if a part of the history differs or cannot be read. Raises BenchError."""
    site = open_site(options)
    refuse_missing(site.history, options.history, site.folder)
    branch = branch_of(options, site)
    carried = run_folders.CarriedRuns()
    with branch.read() as folder:
        if folder is None:
            print(printable(f"{branch.remote} has no branch {branch.branch} yet: the first push makes it"))
            return 0
        try:
            theirs = folder / history_files.FOLDER
            brought = history_files.bring(theirs, site.history, details=options.details)
            if options.runs:
                carried = run_folders.pull(folder / run_folders.FOLDER, runs_of(options))
        except OSError as error:
            raise RefusedError(
                f"{error.filename}: it cannot be written: {error.strerror}; type it again then"
            ) from None
    if brought.new:
        print(printable(f"pulled from {branch}: {counted(brought.new, 'new file')}, to {site.history}"))
    else:
        print(printable(f"{site.history} has all of {branch} already"))
    for run_id in carried.unfinished:
        print(printable(f"run {run_id} is unfinished: pytest --resume={run_id} goes on with it"))
    for run_id in carried.finished:
        print(printable(f"run {run_id} has ended elsewhere"))
    return print_errors(mistakes(brought, branch, site))
