"""Asks a GitLab server through its REST API (v4), with patience and with limits. The token is in no message."""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from platforms.job import AwayError, RefusedError
from platforms.printable import printable
from reporting.gitlab import token as gitlab_token

ANSWER_S = 30.0
TRIES = 5
LONGEST_PAUSE_S = 60.0
PAGES = 200  # of a list, 100 entries each
_BUSY = 429
_AWAY = frozenset((500, 502, 503, 504))


class GitLabError(RefusedError):
    """The server has refused a request. `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True)
class Answer:
    """What the server has answered: JSON, and the headers by their names in lower case."""

    content: Any
    headers: Mapping[str, str]


class GitLab:
    """One project of a GitLab server.

    Args:
        api: the root of the API, as in `https://gitlab.example.org/api/v4`.
        project: its number, or its path as in `group/site`.
        token: of the header PRIVATE-TOKEN.
        sleep: seconds.

    Every request raises GitLabError if the server refuses it, and AwayError if it does not answer.
    """

    def __init__(self, api: str, project: str, token: str, sleep: Callable[[float], None] = time.sleep) -> None:
        if urlsplit(api).scheme not in ("http", "https"):
            raise RefusedError(f"{printable(api)} is no address of GitLab's API, as https://gitlab.example.org/api/v4")
        if not token.isascii() or not token.isprintable() or " " in token:
            raise RefusedError(f"{gitlab_token.VARIABLE} holds no token: copy it again, without blanks or line ends")
        self._api = api.rstrip("/")
        self._project = f"{self._api}/projects/{quote(project, safe='')}"
        self._token = token
        self._sleep = sleep
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=_tls()))

    def get(self, path: str, **query: str | int) -> Any:
        """One object."""
        return self._asked("GET", self._url(path, query)).content

    def each(self, path: str, **query: str | int) -> Iterator[Any]:
        """The entries of a list, page by page."""
        url = self._url(path, {**query, "per_page": 100})
        for _page in range(PAGES):
            answer = self._asked("GET", url)
            yield from answer.content
            following = self._next_url(url, answer.headers)
            if following is None:
                return
            url = following

    def post(self, path: str, **values: object) -> Any:
        """Make an object. After an AwayError it may exist, so look for it before you post it again."""
        return self._asked("POST", self._url(path, {}), values).content

    def put(self, path: str, **values: object) -> Any:
        """Change an object."""
        return self._asked("PUT", self._url(path, {}), values).content

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._asked("DELETE", self._url(path, {}))

    def _url(self, path: str, query: Mapping[str, str | int]) -> str:
        url = f"{self._project}/{path}" if path else self._project
        return f"{url}?{urlencode(query)}" if query else url

    def _next_url(self, url: str, headers: Mapping[str, str]) -> str | None:
        """The address of the next page. The token is shown to no other server than this one."""
        link = re.search(r'<([^>]+)>\s*;\s*rel="?next"?', headers.get("link", ""))
        if link and link[1].startswith(f"{self._api}/"):
            return link[1]
        page = headers.get("x-next-page", "")
        if not page.isdigit():
            return None
        return re.sub(r"&page=\d+$", "", url) + f"&page={page}"

    def _asked(self, method: str, url: str, values: Mapping[str, object] | None = None) -> Answer:
        for tries in range(TRIES):
            try:
                return self._once(method, url, values)
            except _Later as later:
                if tries == TRIES - 1 or (method == "POST" and later.may_be_done):
                    raise AwayError(f"{method} {_shown(url)}: {later}; type it again later") from None
                self._sleep(min(LONGEST_PAUSE_S, later.pause_s if later.pause_s is not None else 2.0**tries))
        raise AssertionError

    def _once(self, method: str, url: str, values: Mapping[str, object] | None) -> Answer:
        body = None if values is None else json.dumps(values).encode()
        headers = {"PRIVATE-TOKEN": self._token, "Accept": "application/json", "User-Agent": "hpc-ml-bench"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
        try:
            with self._opener.open(request, timeout=ANSWER_S) as response:
                content = response.read()
                found = {name.lower(): value for name, value in response.headers.items()}
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error, method, url, self._token) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise RefusedError(
                    f"{_shown(url)}: its certificate is not trusted: {reason.verify_message} (name the file with the "
                    "certificate of your centre's authority: SSL_CERT_FILE=FILE)"
                ) from None
            raise _Later(f"the server does not answer: {reason}", may_be_done=True) from None
        try:
            return Answer(json.loads(content) if content else None, found)
        except ValueError:
            raise RefusedError(f"{_shown(url)}: what answers there is not GitLab's API: no JSON came") from None


def project_here(environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The API's root and the project of this pipeline. Raises RefusedError outside of a pipeline."""
    api, project = environ.get("CI_API_V4_URL", ""), environ.get("CI_PROJECT_ID", "")
    if not api or not project:
        raise RefusedError("CI_API_V4_URL and CI_PROJECT_ID are not set: a pipeline of GitLab sets them")
    return api, project


class _Later(Exception):
    """The same request may succeed later. `may_be_done`: the server may have done it, and its answer was lost."""

    def __init__(self, message: str, pause_s: float | None = None, *, may_be_done: bool) -> None:
        super().__init__(message)
        self.pause_s = pause_s
        self.may_be_done = may_be_done


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token is not sent on to another address."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    file = os.environ.get("CI_SERVER_TLS_CA_FILE")  # a runner sets it if its centre has its own authority
    if file and os.path.isfile(file):  # noqa: PTH113
        context.load_verify_locations(file)
    return context


def _refusal(error: urllib.error.HTTPError, method: str, url: str, token: str) -> Exception:
    said = _message(error.read(20_000)).replace(token, "***")
    what = f"{method} {_shown(url)}: GitLab answers {error.code}"
    if said:
        what += f", {said}"
    if error.code == _BUSY:
        return _Later(what, _pause_s(error.headers.get("Retry-After")), may_be_done=False)
    if error.code in _AWAY:
        return _Later(what, _pause_s(error.headers.get("Retry-After")), may_be_done=True)
    return GitLabError(error.code, f"{what} ({_advice(error)})")


def _advice(error: urllib.error.HTTPError) -> str:
    match error.code:
        case 401:
            return f"the token in {gitlab_token.VARIABLE} is wrong, has expired or was revoked: set a new one"
        case 403:
            return f"the token in {gitlab_token.VARIABLE} needs the scope api, and the role Developer in this project"
        case 404:
            return (
                "there is none, or the token may not see it: is it a token of this project, with the scope api and the "
                "role Developer?"
            )
        case 301 | 302 | 307 | 308:
            return (
                f"it has moved to {_shown(error.headers.get('Location', 'another address'))}: name it by that address"
            )
        case _:
            return "GitLab refuses it as it is"


def _message(content: bytes) -> str:
    """What the server says, in one line. It may be a text, or texts by the name of a field."""
    try:
        found = json.loads(content)
    except ValueError:
        return ""
    if isinstance(found, dict):
        found = found.get("message") or found.get("error_description") or found.get("error") or ""
    text = found if isinstance(found, str) else json.dumps(found)
    return printable(" ".join(text.split()))[:300]


def _pause_s(header: str | None) -> float | None:
    return float(header) if header and header.isdigit() else None


def _shown(url: str) -> str:
    """An address without its query, and without a password."""
    parts = urlsplit(url)
    return printable(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
