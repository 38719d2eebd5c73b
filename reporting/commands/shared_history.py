"""What `pull` and `push` share: which branch of which repository, and which folders here."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from platforms import checkout
from platforms.job import RefusedError
from platforms.printable import printable
from platforms.schedulers import backend_of
from reporting.commands.answering import login_name
from reporting.commands.opened_site import OpenedSite
from reporting.shared_branch import git
from reporting.shared_branch.branch import DEFAULT_BRANCH, SharedBranch
from reporting.shared_branch.git import GitError
from reporting.shared_branch.history_files import Brought
from reporting.shared_branch.remote import DEFAULT_REMOTE, remote_of


def add_branch(parser: argparse.ArgumentParser) -> None:
    """Declare the options that `pull` and `push` have."""
    parser.add_argument(
        "--remote",
        metavar="NAME|URL",
        help=f"the repository (default: {DEFAULT_REMOTE} of the one that keeps the site's folder)",
    )
    parser.add_argument("--branch", metavar="NAME", default=DEFAULT_BRANCH, help=f"default: {DEFAULT_BRANCH}")
    parser.add_argument("--details", action="store_true", help="also the run.json of each job, which are large")
    parser.add_argument("--runs", action="store_true", help="also unfinished runs, for pytest --resume elsewhere")
    parser.add_argument("--runs-dir", metavar="DIR", help="the folder of runs, as pytest's option says it")


def branch_of(options: argparse.Namespace, site: OpenedSite) -> SharedBranch:
    """The branch that is meant. Raises RefusedError."""
    return SharedBranch(remote_of(options.remote, site.folder), options.branch, commit_author(), report=report)


def runs_of(options: argparse.Namespace) -> Path:
    """The folder of runs. The suite's own need not exist yet. Raises RefusedError for a --runs-dir that does not."""
    if options.runs_dir is None:
        return checkout.home(options.site) / "runs"
    runs = Path(options.runs_dir)
    if not runs.is_dir():
        raise RefusedError(f"--runs-dir: there is no folder {runs} (mkdir -p {shlex.quote(str(runs))})")
    return runs


def bound_platforms(site: OpenedSite) -> set[str]:
    """The platforms whose jobs are processes of this machine. Raises ConfigError."""
    _settings, platforms = checkout.load(site.folder)
    return {name for name, platform in platforms.items() if backend_of(platform).file_keys.this_machine}


def mistakes(brought: Brought, branch: SharedBranch, site: OpenedSite) -> list[str]:
    """What a person should look at, a sentence for each file."""
    said = [
        f"{site.history / name} has other lines than this file in {branch}: a person has edited one of them. Rename "
        "yours, and both are kept; a line that is in both counts once"
        for name in brought.differing
    ]
    return [printable(sentence) for sentence in (*brought.problems, *said)]


def commit_author() -> tuple[str, str]:
    """Who makes the commit: as git knows this person, or the user of the pipeline."""
    login = login_name()
    name = _configured("user.name") or os.environ.get("GITLAB_USER_NAME") or login
    email = os.environ.get("GITLAB_USER_EMAIL") or f"{login.replace(' ', '-')}@{os.uname().nodename}"
    return name, _configured("user.email") or email


def _configured(key: str) -> str:
    try:
        return git.run(["config", "--get", key]).strip()
    except GitError:
        return ""


def report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
