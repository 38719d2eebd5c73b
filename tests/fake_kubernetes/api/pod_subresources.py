"""Subresources of pods: log and eviction."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from tests.fake_kubernetes.api.errors import KubeError, bad_request
from tests.fake_kubernetes.api.messages import Answer, Request, Stream
from tests.fake_kubernetes.api.resource_ref import ResourceRef
from tests.fake_kubernetes.node.logs import LogFile, LogSource, Record
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree, timestamp, unix

KUBELET = "127.0.0.1:10250"
OPTIONS = ("container", "follow", "previous", "sinceTime", "timestamps")


def log(store: Store, logs: LogSource, ref: ResourceRef, request: Request) -> Answer | Stream:
    """Stream a container's log from its kubelet.

    Answers 204 for a pod without a node, 400 before the container has started, 500 if the kubelet is down.
    """
    pod = store.get("pods", ref.home, ref.name)
    container = _container(pod, request.query.get("container", ""))
    since = _since(request)
    if not pod["spec"].get("nodeName"):
        return Answer(204)
    outages = logs.outages(pod["spec"]["nodeName"])
    if logs.unreachable(pod["spec"]["nodeName"]):
        options = {name: request.query[name] for name in OPTIONS if name in request.query and name != "container"}
        url = f"https://{KUBELET}/containerLogs/{ref.home}/{ref.name}/{container}"
        url += f"?{urlencode(options)}" if options else ""
        raise KubeError(500, f'Get "{url}": dial tcp {KUBELET}: connect: connection refused')
    restart = _start(pod, container, previous=_yes(request, "previous"))
    file = logs.find(pod["metadata"]["uid"], container, restart)
    lines = LogRequest(request, since).select(file) if file else iter(())
    return Stream("text/plain", logs.connected(pod["spec"]["nodeName"], outages, lines))


def _yes(request: Request, name: str) -> bool:
    return request.query.get(name) in {"true", "1", "True"}


def _container(pod: Tree, asked: str) -> str:
    spec = pod["spec"]
    if asked not in [each["name"] for each in (*spec["containers"], *spec.get("initContainers", ()))]:
        raise bad_request(f"container {asked} is not valid for pod {pod['metadata']['name']}")
    return asked


def _start(pod: Tree, container: str, *, previous: bool) -> int:
    """Return the number of the requested start of the container; 400 with the kubelet's message if there is none."""
    subject = f'container "{container}" in pod "{pod["metadata"]["name"]}"'
    status = pod.get("status", {})
    rows = [*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])]
    row = next((row for row in rows if row["name"] == container), None)
    if row is None:
        raise bad_request(f"{subject} is waiting to start: ContainerCreating")
    state, last = row.get("state", {}), row.get("lastState", {}).get("terminated")
    count = int(row.get("restartCount", 0))
    if previous:
        if not last:
            raise bad_request(f"previous terminated {subject} not found")
        return count if "waiting" in state else max(0, count - 1)
    if "running" in state or "terminated" in state or last:
        return count
    raise bad_request(f"{subject} is waiting to start: {state.get('waiting', {}).get('reason', 'ContainerCreating')}")


def _since(request: Request) -> float:
    """Return sinceTime as whole Unix seconds: the API server passes times on with that precision."""
    text = request.query.get("sinceTime", "")
    return float(int(unix(text))) if text else 0.0


class LogRequest:
    """The options of one log request, applied to the lines of a log."""

    def __init__(self, request: Request, since: float) -> None:
        self._follow = _yes(request, "follow")
        self._timestamps = _yes(request, "timestamps")
        self._since = since

    def select(self, file: LogFile) -> Iterator[bytes | None]:
        """Yield the selected bytes; None after a while without new lines."""
        return self.given(file.records(follow=self._follow))

    def given(self, records: Iterator[Record | None]) -> Iterator[bytes | None]:
        """Of these records."""
        at_start = True
        for record in records:
            if record is None:
                yield None
                continue
            begins, at_start = at_start, record.text.endswith(b"\n")
            if self._since and unix(record.timestamp) < self._since:
                continue
            text = record.text
            if self._timestamps and begins:
                text = record.timestamp.encode() + b" " + text
            yield text


def evict(store: Store, ref: ResourceRef, request: Request) -> Answer:
    """What the eviction API does: a condition that says so, then an ordinary deletion."""
    options = (request.json() if request.body.strip() else {}).get("deleteOptions") or {}

    def mark(pod: Tree) -> None:
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        row = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        conditions.append(row | {"message": "Eviction API: evicting", "lastTransitionTime": timestamp()})

    pod = store.get("pods", ref.home, ref.name)
    if pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
        store.change("pods", ref.home, ref.name, mark)
    store.delete("pods", ref.home, ref.name, grace_s=options.get("gracePeriodSeconds"))
    return Answer(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
