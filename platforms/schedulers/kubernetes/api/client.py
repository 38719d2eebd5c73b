"""One namespace of one cluster: its objects as plain dictionaries, its watches and its logs."""

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

LOG_SILENCE_S = 60.0  # a followed log that is silent for longer is opened again: it may be frozen
PAGE = 500  # objects per answer of a LIST
RELISTS = 3  # how often a LIST is started again when its pages took longer than the server keeps them

_UID_DIFFERS = re.compile(r"UID in (the )?precondition")  # the server has two sentences for it

Object = dict[str, Any]
Objects = list[Object]


class Client:
    """A client of one namespace. Thread-safe.

    It reads its kubeconfig when that is first needed and connects with the first request. Requests that change nothing,
    or that may be sent twice, are repeated for up to a minute after 429 (as late as the server asks), 500, 502, 503,
    504 and broken connections. A request that creates an object is repeated only when it surely created none.

    Every method raises ConfigError and RefusedError for a kubeconfig or a certificate that cannot be used, ApiError
    when the server says no (403 among others), AwayError when there is no answer for now, and LoginNeeded when the
    server does not accept our credentials even after the kubeconfig was read again.
    """

    def __init__(
        self,
        target: ClusterTarget,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._session = Session(target, clock, sleep, wall)
        self._lock = threading.Lock()
        self._resources: dict[tuple[str, str], Resource] = dict(BUILT_IN)
        self._versions: dict[str, tuple[str, ...]] = {}

    # --- the cluster -------------------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """The cluster and namespace in words: `cluster kind-kind, namespace default`."""
        return self._session.target.where

    @property
    def context(self) -> str:
        return self._session.target.context

    @property
    def namespace(self) -> str:
        return self._session.target.namespace

    @property
    def key(self) -> tuple[str, ...]:
        """A key that is equal for clients which see the same objects."""
        target = self._session.target
        return (target.server, target.source, target.context, target.namespace)

    def kubectl_command(self, arguments: str) -> str:
        """Return a command for a person: `kubectl --context kind-kind --namespace default get pods`."""
        return f"{self._session.target.kubectl} --namespace {self.namespace} {arguments}"

    # --- what the cluster serves -------------------------------------------------------------------------------------

    def version(self) -> str:
        """Return the version of the server, as in `v1.36.2`."""
        return str(self._session.request("GET", "/version")["gitVersion"])

    def served_versions(self, group: str) -> tuple[str, ...]:
        """Return the versions of an API group, the preferred one first; () where the cluster has no such group.

        The server is asked once.
        """
        with self._lock:
            if group not in self._versions:
                answer = self._discover(f"/apis/{group}" if group else "/api")
                preferred = (answer.get("preferredVersion") or {}).get("version")
                versions = []
                for entry in answer.get("versions") or ():
                    version = entry if isinstance(entry, str) else entry["version"]
                    versions.append(version)
                versions.sort(key=lambda version: version != preferred)
                self._versions[group] = tuple(versions)
            return self._versions[group]

    def resource(self, api_version: str, kind: str) -> Resource:
        """Return the resource of a kind. Raises RefusedError when the cluster does not serve that kind.

        The server is asked once for each apiVersion, and not at all for the kinds that every cluster serves.
        """
        key = (api_version, kind)
        with self._lock:
            if key not in self._resources:
                self._discover_resources(api_version)
            if key in self._resources:
                return self._resources[key]
            self._versions.pop(api_version.rpartition("/")[0], None)  # the group may have been installed since
        raise RefusedError(self._unknown_kind(api_version, kind))

    def _discover_resources(self, api_version: str) -> None:
        for entry in self._discover(api_path(api_version)).get("resources") or ():
            if "/" in entry["name"]:
                continue  # a subresource, as pods/log
            resource = Resource(api_version, entry["kind"], entry["name"], bool(entry["namespaced"]))
            self._resources[api_version, resource.kind] = resource

    def _discover(self, path: str) -> Object:
        try:
            return self._session.request("GET", path)
        except ApiError as error:
            if error.status != 404:
                raise
            return {}

    def _unknown_kind(self, api_version: str, kind: str) -> str:
        group, _, version = api_version.rpartition("/")
        versions = self.served_versions(group)
        if not versions:
            why = f"the cluster has no API group {group}: is its operator installed?"
        elif version not in versions:
            why = f"the cluster serves {group or 'the core group'} as {', '.join(versions)}"
        else:
            kinds = sorted(known for known_version, known in self._resources if known_version == api_version)
            why = f"its kinds are {', '.join(kinds)}"
        command = self.kubectl_command("api-resources")
        return f"{self.where}: there is no kind {kind} of {api_version}: {why}. Try `{command}`"

    def is_allowed(self, verb: str, group: str, resource: str, subresource: str = "") -> bool:
        """Ask whether we may do this to all objects of a resource (`pods`, `nodes`): a SelfSubjectAccessReview."""
        attributes = {"verb": verb, "resource": resource}
        if group:
            attributes["group"] = group
        if subresource:
            attributes["subresource"] = subresource
        is_cluster_wide = any(known.plural == resource and not known.namespaced for known in BUILT_IN.values())
        if not is_cluster_wide:
            attributes["namespace"] = self.namespace
        review = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": attributes},
        }
        answer = self._session.request("POST", ACCESS_REVIEWS.path(None), body=review)
        return bool((answer.get("status") or {}).get("allowed"))

    # --- objects -----------------------------------------------------------------------------------------------------

    def create(
        self, resource: Resource, obj: Mapping[str, Any], *, dry_run: bool = False, strict: bool = False
    ) -> Object:
        """Create an object and return it.

        The request is repeated only after an answer which says that nothing was done: 429, or a quota that another
        request was changing. With `strict` the server refuses fields that it does not know, instead of dropping them.

        Raises AwayError when it is unknown whether the object exists now.
        """
        query: Query = []
        if dry_run:
            query.append(("dryRun", "All"))
        if strict:
            query.append(("fieldValidation", "Strict"))
        return self._session.request("POST", self._path(resource), query=query, body=obj, repeat=dry_run)

    def get(self, resource: Resource, name: str) -> Object:
        return self._session.request("GET", self._path(resource, name))

    def list(
        self, resource: Resource, *, labels: str = "", fields: str = "", everywhere: bool = False
    ) -> tuple[Objects, str]:
        """Return all objects, with apiVersion and kind, and the resourceVersion from which a watch goes on.

        `labels` and `fields` are selectors. With `everywhere` the objects of all namespaces are listed.
        """
        path = resource.path(None if everywhere else self.namespace)
        query: Query = []
        if labels:
            query.append(("labelSelector", labels))
        if fields:
            query.append(("fieldSelector", fields))
        for _attempt in range(RELISTS):
            try:
                return self._list_pages(resource, path, query)
            except Expired:
                continue
        why = f"the server drops the pages of a list before they are read ({RELISTS} attempts)"
        raise AwayError(f"{self.where}: {resource.plural} cannot be listed: {why}")

    def _list_pages(self, resource: Resource, path: str, query: Query) -> tuple[Objects, str]:
        objects: Objects = []
        continue_token = ""
        while True:
            page_query = [*query, ("limit", str(PAGE))]
            if continue_token:
                page_query.append(("continue", continue_token))
            answer = self._session.request("GET", path, query=page_query)
            for item in answer.get("items") or ():
                # the items of a list do not carry these two
                objects.append({"apiVersion": resource.api_version, "kind": resource.kind, **item})
            metadata = answer.get("metadata") or {}
            continue_token = str(metadata.get("continue") or "")
            if not continue_token:
                return objects, str(metadata.get("resourceVersion") or "")

    def patch(self, resource: Resource, name: str, patch: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch and return the object."""
        merge = "application/merge-patch+json"
        return self._session.request("PATCH", self._path(resource, name), body=patch, content_type=merge)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        propagation: str = "Background",
        uid: str | None = None,
        version: str | None = None,
    ) -> None:
        """Delete an object, if it is still there.

        With `uid`, an object of another uid that has the name by now stays, and that is no error. With `version`, its
        resourceVersion, the object is deleted only if it was not changed since; else ApiError is raised.
        """
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        preconditions = {}
        if uid is not None:
            preconditions["uid"] = uid
        if version is not None:
            preconditions["resourceVersion"] = version
        if preconditions:
            body["preconditions"] = preconditions
        try:
            self._session.request("DELETE", self._path(resource, name), body=body)
        except ApiError as error:
            is_gone = error.status == 404
            is_another = uid is not None and error.status == 409 and _UID_DIFFERS.search(error.message)
            if not is_gone and not is_another:
                raise

    # --- streams -----------------------------------------------------------------------------------------------------

    @contextmanager
    def watch(
        self, resource: Resource, *, labels: str, version: str, timeout_s: float, silence_s: float | None = None
    ) -> Iterator[Iterator[Object]]:
        """Stream the events after `version`, {"type", "object"}, BOOKMARK among them, until the server ends it.

        Entering sends the request, once. Raises Expired, then or later, when the version is too old, and AwayError when
        the stream breaks or is silent for `silence_s` seconds (default: `timeout_s` + 30).
        """
        if silence_s is None:
            silence_s = timeout_s + 30
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", f"{timeout_s:.0f}"),
        ]
        if labels:
            query.append(("labelSelector", labels))
        with self._session.stream(self._path(resource), query, silence_s) as chunks:
            yield self._events(chunks)

    def _events(self, chunks: Iterable[bytes]) -> Iterator[Object]:
        for line in lines(chunks):
            try:
                event: Object = json.loads(line)
            except ValueError:
                raise AwayError(f"{self.where}: a watch answers with a line that is not an event") from None
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
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Stream the log of a container as it comes, each line behind its time stamp.

        `since` is an RFC 3339 time, `previous` asks for the log of the start before the current one.

        Entering sends the request, once. Raises ApiError then (400: the container waits to start; 404: it is gone), and
        AwayError then or while the log is read.
        """
        query = [("container", container), ("timestamps", "true")]
        if follow:
            query.append(("follow", "true"))
        if previous:
            query.append(("previous", "true"))
        if since:
            query.append(("sinceTime", since))
        silence_s = LOG_SILENCE_S if follow else READ_S
        return self._session.stream(PODS.path(self.namespace, pod, "log"), query, silence_s)

    def _path(self, resource: Resource, name: str = "") -> str:
        return resource.path(self.namespace, name)


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the whole lines of a stream that is cut anywhere, without their newlines.

    Empty lines are left out, and so is a last line without a newline.
    """
    unfinished = bytearray()
    for chunk in chunks:
        *finished, rest = chunk.split(b"\n")
        for line in finished:
            unfinished += line
            if unfinished:
                yield bytes(unfinished)
            unfinished.clear()
        unfinished += rest
