"""ResourceQuota: limits of what the objects of a namespace use together."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from tests.fake_kubernetes.api.errors import forbidden
from tests.fake_kubernetes.store.quantities import quantity, written
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree

BY_CONTAINER = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "cpu", "memory")


def pod_usage(pod: Tree) -> dict[str, Fraction]:
    """Return what a pod uses, by the names in quotas: `requests.nvidia.com/gpu`, `limits.cpu`, `cpu`, `pods`."""
    used = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for field in ("requests", "limits"):
        total: dict[str, Fraction] = {}
        for container in pod["spec"].get("containers", []):
            for name, text in (container.get("resources", {}).get(field) or {}).items():
                total[name] = total.get(name, Fraction(0)) + quantity(text)
        for container in pod["spec"].get("initContainers", []):
            for name, text in (container.get("resources", {}).get(field) or {}).items():
                total[name] = max(total.get(name, Fraction(0)), quantity(text))
        used |= {f"{field}.{name}": value for name, value in total.items()}
        if field == "requests":
            used |= {name: value for name, value in total.items() if name in {"cpu", "memory"}}
    return used


class Quota:
    """An admission function of the store: raises KubeError 403 for an object beyond a quota."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, plural: str, obj: Tree) -> None:
        namespace = obj["metadata"].get("namespace", "")
        if not namespace or plural == "resourcequotas":
            return
        kind = self._store.kinds[plural]
        wanted = pod_usage(obj) if plural == "pods" else {f"count/{kind.resource}": Fraction(1)}
        for quota in self._store.list("resourcequotas", namespace)[0]:
            self._check(quota, plural, obj, wanted)

    def _check(self, quota: Tree, plural: str, obj: Tree, wanted: dict[str, Fraction]) -> None:
        hard, resource, name = (
            quota["spec"].get("hard", {}),
            self._store.kinds[plural].resource,
            obj["metadata"]["name"],
        )
        if plural == "pods" and (missing := [one for one in hard if one in BY_CONTAINER and one not in wanted]):
            unsaid = ", ".join(container["name"] for container in obj["spec"]["containers"])
            why = "; ".join(f"{one} for: {unsaid}" for one in sorted(missing))
            raise forbidden(resource, name, f"failed quota: {quota['metadata']['name']}: must specify {why}")
        if not wanted.keys() & hard.keys():
            return
        used = self.used(quota)
        beyond = [one for one in sorted(hard) if one in wanted and used[one] + wanted[one] > quantity(hard[one])]
        if beyond:
            amounts = [
                ",".join(f"{one}={written(values[one], str(hard[one]))}" for one in beyond) for values in (wanted, used)
            ]
            limited = ",".join(f"{one}={hard[one]}" for one in beyond)
            why = f"exceeded quota: {quota['metadata']['name']}, requested: {amounts[0]}, used: {amounts[1]}"
            raise forbidden(resource, name, f"{why}, limited: {limited}")

    def used(self, quota: Tree) -> dict[str, Fraction]:
        """Return the used amount of each resource that the quota limits."""
        namespace = quota["metadata"]["namespace"]
        total = dict.fromkeys(quota["spec"].get("hard", {}), Fraction(0))
        for pod in self._store.list("pods", namespace)[0]:
            if pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
                _add(total, pod_usage(pod).items())
        for key, kind in self._store.kinds.items():
            if f"count/{kind.resource}" in total and key != "pods":
                total[f"count/{kind.resource}"] = Fraction(len(self._store.list(key, namespace)[0]))
        return total

    def refresh(self) -> None:
        """Write the used amounts into the status of each quota."""
        for quota in self._store.list("resourcequotas")[0]:
            hard, meta = quota["spec"].get("hard", {}), quota["metadata"]
            used = {name: written(value, str(hard[name])) for name, value in self.used(quota).items()}
            self._store.patch_status("resourcequotas", meta["namespace"], meta["name"], {"hard": hard, "used": used})


def _add(total: dict[str, Fraction], amounts: Iterable[tuple[str, Fraction]]) -> None:
    for name, value in amounts:
        if name in total:
            total[name] += value
