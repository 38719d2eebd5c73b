"""An answer as a merge request: its file on a branch of its own, pushed, and opened for others to approve.

The file is made for the newest commit of the target branch, in a temporary repository. So it does not matter which
branch is checked out here, and whether it is up to date.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from platforms.job import BenchError, RefusedError
from platforms.printable import printable
from platforms.rundir.accepted_runs import FOLDER
from reporting.gitlab import token as gitlab_token
from reporting.gitlab.api import GitLab
from reporting.gitlab.merge_requests import TITLE, Project, open_one, project_of
from reporting.references import store
from reporting.references.answer_file import Answer, kind_of, subject_of
from reporting.references.answers import Acceptance
from reporting.shared_branch.remote import Remote
from reporting.shared_branch.scratch import Tree, scratch_for

TRIES = 5


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
        """The same answer always has the same branch, so that it is proposed once."""
        answer = self.answer
        key = [kind_of(answer), subject_of(answer), getattr(answer, "metric", "")]
        if isinstance(answer, Acceptance):
            key += [answer.comparability, str(answer.since)]
        digest = hashlib.sha256("\n".join(key).encode(errors="replace")).hexdigest()[:8]
        subject = re.sub(r"[^A-Za-z0-9]+", "-", subject_of(answer)).strip("-")[:80]
        return f"bench-answers/{kind_of(answer)}-{subject}-{digest}"


@dataclass(frozen=True)
class Proposed:
    """What became of a proposal.

    Attributes:
        said: a sentence for the person who typed it.
        address: of the merge request, or of the form in which a person opens it; empty if neither is known.
        is_open: whether the merge request is open now.
    """

    said: str
    address: str = ""
    is_open: bool = False


def propose(
    proposal: Proposal,
    remote: Remote,
    target: str | None,
    report: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> Proposed:
    """Push the answer's branch and open its merge request. It is safe to do this again.

    Args:
        target: the branch into which it shall be merged; None is the default branch of the remote repository.
        report: is called with a sentence when something takes a while.

    Raises:
        RefusedError: the branch cannot be read or pushed.
        AwayError: GitLab does not answer.
    """
    project = project_of(remote.url, environ)
    token = environ.get(gitlab_token.VARIABLE, "").strip()
    branch = proposal.branch
    with scratch_for(remote, report) as scratch:
        target = target or scratch.default_branch()
        for _try in range(TRIES):
            base = scratch.fetch(target)
            if base.commit is None:
                raise RefusedError(f"{remote} has no branch {printable(target)} (--target=BRANCH names another one)")
            if _has(base, proposal):
                return Proposed(f"{target} of {remote} has this answer already: git pull brings it here")
            theirs = scratch.fetch(branch)
            said = ""
            if not _has(theirs, proposal):
                scratch.commit(_file(base, proposal), f"{proposal.title}\n", proposal.by, parent=base.commit)
                options = () if token and project else _push_options(proposal, target)
                pushed = scratch.push(branch, theirs.commit, options)
                if pushed is None:  # somebody has pushed it at this moment: is it the same answer?
                    continue
                said = pushed
            return _opened(proposal, project, token, branch, target, said)
    raise RefusedError(f"{branch} of {remote}: others push it at the same time; type it again")


def _opened(proposal: Proposal, project: Project | None, token: str, branch: str, target: str, said: str) -> Proposed:
    """Open the merge request of a branch that is pushed. Without a token the server may have opened it by itself."""
    pushed = f"pushed as the branch {branch}" if said else f"the branch {branch} has this answer already"
    opened = re.search(r"https?://\S+/merge_requests/\d+", said)
    if project is not None and token:
        try:
            gitlab = GitLab(project.api, project.name, token)
            address = open_one(gitlab, branch, target, proposal.title, proposal.description)
        except BenchError as error:
            form = project.new_merge_request(branch, target)
            raise RefusedError(
                f"{pushed}, and its merge request could not be opened: {error}; type it again, or open it: {form}"
            ) from None
        return Proposed(f"proposed as a merge request: {address}", address, is_open=True)
    if opened is not None:
        return Proposed(f"proposed as a merge request: {opened[0]}", opened[0], is_open=True)
    if project is None:
        return Proposed(f"{pushed}; open a merge request from it into {target}")
    address = project.new_merge_request(branch, target)
    return Proposed(f"{pushed}; open its merge request: {address}", address)


def _has(tree: Tree, proposal: Proposal) -> bool:
    """Whether a branch has an answer that says the same, whoever gave it and when."""
    if tree.commit is None:
        return False
    with tempfile.TemporaryDirectory(prefix="hpc-ml-bench-answers-") as name:
        site = Path(name)
        _write_answers(tree, proposal, site)
        references = store.load(site)
    return any(_same(answer, proposal.answer) for answer in references.paths)


def _same(one: Answer, other: Answer) -> bool:
    return type(one) is type(other) and replace(one, author=other.author) == other


def _file(tree: Tree, proposal: Proposal) -> dict[str, bytes | str]:
    """The answer's file, after all those of the branch for the same test or platform."""
    with tempfile.TemporaryDirectory(prefix="hpc-ml-bench-answers-") as name:
        site = Path(name)
        _write_answers(tree, proposal, site)
        path = store.append(site, proposal.answer)
        return {proposal.prefix + path.relative_to(site).as_posix(): path.read_bytes()}


def _write_answers(tree: Tree, proposal: Proposal, site: Path) -> None:
    """Write the answers of a branch about the test or platform into an empty folder."""
    top = f"{proposal.prefix}{FOLDER}/{store.folder_name(subject_of(proposal.answer))}/"
    with tree.reader() as read:
        for path in tree.files:
            if path.startswith(top) and path.endswith(".yaml") and "/" not in path.removeprefix(top):
                written = site / path.removeprefix(proposal.prefix)
                written.parent.mkdir(parents=True, exist_ok=True)
                written.write_bytes(read(path))


def _push_options(proposal: Proposal, target: str) -> tuple[str, ...]:
    """What asks GitLab to open the merge request. An option is one line; GitLab makes line ends of each `\\n` in it."""
    description = proposal.description.replace("\n", "\\n")
    return (
        "merge_request.create",
        f"merge_request.target={target}",
        "merge_request.remove_source_branch",
        f"merge_request.title={proposal.title[:TITLE]}",
        f"merge_request.description={description}",
    )
