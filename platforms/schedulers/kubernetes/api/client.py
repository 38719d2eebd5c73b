"""One namespace of one cluster: what it serves, its objects as plain dictionaries, its watches and its logs."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from platforms.job import AwayError, RefusedError
from platforms.schedulers.kubernetes.api.errors import ApiError, Expired, TransientError, error_of_event
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.api.resources import ACCESS_REVIEWS, BUILT_IN, PODS, Resource, api_path
from platforms.schedulers.kubernetes.api.session import READ_S, Query, Session

__all__ = ["ApiError", "Client", "Expired"]

LOG_SILENCE_S = (
    3600.0  # how long a followed log may say nothing; whoever follows it looks earlier whether it still lives
)
PAGE = 500
RELISTS = 3  # how often a LIST begins anew that took longer than the server remembers

_ANOTHER = re.compile(r"UID in (the )?precondition")  # the server has two sentences for it

Object = dict[str, Any]
Objects = list[Object]


class Client:
    """Thread-safe; reads its kubeconfig when it is first needed and connects when something is first asked.

    What changes nothing, and what may be done twice, is repeated after 429 (as late as the server wants), 500, 502,
    503, 504 and broken connections, a few times within a minute; what makes something only where it surely did not.

    Errors of every method: ConfigError and RefusedError for a kubeconfig or a certificate that cannot be used; ApiError
    for the server's no, 403 among them; AwayError when there is no answer for now, LoginNeeded when the server does not
    know us, though the kubeconfig was read again.
    """

    def __init__(
        self,
        asked: ClusterTarget,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._session = Session(asked, clock, sleep, wall)
        self._lock = threading.Lock()
        self._resources: dict[tuple[str, str], Resource] = dict(BUILT_IN)
        self._served: dict[str, tuple[str, ...]] = {}

    # --- where -------------------------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """For people: `cluster kind-kind, namespace default`."""
        return self._session.found.where

    @property
    def context(self) -> str:
        return self._session.found.context

    @property
    def namespace(self) -> str:
        return self._session.found.namespace

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for clients that see the same."""
        found = self._session.found
        return (found.server, found.source, found.user_name, found.namespace)

    def kubectl_command(self, words: str) -> str:
        """The command that a person types: `kubectl --context kind-kind --namespace default get pods`."""
        return f"{self._session.found.kubectl} --namespace {self.namespace} {words}"

    # --- what the cluster serves -------------------------------------------------------------------------------------

    def version(self) -> str:
        """As in `v1.36.2`."""
        return str(self._session.ask("GET", "/version")["gitVersion"])

    def served_versions(self, group: str) -> tuple[str, ...]:
        """The versions of an API group, the preferred one first; () where there is no such group. Asked once."""
        with self._lock:
            if group not in self._served:
                answer = self._discovered(f"/apis/{group}" if group else "/api")
                listed = [each if isinstance(each, str) else each["version"] for each in answer.get("versions") or ()]
                preferred = (answer.get("preferredVersion") or {}).get("version")
                self._served[group] = tuple(sorted(listed, key=lambda version: version != preferred))
            return self._served[group]

    def resource(self, api_version: str, kind: str) -> Resource:
        """Asked once where it is no kind that every cluster has. Raises RefusedError when the cluster has none such."""
        key = (api_version, kind)
        with self._lock:
            if key not in self._resources:
                for each in self._discovered(api_path(api_version)).get("resources") or ():
                    if "/" not in each["name"]:
                        one = Resource(api_version, each["kind"], each["name"], bool(each["namespaced"]))
                        self._resources[api_version, one.kind] = one
            if key in self._resources:
                return self._resources[key]
            self._served.pop(api_version.rpartition("/")[0], None)  # it may have been installed since
        raise RefusedError(self._unknown_kind(api_version, kind))

    def _discovered(self, path: str) -> Object:
        try:
            return self._session.ask("GET", path)
        except ApiError as error:
            if error.status != 404:
                raise
            return {}

    def _unknown_kind(self, api_version: str, kind: str) -> str:
        group, _, version = api_version.rpartition("/")
        versions = self.served_versions(group)
        if not versions:
            why = f"it has no API group {group}: is its operator installed?"
        elif version not in versions:
            why = f"of {group or 'the core group'} it has {', '.join(versions)}"
        else:
            why = f"there it has {', '.join(sorted(name for its, name in self._resources if its == api_version))}"
        command = self.kubectl_command("api-resources")
        return f"{self.where}: there is no kind {kind} of {api_version}: {why}. Try `{command}`"

    def is_allowed(self, verb: str, group: str, resource: str, subresource: str = "") -> bool:
        """Whether we may do this to all objects of a resource (`pods`, `nodes`): a SelfSubjectAccessReview."""
        attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
        if not any(each.plural == resource and not each.namespaced for each in BUILT_IN.values()):
            attributes["namespace"] = self.namespace
        spec = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
        review = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": spec}
        answer = self._session.ask("POST", ACCESS_REVIEWS.path(None), body=review)
        return bool((answer.get("status") or {}).get("allowed"))

    # --- objects -----------------------------------------------------------------------------------------------------

    def create(
        self, resource: Resource, obj: Mapping[str, Any], *, dry_run: bool = False, strict: bool = False
    ) -> Object:
        """Asked once, but again after an answer that says that nothing was done (429, a quota that others wrote just
        then). `strict`: fields that the server does not know are refused and not dropped.

        Raises AwayError when nobody knows whether it is there now.
        """
        query = [("dryRun", "All")] if dry_run else []
        query += [("fieldValidation", "Strict")] if strict else []
        return self._session.ask("POST", self._path(resource), query=query, body=obj, repeat=dry_run)

    def get(self, resource: Resource, name: str) -> Object:
        return self._session.ask("GET", self._path(resource, name))

    def try_get(self, path: str) -> Object | None:
        """What lies at a path that may be missing, forbidden or out of order: None then. Asked once, for seconds."""
        return self._session.glance(path)

    def list(
        self, resource: Resource, *, labels: str = "", fields: str = "", everywhere: bool = False
    ) -> tuple[Objects, str]:
        """All of them, with apiVersion and kind, and the resourceVersion from which a watch goes on."""
        path = resource.path(None if everywhere else self.namespace)
        query = [(key, value) for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value]
        for _again in range(RELISTS):
            try:
                return self._pages(resource, path, query)
            except Expired:
                continue
        raise AwayError(f"{self.where}: {resource.plural} cannot be listed: the server forgets faster than it tells")

    def _pages(self, resource: Resource, path: str, query: Query) -> tuple[Objects, str]:
        items: Objects = []
        after = ""
        while True:
            page = [*query, ("limit", str(PAGE)), *([("continue", after)] if after else [])]
            answer = self._session.ask("GET", path, query=page)
            typed = {"apiVersion": resource.api_version, "kind": resource.kind}
            items += [{**typed, **item} for item in answer.get("items") or ()]
            metadata = answer.get("metadata") or {}
            after = str(metadata.get("continue") or "")
            if not after:
                return items, str(metadata.get("resourceVersion") or "")

    def patch(self, resource: Resource, name: str, patch: Mapping[str, Any]) -> Object:
        """A JSON merge patch."""
        merge = "application/merge-patch+json"
        return self._session.ask("PATCH", self._path(resource, name), body=patch, content_type=merge)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        propagation: str = "Background",
        uid: str | None = None,
        version: str | None = None,
    ) -> None:
        """Fine when it is gone, or when another object (than that of `uid`) has its name by now. With `version`, its
        resourceVersion, only as long as nobody has changed it."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        wanted = {"uid": uid, "resourceVersion": version}
        if conditions := {key: value for key, value in wanted.items() if value is not None}:
            body["preconditions"] = conditions
        try:
            self._session.ask("DELETE", self._path(resource, name), body=body)
        except ApiError as error:
            another = uid is not None and error.status == 409 and _ANOTHER.search(error.message)
            if error.status != 404 and not another:
                raise

    # --- streams -----------------------------------------------------------------------------------------------------

    @contextmanager
    def watch(
        self, resource: Resource, *, labels: str, version: str, timeout_s: float, silence_s: float | None = None
    ) -> Iterator[Iterator[Object]]:
        """What happens after `version`: events {"type", "object"}, BOOKMARK among them, until the server ends it.

        Entering asks, once. Raises Expired, then or later, when the version lies too far back, and AwayError when the
        stream breaks or says nothing for `silence_s` seconds (default: `timeout_s` + 30).
        """
        silence_s = timeout_s + 30 if silence_s is None else silence_s
        query = [("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", version)]
        query += [("timeoutSeconds", f"{timeout_s:.0f}"), *([("labelSelector", labels)] if labels else [])]
        with self._session.stream(self._path(resource), query, silence_s) as pieces:
            yield self._events(pieces)

    def _events(self, pieces: Iterable[bytes]) -> Iterator[Object]:
        for line in lines(pieces):
            try:
                event: Object = json.loads(line)
            except ValueError:
                raise AwayError(f"{self.where}: a watch says something that is no event") from None
            if event.get("type") == "ERROR":
                error = error_of_event(event.get("object") or {})
                if isinstance(error, TransientError):
                    raise AwayError(f"{self.where}: {error.message}")
                raise error
            yield event

    def log(
        self,
        pod: str,
        container: str,
        *,
        follow: bool,
        since: str | None,
        previous: bool = False,
        tail: int | None = None,
        limit: int | None = None,
    ) -> AbstractContextManager[Iterator[bytes]]:
        """The log of a container as it comes, each line behind its time stamp; nothing when it has none yet. Of it the
        last `tail` lines, the first `limit` bytes.

        Entering asks, once. Raises ApiError (400: waits to start; 404) then, and AwayError also while it is read.
        """
        query = [("container", container), ("timestamps", "true")]
        query += [(name, "true") for name, wanted in (("follow", follow), ("previous", previous)) if wanted]
        query += [("sinceTime", since)] if since else []
        query += [(name, str(size)) for name, size in (("tailLines", tail), ("limitBytes", limit)) if size is not None]
        return self._session.stream(PODS.path(self.namespace, pod, "log"), query, LOG_SILENCE_S if follow else READ_S)

    def _path(self, resource: Resource, name: str = "") -> str:
        return resource.path(self.namespace, name)


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines of a stream that is cut anywhere, without their ends; empty ones are left out, and so is a last one
    that is not finished."""
    rest = bytearray()
    for piece in pieces:
        *whole, last = piece.split(b"\n")
        for line in whole:
            rest += line
            if rest:
                yield bytes(rest)
            rest.clear()
        rest += last
