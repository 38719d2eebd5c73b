"""Merge requests: which project of which server a git remote is, and one open request for a branch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from platforms.job import AwayError
from reporting.gitlab.api import GitLab, GitLabError

TITLE = 255  # characters at most
_EXISTS = 409


@dataclass(frozen=True)
class Project:
    """A project of a GitLab server.

    Attributes:
        api: the root of its API.
        name: its number, or its path.
        web: the address that people open.
    """

    api: str
    name: str
    web: str

    def new_merge_request(self, branch: str, target: str) -> str:
        """The address of the form for a new merge request, filled in."""
        query = f"merge_request%5Bsource_branch%5D={quote(branch, safe='')}"
        return f"{self.web}/-/merge_requests/new?{query}&merge_request%5Btarget_branch%5D={quote(target, safe='')}"


def project_of(url: str, environ: Mapping[str, str] = os.environ) -> Project | None:
    """The project behind the URL of a git remote; None for a path on this machine.

    In a pipeline the variables say it, which also know a server below a path or with another port for ssh.
    """
    here = Project(
        environ.get("CI_API_V4_URL", ""), environ.get("CI_PROJECT_ID", ""), environ.get("CI_PROJECT_URL", "")
    )
    scp = re.fullmatch(r"(?:[\w.-]+@)?([\w.-]+):(?!//)(.+)", url)
    parts = urlsplit(url)
    if scp is not None:
        scheme, host, path = "https", scp[1], scp[2]
    elif parts.scheme in ("http", "https"):
        scheme, host, path = parts.scheme, parts.netloc.rpartition("@")[2], parts.path
    elif parts.scheme == "ssh":
        scheme, host, path = "https", parts.hostname or "", parts.path
    else:
        return here if here.api and here.name else None
    path = path.strip("/").removesuffix(".git")
    is_here = host.partition(":")[0].lower() == environ.get("CI_SERVER_HOST", "").lower()
    if is_here and here.api and path.endswith(environ.get("CI_PROJECT_PATH", path)):
        return here
    if is_here and here.api:
        return Project(here.api, path, f"{environ.get('CI_SERVER_URL', f'{scheme}://{host}')}/{path}")
    return Project(f"{scheme}://{host}/api/v4", path, f"{scheme}://{host}/{path}")


def open_one(gitlab: GitLab, branch: str, target: str, title: str, description: str) -> str:
    """Open a merge request for a branch, or bring the text of the open one up to date. Returns its address.

    Raises:
        GitLabError, AwayError: as GitLab's requests do.
    """
    text = {"title": title[:TITLE], "description": description}
    try:
        created = gitlab.post(
            "merge_requests", source_branch=branch, target_branch=target, remove_source_branch=True, **text
        )
        return str(created["web_url"])
    except GitLabError as error:
        if error.status != _EXISTS:
            raise
    except AwayError:  # it may have been opened
        if find_open(gitlab, branch) is None:
            raise
    found = find_open(gitlab, branch)
    if found is None:
        raise GitLabError(_EXISTS, f"GitLab says that {branch} has a merge request already, and shows none: look there")
    iid, address = found
    gitlab.put(f"merge_requests/{iid}", **text)
    return address


def find_open(gitlab: GitLab, branch: str) -> tuple[int, str] | None:
    """The number and the address of the open merge request of a branch; None if it has none."""
    for found in gitlab.each("merge_requests", state="opened", source_branch=branch):
        return int(found["iid"]), str(found["web_url"])
    return None
