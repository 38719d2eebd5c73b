"""Kinds of objects as an API server serves them, and the paths of their objects."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Resource:
    """A kind of objects: `batch/v1`, `Job`, `jobs`."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group, as in `batch`. The core group, which has pods, is empty."""
        return self.api_version.rpartition("/")[0]

    @property
    def kubectl(self) -> str:
        """The name that kubectl takes: `job.batch`, `pod`."""
        return f"{self.kind}.{self.group}".lower().rstrip(".")

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the path of one object, or of all objects.

        `namespace` None stands for all namespaces.
        """
        parts = [api_path(self.api_version)]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        for part in (name, subresource):
            if part:
                parts.append(quote(part, safe=""))
        return "/".join(parts)


def api_path(api_version: str) -> str:
    """Return the path of a version of a group: /api/v1, /apis/batch/v1."""
    root = "apis" if "/" in api_version else "api"
    return f"/{root}/{quote(api_version)}"


PODS = Resource("v1", "Pod", "pods")
SERVICES = Resource("v1", "Service", "services")
SECRETS = Resource("v1", "Secret", "secrets")
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
EVENTS = Resource("v1", "Event", "events")
CLAIMS = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
QUOTAS = Resource("v1", "ResourceQuota", "resourcequotas")
NODES = Resource("v1", "Node", "nodes", namespaced=False)
NAMESPACES = Resource("v1", "Namespace", "namespaces", namespaced=False)
JOBS = Resource("batch/v1", "Job", "jobs")
ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False)

# Every cluster serves these kinds, so they are known without a request.
BUILT_IN = {
    (resource.api_version, resource.kind): resource
    for resource in (
        PODS,
        SERVICES,
        SECRETS,
        CONFIG_MAPS,
        EVENTS,
        CLAIMS,
        QUOTAS,
        NODES,
        NAMESPACES,
        JOBS,
        ACCESS_REVIEWS,
    )
}
