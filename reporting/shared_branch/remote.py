"""Which git repository is meant, and with which token it is reached. No token is written into a file or a command."""

from __future__ import annotations

import base64
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from platforms.job import RefusedError
from reporting.shared_branch import git
from reporting.shared_branch.git import GitError

TOKEN = "HPC_ML_BENCH_GITLAB_TOKEN"  # the variable with an access token of the project, of scope write_repository
JOB_TOKEN = "CI_JOB_TOKEN"  # the variable with the token of a CI job, which pushes if the project allows that
DEFAULT_REMOTE = "origin"
JOB_USER = "gitlab-ci-token"  # the user's name that goes with CI_JOB_TOKEN
# Settings of a person's repository that say how a server is reached.
_CONNECTION = r"^(http|https|credential|url|core\.(sshcommand|gitproxy)|protocol|ssh)\b"


@dataclass(frozen=True)
class Remote:
    """A repository that is fetched from and pushed to.

    Attributes:
        url: without a password.
        config: settings with which git reaches it. They may hold secrets.
        secrets: what must never be printed.
        token_from: the variable that the token comes from; "" if git finds its own way.
    """

    url: str
    config: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    token_from: str = ""

    def __str__(self) -> str:
        return self.url


def repository_of(folder: Path) -> Path:
    """The top folder of the repository that keeps a folder.

    Raises RefusedError if there is none, and if the repository ignores the folder, as the suite's clone ignores site/.
    """
    where = shlex.quote(str(folder))
    begin = f"git init {where}; docs/answers.md says what belongs into it. Or name the repository: --remote=URL"
    if not folder.is_dir():
        raise RefusedError(f"{folder}: there is no such folder (--site=DIR names the site's)")
    try:
        top = Path(git.run(["rev-parse", "--show-toplevel"], folder=folder).rstrip("\n"))
    except GitError as error:
        if "dubious ownership" in error.said:
            raise RefusedError(
                f"{folder}: another user owns this repository, so git does not read it "
                f"(git config --global --add safe.directory {where})"
            ) from None
        raise RefusedError(f"{folder} is in no git repository ({begin})") from None
    if top.resolve() != folder.resolve() and _ignores(top, folder):
        raise RefusedError(f"{folder} is ignored by the repository {top}, so it needs one of its own ({begin})")
    return top


def _ignores(top: Path, folder: Path) -> bool:
    try:
        git.run(["check-ignore", "-q", "--", str(folder.absolute())], folder=top)
    except GitError:
        return False
    return True


def remote_of(typed: str | None, folder: Path, environ: Mapping[str, str] = os.environ) -> Remote:
    """The repository that `--remote` names.

    Args:
        typed: the name of a remote in the repository that keeps `folder`, a URL, or a path. None is `origin`.
        folder: of the site.

    Raises RefusedError.
    """
    if typed is not None and Path(typed).is_dir():
        return Remote(str(Path(typed).absolute()))
    if typed is not None and re.search(r"/|^[\w.@-]+:", typed):  # a place, and no name of a remote
        return _with_token(typed, (), environ)
    top = repository_of(folder)
    name = typed or DEFAULT_REMOTE
    try:
        if name.startswith("-"):
            raise GitError("")
        url = git.run(["remote", "get-url", "--push", name], folder=top).rstrip("\n")
    except GitError:
        known = ", ".join(git.run(["remote"], folder=top).split())
        raise RefusedError(
            f"{top}: there is no remote {name!r}, it has {known or 'none'} "
            f"(git -C {shlex.quote(str(top))} remote add {shlex.quote(name)} URL, or --remote=URL)"
        ) from None
    if not re.match(r"[\w+.-]+:", url):
        url = str((top / url).resolve())  # a path is relative to the top of the repository
    return _with_token(url, _connection_settings(top), environ)


def _connection_settings(top: Path) -> tuple[tuple[str, str], ...]:
    try:
        found = git.run(["config", "--local", "--includes", "-z", "--get-regexp", _CONNECTION], folder=top)
    except GitError:  # there is none
        return ()
    pairs = [entry.partition("\n") for entry in found.split("\0") if entry]
    return tuple((key, value) for key, _, value in pairs)


def _with_token(url: str, config: tuple[tuple[str, str], ...], environ: Mapping[str, str]) -> Remote:
    """The remote with its URL's password, or the token of the environment, moved into settings."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return Remote(url, config, _values_of_headers(config))
    host = parts.hostname or ""
    place = parts.netloc.rpartition("@")[2]
    user, password, token_from = unquote(parts.username or ""), unquote(parts.password or ""), ""
    server = environ.get("CI_SERVER_HOST", host).lower()  # in a pipeline tokens are shown to its server alone
    if environ.get(TOKEN) and host == server:
        user, password, token_from = "hpc-ml-bench", environ[TOKEN], TOKEN
    elif not password and environ.get(JOB_TOKEN) and "CI_SERVER_HOST" in environ and host == server:
        user, password = JOB_USER, environ[JOB_TOKEN]
    if user == JOB_USER:
        token_from = JOB_TOKEN
    secrets = (*_values_of_headers(config), password, parts.password or "")
    clean = urlunsplit((parts.scheme, place if password else parts.netloc, parts.path, parts.query, ""))
    if not password:
        return Remote(clean, config, secrets)
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    key = f"http.{parts.scheme}://{quote(place, safe=':[]')}/.extraHeader"
    header = f"Authorization: Basic {encoded}"
    # An empty value takes back the headers of other settings: a server refuses two of them.
    settings = (*config, (key, ""), (key, header), ("credential.helper", ""))
    return Remote(clean, settings, (*secrets, encoded), token_from)


def _values_of_headers(config: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(value.rpartition(" ")[2] for key, value in config if key.lower().endswith(".extraheader") and value)
