"""Pod Security Standards, for namespaces with the label pod-security.kubernetes.io/enforce."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fake_kubernetes.api.errors import forbidden
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree

LABEL = "pod-security.kubernetes.io/enforce"
BASELINE_ADDS = {
    *(
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
    ),
    *("SETPCAP", "SETUID", "SYS_CHROOT"),
}
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


class PodSecurity:
    """An admission function of the store: raises KubeError 403 for pods that violate the namespace's level."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, plural: str, obj: Tree) -> None:
        if plural != "pods":
            return
        labels = self._store.get("namespaces", "", obj["metadata"]["namespace"])["metadata"].get("labels", {})
        level = labels.get(LABEL, "privileged")
        found = list(violations(obj["spec"], level))
        if found:
            version = labels.get(f"{LABEL}-version", "latest")
            why = f'violates PodSecurity "{level}:{version}": {", ".join(found)}'
            raise forbidden("pods", obj["metadata"]["name"], why)


def violations(spec: Tree, level: str) -> Iterator[str]:
    """Yield violations in the order and with the messages of the real admission controller."""
    if level == "privileged":
        return
    restricted, containers = level == "restricted", [*spec.get("initContainers", []), *spec.get("containers", [])]
    if not restricted:
        yield from _added(containers, BASELINE_ADDS, "non-default capabilities")
    if shared := [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]:
        yield f"host namespaces ({', '.join(shared)})"
    volumes = spec.get("volumes", [])
    if not restricted and (paths := [volume["name"] for volume in volumes if "hostPath" in volume]):
        yield f"hostPath volumes ({_named('volume', paths)})"
    if privileged := [one["name"] for one in containers if _context(one).get("privileged")]:
        yield f"privileged ({_named('container', privileged)} must not set securityContext.privileged=true)"
    if restricted:
        yield from _restricted(spec, containers, volumes)


def _restricted(spec: Tree, containers: list[Tree], volumes: list[Tree]) -> Iterator[str]:
    if names := [one["name"] for one in containers if _context(one).get("allowPrivilegeEscalation") is not False]:
        how = "must set securityContext.allowPrivilegeEscalation=false"
        yield f"allowPrivilegeEscalation != false ({_named('container', names)} {how})"
    if names := [one["name"] for one in containers if "ALL" not in _capabilities(one, "drop")]:
        how = 'must set securityContext.capabilities.drop=["ALL"]'
        yield f"unrestricted capabilities ({_named('container', names)} {how})"
    else:
        yield from _added(containers, {"NET_BIND_SERVICE"}, "unrestricted capabilities")
    for volume in volumes:
        for kind in set(volume) - VOLUMES - {"name"}:
            yield f'restricted volume types (volume "{volume["name"]}" uses restricted volume type "{kind}")'
    pod = spec.get("securityContext", {})
    if names := _unset(pod, containers, lambda context: context.get("runAsNonRoot")):
        how = "must set securityContext.runAsNonRoot=true"
        yield f"runAsNonRoot != true (pod or {_named('container', names)} {how})"
    if roots := [one["name"] for one in containers if _context(one).get("runAsUser", pod.get("runAsUser")) == 0]:
        yield f"runAsUser=0 ({_named('container', roots)} must not set runAsUser=0)"
    kinds = {"RuntimeDefault", "Localhost"}
    if names := _unset(pod, containers, lambda context: context.get("seccompProfile", {}).get("type") in kinds):
        how = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
        yield f"seccompProfile (pod or {_named('container', names)} {how})"


def _context(container: Tree) -> Tree:
    return container.get("securityContext") or {}


def _capabilities(container: Tree, which: str) -> list[str]:
    return (_context(container).get("capabilities") or {}).get(which) or []


def _unset(pod: Tree, containers: list[Tree], good) -> list[str]:  # type: ignore[no-untyped-def]
    """Return the containers for which neither they nor the pod have a good setting."""
    return [one["name"] for one in containers if not good({**pod, **_context(one)})]


def _added(containers: list[Tree], allowed: set[str], what: str) -> Iterator[str]:
    for container in containers:
        if extra := [f'"{name}"' for name in _capabilities(container, "add") if name not in allowed]:
            how = f"must not include {', '.join(extra)} in securityContext.capabilities.add"
            yield f'{what} (container "{container["name"]}" {how})'


def _named(word: str, names: list[str]) -> str:
    return f"{word}{'s' if len(names) > 1 else ''} " + ", ".join(f'"{name}"' for name in names)
