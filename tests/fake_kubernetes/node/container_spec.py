"""The specification of a container for the runtime: command, environment, mounts, host names and user."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fake_kubernetes.node.environment import Misconfigured, expand
from tests.fake_kubernetes.store.quantities import quantity
from tests.fake_kubernetes.store.trees import Tree

HOSTS = "/run/cluster"  # where the folder with the file of host names is mounted
ROOT = Path(__file__).resolve().parents[3]
ROOT_ASKED = "container's runAsUser breaks non-root policy"
DEFAULT_MESSAGE_PATH = "/dev/termination-log"


def host_name(pod: Tree) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def user_of(pod: Tree, container: Tree, image_user: int) -> dict[str, Any]:
    """Return uid, gid and groups. Raises Misconfigured if it is root and must not be."""
    context = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    meta, asked = pod["metadata"], context.get("runAsUser")
    uid = image_user if asked is None else asked
    if context.get("runAsNonRoot") and uid == 0:
        where = f'(pod: "{meta["name"]}_{meta["namespace"]}({meta["uid"]})", container: {container["name"]})'
        image_is_root = "container has runAsNonRoot and image will run as root"
        raise Misconfigured(f"{image_is_root if asked is None else ROOT_ASKED} {where}")
    groups = [*context.get("supplementalGroups", []), *([context["fsGroup"]] if "fsGroup" in context else [])]
    return {
        "uid": uid,
        "gid": context.get("runAsGroup", 0),
        "groups": groups,
        "read_only_root": bool(context.get("readOnlyRootFilesystem")),
        "no_new_privileges": context.get("allowPrivilegeEscalation") is False,
    }


def mounts_of(container: Tree, places: Mapping[str, Path], values: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the mounts, and create missing subPaths. Raises Misconfigured for an unknown volume."""
    mounts = []
    for entry in container.get("volumeMounts", []):
        if entry["name"] not in places:
            raise Misconfigured(f'volume "{entry["name"]}" not found')
        source = places[entry["name"]]
        inside = entry.get("subPath") or expand(entry.get("subPathExpr", ""), values)
        if inside:
            source = source / inside
            if not source.exists():
                source.mkdir(parents=True)
        mounts.append(
            {
                "source": str(source),
                "target": entry["mountPath"].rstrip("/") or "/",
                "read_only": bool(entry.get("readOnly")),
            }
        )
    return mounts


def specification(
    pod: Tree, container: Tree, folder: Path, places: Mapping[str, Path], image: Mapping[str, str],
    values: Mapping[str, str], hosts: Path, user: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Return the specification without its id, and create `folder` for this start of the container.

    `user` comes from user_of().
    """
    for name in ("root", "tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "tmp").chmod(0o1777)
    message = folder / "termination-log"
    message.touch()
    message.chmod(0o666)
    env = {**image, "HOSTNAME": host_name(pod), **values}
    env.setdefault("HOME", "/" if user["uid"] else "/root")
    command = [expand(word, env) for word in container.get("command", [])]
    arguments = [expand(word, env) for word in container.get("args", [])]
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    private = [
        {"source": str(folder / "tmp"), "target": "/tmp", "read_only": user["read_only_root"]},
        {"source": str(hosts), "target": HOSTS, "read_only": True},
    ]
    written = {"source": str(message), "target": container.get("terminationMessagePath", DEFAULT_MESSAGE_PATH)}
    return {
        **user,
        "argv": command + arguments or ["sleep", "infinity"],
        "env": env,
        "cwd": container.get("workingDir") or "/",
        "folder": str(folder / "root"),
        "hostname": host_name(pod),
        "hosts": f"{HOSTS}/hosts",
        "memory": int(quantity(limit)) if limit else 0,
        "mounts": [*private, *software_mounts(env), *mounts_of(container, places, values), written],
        "hidden": [str(ROOT)],
    }


def software_mounts(env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return mounts of the software that an image would hold: this Python and the programs on PATH."""
    shown = {Path(sys.prefix), Path(sys.base_prefix)}
    for word in env.get("PATH", "").split(":"):
        path = Path(word)
        if path.is_dir() and path.is_absolute():
            shown.add(path.parent if path.name == "bin" and len(path.parts) > 2 else path)
    system = {"bin", "sbin", "usr", "lib", "lib64", "etc", "var"}  # a container has these anyway
    kept = sorted(str(path) for path in shown if len(path.parts) > 1 and path.parts[1] not in system)
    return [{"source": path, "target": path, "read_only": True} for path in kept]


def without_namespaces(pod: Tree, spec: dict[str, Any]) -> dict[str, Any]:
    """Rewrite a specification for a machine that forbids Linux namespaces.

    In arguments and values each mount point becomes the mounted path.
    Each name of a pod of the same service becomes this machine's address.
    """
    mounts = {m["target"]: m["source"] for m in spec["mounts"] if m["source"] != m["target"] and m["target"] != HOSTS}
    ordered = sorted(mounts, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(re.escape(target) for target in ordered)})(?=$|[/\W])")

    service, home = pod["spec"].get("subdomain") or "a service", pod["metadata"]["namespace"]
    peer = re.compile(
        rf"(?<![\w.-])[a-z0-9-]+\.{re.escape(service)}(\.{re.escape(home)}(\.svc(\.cluster\.local)?)?)?(?![\w-])"
    )

    def text(value: str) -> str:
        return peer.sub("127.0.0.1", pattern.sub(lambda match: mounts[match[1]], value))

    cwd = text(spec["cwd"])
    if not Path(cwd).is_dir() and cwd == spec["cwd"]:
        cwd = spec["folder"]
    env = {name: value if name == "PATH" else text(value) for name, value in spec["env"].items()}
    return spec | {"argv": [text(word) for word in spec["argv"]], "env": env, "cwd": cwd}
