"""An answer as a merge request: its file on a branch of its own, and a push that asks GitLab to open the request.

The file is made for the newest commit of the target branch, in a temporary clone. So it does not matter which branch is
checked out here, and whether it is up to date.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from platforms.job import RefusedError
from reporting.references import store
from reporting.references.answer_file import Answer, kind_of, subject_of
from reporting.references.answers import Acceptance
from reporting.shared_branch.clone import temporary_clone
from reporting.shared_branch.remote import Remote

TITLE = 255  # characters that GitLab takes at most


@dataclass(frozen=True)
class Proposal:
    """What is proposed.

    Attributes:
        title: one line. description: GitLab's Markdown.
        prefix: the site's folder within its repository, as in `centre/`; empty for the whole repository.
        by: name and e-mail of the commit's author.
    """

    answer: Answer
    title: str
    description: str
    prefix: str
    by: tuple[str, str]

    @property
    def branch(self) -> str:
        """The same answer always has the same branch, so that it has one merge request."""
        answer = self.answer
        key = [kind_of(answer), subject_of(answer), getattr(answer, "metric", "")]
        if isinstance(answer, Acceptance):
            key += [answer.comparability, str(answer.since)]
        digest = hashlib.sha256("\n".join(key).encode(errors="replace")).hexdigest()[:8]
        subject = re.sub(r"[^A-Za-z0-9]+", "-", subject_of(answer)).strip("-")[:80]
        return f"bench-answers/{kind_of(answer)}-{subject}-{digest}"


def propose(proposal: Proposal, remote: Remote, target: str | None) -> str:
    """Push the answer's branch, in place of an earlier one. Returns the sentence on what became of it.

    Args:
        target: the branch into which it shall be merged; None is the default branch of the remote repository.

    Raises:
        RefusedError: the branch cannot be read or pushed.
    """
    branch = proposal.branch
    with temporary_clone(remote, proposal.by) as clone:
        if not clone.fetch(target):
            raise RefusedError(f"{remote} has no branch {target or 'yet'} (--target=BRANCH names another one)")
        store.append(clone.folder / proposal.prefix, proposal.answer)
        clone.commit(proposal.title)
        said = clone.push(branch, _push_options(proposal, target), force=True)
    if said is None:
        raise RefusedError(f"{branch} of {remote}: others push it at the same time; type it again")
    # GitLab says where the request is or, if it may not open one, where a person does.
    address = re.search(r"https?://\S+/merge_requests/\S+", said)
    if address is None:
        return f"pushed as the branch {branch}; open a merge request from it"
    return f"pushed as the branch {branch}; its merge request: {address[0]}"


def _push_options(proposal: Proposal, target: str | None) -> list[str]:
    """What asks GitLab to open the merge request. An option is one line; GitLab makes line ends of each `\\n` in it."""
    description = proposal.description.replace("\n", "\\n")
    options = [
        "merge_request.create",
        "merge_request.remove_source_branch",
        f"merge_request.title={proposal.title[:TITLE]}",
        f"merge_request.description={description}",
    ]
    if target is not None:
        options.append(f"merge_request.target={target}")
    return options
