"""The kinds of objects that the server knows, as its discovery lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """One resource of one API group. `versions` serve it, the preferred one first."""

    group: str
    versions: tuple[str, ...]
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()  # "status", "log", …
    stored: bool = True  # False: it answers a POST and stores nothing, as a review does
    custom: bool = False  # defined by a CustomResourceDefinition
    controller: Callable[..., Any] | None = None  # of a custom kind: what makes pods of its objects

    @property
    def api_version(self) -> str:
        return self.served_as(self.versions[0])

    def served_as(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    @property
    def resource(self) -> str:
        """The name in errors: `pods`, `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """The name in validation errors: `Pod`, `Job.batch`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def verbs(self) -> list[str]:
        if not self.stored:
            return ["create"]
        return ["create", "delete", "get", "list", "patch", "watch"]


def _review(kind: str, group: str, *, namespaced: bool = False) -> Kind:
    return Kind(group, ("v1",), kind, kind.lower() + "s", namespaced, stored=False)


_V1, _STATUS = ("v1",), ("status",)
BUILT_IN = (
    Kind("", _V1, "Pod", "pods", True, ("po",), ("status", "log", "eviction")),
    Kind("", _V1, "Service", "services", True, ("svc",), _STATUS),
    Kind("", _V1, "Secret", "secrets"),
    Kind("", _V1, "ConfigMap", "configmaps", True, ("cm",)),
    Kind("", _V1, "Event", "events", True, ("ev",)),
    Kind("", _V1, "Node", "nodes", False, ("no",), _STATUS),
    Kind("", _V1, "Namespace", "namespaces", False, ("ns",), _STATUS),
    Kind("", _V1, "PersistentVolumeClaim", "persistentvolumeclaims", True, ("pvc",), _STATUS),
    Kind("", _V1, "PersistentVolume", "persistentvolumes", False, ("pv",), _STATUS),
    Kind("", _V1, "ResourceQuota", "resourcequotas", True, ("quota",), _STATUS),
    Kind("", _V1, "LimitRange", "limitranges", True, ("limits",)),
    Kind("", _V1, "ServiceAccount", "serviceaccounts", True, ("sa",)),
    Kind("batch", _V1, "Job", "jobs", True, (), _STATUS),
    Kind("storage.k8s.io", _V1, "StorageClass", "storageclasses", False, ("sc",)),
    Kind("scheduling.k8s.io", _V1, "PriorityClass", "priorityclasses", False, ("pc",)),
    Kind("rbac.authorization.k8s.io", _V1, "Role", "roles"),
    Kind("rbac.authorization.k8s.io", _V1, "RoleBinding", "rolebindings"),
    Kind(
        "apiextensions.k8s.io", _V1, "CustomResourceDefinition", "customresourcedefinitions", False, ("crd",), _STATUS
    ),
    _review("SelfSubjectAccessReview", "authorization.k8s.io"),
    _review("SelfSubjectReview", "authentication.k8s.io"),
)
