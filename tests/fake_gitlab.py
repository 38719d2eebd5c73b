"""A small stand-in for GitLab's REST API, whose answers follow its documentation: notes and merge requests.

It knows one project. A test says which tokens it knows, and which answers come before the right ones.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PROJECT = 42
PATH = "group/site"
LARGEST_PAGE = 100


@dataclass
class Trouble:
    """An answer that comes in place of the right one. With `done`, the request is carried out nevertheless."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    done: bool = False


@dataclass
class FakeGitLab:
    """The project's state.

    Attributes:
        users: by token, who it is; `read_only` tokens may only read, as a CI job's token.
        notes: by the number of the merge request, oldest first.
        asked: method, path and query of each request.
    """

    url: str = ""
    users: dict[str, str] = field(default_factory=lambda: {"glpat-good": "project_42_bot"})
    read_only: set[str] = field(default_factory=set)
    notes: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: {7: []})
    merge_requests: list[dict[str, Any]] = field(default_factory=list)
    branches: set[str] = field(default_factory=lambda: {"main"})
    troubles: deque[Trouble] = field(default_factory=deque)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    shows_totals: bool = True
    last_id: int = 300

    @property
    def api(self) -> str:
        return f"{self.url}/api/v4"

    def environ(self, iid: int | None = 7) -> dict[str, str]:
        """The variables of a pipeline."""
        found = {
            "CI_API_V4_URL": self.api,
            "CI_SERVER_HOST": "127.0.0.1",
            "CI_PROJECT_ID": str(PROJECT),
            "CI_PROJECT_PATH": PATH,
            "CI_PROJECT_URL": f"{self.url}/{PATH}",
            "CI_PIPELINE_URL": f"{self.url}/{PATH}/-/pipelines/11",
            "CI_JOB_URL": f"{self.url}/{PATH}/-/jobs/12",
        }
        return found | ({} if iid is None else {"CI_MERGE_REQUEST_IID": str(iid)})

    def add_note(self, iid: int, body: str, user: str, *, system: bool = False) -> dict[str, Any]:
        self.last_id += 1
        note = {
            "id": self.last_id,
            "body": body,
            "author": {"username": user},
            "system": system,
            "noteable_type": "MergeRequest",
            "noteable_iid": iid,
        }
        self.notes[iid].append(note)
        return note

    def bodies(self, iid: int = 7) -> list[str]:
        return [note["body"] for note in self.notes[iid]]

    def answer(self, method: str, url: str, token: str, sent: Mapping[str, Any]) -> tuple[int, Any, dict[str, str]]:
        """Status, content and headers of the right answer."""
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.asked.append((method, parts.path, query))
        user = self.users.get(token)
        if user is None:
            return 401, {"message": "401 Unauthorized"}, {}
        match = re.fullmatch(r"/api/v4/projects/([^/]+)(/.*)?", parts.path)
        if match is None or unquote(match[1]) not in (str(PROJECT), PATH):
            return 404, {"message": "404 Project Not Found"}, {}
        if method != "GET" and token in self.read_only:
            return (
                403,
                {"error": "insufficient_scope", "error_description": "The request requires higher privileges"},
                {},
            )
        path = match[2] or ""
        if path == "":
            return 200, {"id": PROJECT, "default_branch": "main", "web_url": f"{self.url}/{PATH}"}, {}
        if path == "/merge_requests":
            return self._merge_requests(method, query, sent, user)
        asked = re.fullmatch(r"/merge_requests/(\d+)", path)
        if asked is not None and method == "PUT":
            for each in self.merge_requests:
                if each["iid"] == int(asked[1]):
                    each.update(sent)
                    return 200, each, {}
            return 404, {"message": "404 Not found"}, {}
        note = re.fullmatch(r"/merge_requests/(\d+)/notes(?:/(\d+))?", path)
        if note is None or int(note[1]) not in self.notes:
            return 404, {"message": "404 Not found"}, {}
        if note[2] is None:
            return self._notes(method, parts.path, int(note[1]), query, sent, user)
        return self._note(method, int(note[1]), int(note[2]), sent, user)

    def _notes(
        self, method: str, path: str, iid: int, query: Mapping[str, str], sent: Mapping[str, Any], user: str
    ) -> tuple[int, Any, dict[str, str]]:
        if method == "POST":
            if not sent.get("body"):
                return 400, {"error": "body is missing"}, {}
            return 201, self.add_note(iid, sent["body"], user), {}
        found = self.notes[iid] if query.get("sort") == "asc" else self.notes[iid][::-1]
        return self._page(path, found, query)

    def _page(self, path: str, found: list[Any], query: Mapping[str, str]) -> tuple[int, Any, dict[str, str]]:
        size = min(LARGEST_PAGE, int(query.get("per_page", 20)))
        page = int(query.get("page", 1))
        entries = found[(page - 1) * size : page * size]
        headers = {"X-Page": str(page), "X-Per-Page": str(size), "X-Next-Page": ""}
        if page * size < len(found):
            rest = "&".join(f"{name}={value}" for name, value in query.items() if name not in ("page", "per_page"))
            following = f"{self.url}{path}?{rest}&page={page + 1}&per_page={size}"
            headers["X-Next-Page"] = str(page + 1)
            headers["Link"] = f'<{self.url}{path}?page=1>; rel="first", <{following}>; rel="next"'
        if self.shows_totals:
            headers["X-Total"] = str(len(found))
        return 200, entries, headers

    def _note(
        self, method: str, iid: int, note_id: int, sent: Mapping[str, Any], user: str
    ) -> tuple[int, Any, dict[str, str]]:
        (note,) = [each for each in self.notes[iid] if each["id"] == note_id] or [None]
        if note is None:
            return 404, {"message": "404 Note Not Found"}, {}
        if method == "GET":
            return 200, note, {}
        if note["author"]["username"] != user:
            return 403, {"message": "403 Forbidden"}, {}
        if method == "DELETE":
            self.notes[iid].remove(note)
            return 204, None, {}
        note["body"] = sent["body"]
        return 200, note, {}

    def _merge_requests(
        self, method: str, query: Mapping[str, str], sent: Mapping[str, Any], user: str
    ) -> tuple[int, Any, dict[str, str]]:
        if method == "GET":
            chosen = ("state", "source_branch", "target_branch")
            wanted = {name: value for name, value in query.items() if name in chosen and value != "all"}
            found = [each for each in self.merge_requests if all(each[name] == value for name, value in wanted.items())]
            return self._page(f"/api/v4/projects/{PROJECT}/merge_requests", found, query)
        for name in ("source_branch", "target_branch", "title"):
            if not sent.get(name):
                return 400, {"error": f"{name} is missing"}, {}
        for each in self.merge_requests:
            if each["source_branch"] == sent["source_branch"] and each["state"] == "opened":
                said = f"Another open merge request already exists for this source branch: !{each['iid']}"
                return 409, {"message": [said]}, {}
        iid = len(self.merge_requests) + 1
        created = {
            **sent,
            "iid": iid,
            "state": "opened",
            "author": {"username": user},
            "web_url": f"{self.url}/{PATH}/-/merge_requests/{iid}",
        }
        self.merge_requests.append(created)
        return 201, created, {}


@contextlib.contextmanager
def serving() -> Iterator[FakeGitLab]:
    """Start the server on a free port."""
    gitlab = FakeGitLab()
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = json.loads(self.rfile.read(length)) if length else {}
            with lock:
                trouble = gitlab.troubles.popleft() if gitlab.troubles else None
                answer: tuple[int, Any, dict[str, str]] | None = None
                if trouble is None or trouble.done:
                    token = self.headers.get("PRIVATE-TOKEN") or ""
                    answer = gitlab.answer(self.command, self.path, token, sent)
            if trouble is not None:
                self._send(trouble.status, trouble.body.encode(), trouble.headers)
            elif answer is not None:
                status, content, headers = answer
                self._send(status, b"" if content is None else json.dumps(content).encode(), headers)

        do_POST = do_PUT = do_DELETE = do_GET

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if status != 204:
                self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        gitlab.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield gitlab
        finally:
            server.shutdown()
