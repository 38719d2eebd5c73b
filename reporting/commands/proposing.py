"""How an answer is given: as a file in the site's folder, or as a merge request that another person approves."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from platforms.job import RefusedError
from platforms.printable import printable
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite
from reporting.commands.shared_history import commit_author
from reporting.references.answer_file import Answer
from reporting.references.answers import Acceptance, Acknowledgement
from reporting.references.proposal import Proposal, propose
from reporting.shared_branch import git
from reporting.shared_branch.remote import remote_of, repository_of


def add_merge_request(parser: argparse.ArgumentParser) -> None:
    """Declare the options that `give` reads."""
    parser.add_argument(
        "--merge-request", action="store_true", help="open a merge request with the answer, and write nothing here"
    )
    parser.add_argument("--remote", metavar="NAME|URL", help="for --merge-request: where to (default: origin)")
    parser.add_argument(
        "--target", metavar="BRANCH", help="for --merge-request: into what (default: the default branch)"
    )


def give(opened: OpenedSite, answer: Answer, options: argparse.Namespace, title: str, lines: Sequence[str]) -> None:
    """Write an answer, or open a merge request with it. Prints what became of it.

    Args:
        title: of the merge request.
        lines: what was printed of the answer, with the numbers before and after.

    Raises RefusedError.
    """
    if not options.merge_request:
        for option in ("remote", "target"):
            if getattr(options, option) is not None:
                raise RefusedError(f"--{option} goes with --merge-request (type that, too, or leave it out)")
        answering.write(opened, answer)
        return
    remote = remote_of(options.remote, opened.folder)
    repository_of(opened.folder)
    prefix = git.run(["rev-parse", "--show-prefix"], folder=opened.folder).stdout.strip()
    proposal = Proposal(answer, printable(title), _description(answer, lines), prefix, commit_author())
    print(printable(propose(proposal, remote, options.target)))


def _description(answer: Answer, lines: Sequence[str]) -> str:
    """The description of the merge request. What people and histories say is in a block that is shown as it is."""
    said = list(lines)
    if isinstance(answer, Acceptance):
        said += [f"  runs    {', '.join(answer.runs)}", f"  reason  {answer.reason}"]
    elif isinstance(answer, Acknowledgement):
        said.append(f"  ticket  {answer.ticket}")
    said.append(f"  by      {answer.author.by}, {answer.author.at.isoformat(timespec='seconds')}")
    block = "\n".join(map(printable, said))
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in re.findall(r"`+", block)), default=0))
    return (
        "An answer to the gate, by `python -m reporting`. It adds one file, and changes none. "
        "When this is merged, every session of the site reads it.\n\n"
        f"{fence}\n{block}\n{fence}\n"
    )
