"""Finds the cluster and namespace that a platform means.

They stand in kubeconfig files, which are merged as kubectl merges them; inside a pod they are those of its service
account. This module only reads files and needs only PyYAML.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from platforms.job import ConfigError, RefusedError

if TYPE_CHECKING:
    from platforms.config.schema import Platform

IN_CLUSTER = "in-cluster"  # the name of a context for the pod's own service account
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT = "~/.kube/config"
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast, where it was built in


@dataclass(frozen=True)
class ClusterTarget:
    """The namespace of a cluster that a platform asks for.

    `contexts` are patterns, as in `kind-*`. Of the contexts that match, the current one is preferred.
    """

    kubeconfig: str | None = None
    context: str | None = None
    contexts: tuple[str, ...] = ()
    namespace: str | None = None

    @classmethod
    def of(cls, platform: Platform) -> ClusterTarget:
        keys = platform.kubernetes
        return cls(keys.kubeconfig, keys.context, keys.contexts, keys.namespace)


@dataclass(frozen=True)
class ResolvedTarget:
    """The namespace of a cluster that was found: the entries of its context in the kubeconfig files.

    `source` is the file that defines the context. A command for it begins with `kubectl`.
    """

    source: str
    context: str
    namespace: str
    kubectl: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    user_name: str = ""

    @property
    def where(self) -> str:
        return f"cluster {self.context}, namespace {self.namespace}"

    @property
    def server(self) -> str:
        return str(self.cluster["server"]).rstrip("/")


def contexts(kubeconfig: str | None = None, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the names of all contexts, in the order of the files. Raises ConfigError for an unreadable file."""
    return tuple(_merged(_files(kubeconfig, environ)).contexts)


def context_of(target: ClusterTarget, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the context that a target names, or None where there is none, or no file that can be read."""
    try:
        return _choose_context(target, _merged(_files(target.kubeconfig, environ)))
    except ConfigError:
        return None


def resolve(target: ClusterTarget, environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> ResolvedTarget:
    """Find the cluster of a target, its namespace and our user there. `account`: the folder of a pod's own account.

    Raises ConfigError, which names the file and what is wrong with it, and RefusedError, which lists the contexts that
    exist.
    """
    files = _files(target.kubeconfig, environ)
    config = _merged(files)
    context = _choose_context(target, config)
    if context is not None:
        return _resolved(target, config, context)
    names_no_context = target.context in (None, "", IN_CLUSTER) and not target.contexts
    if names_no_context and not config.contexts:
        in_cluster = _own_account(target, environ, account)
        if in_cluster is not None:
            return in_cluster
    raise _no_context(target, config, files)


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    value: Mapping[str, Any]
    source: Path


@dataclass(frozen=True)
class _Config:
    contexts: Mapping[str, _Entry]
    clusters: Mapping[str, _Entry]
    users: Mapping[str, _Entry]
    current: str


def _files(kubeconfig: str | None, environ: Mapping[str, str]) -> list[Path]:
    """Return the files that exist of: the one that is named, else those of $KUBECONFIG, else ~/.kube/config."""
    if kubeconfig:
        named = [kubeconfig]
    else:
        named = [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = [Path(part).expanduser() for part in named or [DEFAULT]]
    existing = [path for path in paths if _is_file(path)]
    if named and not existing:
        missing = ", ".join(map(str, paths))
        if kubeconfig:
            raise ConfigError([f"{missing}: there is no such file; `kubeconfig:` names it: name another one"])
        raise ConfigError([f"{missing}: there is no such file; $KUBECONFIG names it: correct or unset it"])
    return existing


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its folder is closed to us
        return True  # reading it then raises an error that says so


def _merged(files: Sequence[Path]) -> _Config:
    """Merge the files as kubectl does: for each entry the first file that has it wins."""
    entries: dict[str, dict[str, _Entry]] = {"contexts": {}, "clusters": {}, "users": {}}
    current = ""
    for path in files:
        config = _read(path)
        current = current or str(config.get("current-context") or "")
        for kind, merged in entries.items():
            for name, value in _named(path, config, kind).items():
                merged.setdefault(name, _Entry(value, path))
    return _Config(entries["contexts"], entries["clusters"], entries["users"], current)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        config = yaml.load(path.read_bytes(), Loader=_Loader)
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    except (yaml.YAMLError, ValueError) as error:  # PyYAML raises ValueError for an impossible date
        problem = getattr(error, "problem", None) or "it is not text"
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError([f"{path}{line}: not valid YAML ({problem}): correct it, or name another file"]) from None
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise ConfigError([f"{path}: not a kubeconfig: it has no keys and values at the top"])
    return config


def _named(path: Path, config: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    """Return the entries of `contexts`, `clusters` or `users` by name: `[{name: a, context: {…}}]` as {a: {…}}."""
    singular = kind[:-1]
    malformed = ConfigError([f"{path}: {kind}: not a kubeconfig: each entry needs a name and `{singular}: {{…}}`"])
    entries = config.get(kind) or []
    if not isinstance(entries, list):
        entries = [entries]
    by_name: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or "name" not in entry:
            raise malformed
        value = entry.get(singular) or {}
        if not isinstance(value, dict):
            raise malformed
        by_name.setdefault(str(entry["name"]), value)
    return by_name


# --- choosing --------------------------------------------------------------------------------------------------------


def _choose_context(target: ClusterTarget, config: _Config) -> str | None:
    if target.context:
        return target.context if target.context in config.contexts else None
    if target.contexts:
        matching: list[str] = []
        for pattern in target.contexts:
            matching += fnmatch.filter(config.contexts, pattern)
        if config.current in matching:
            return config.current
        return matching[0] if matching else None
    return config.current if config.current in config.contexts else None


def _no_context(target: ClusterTarget, config: _Config, files: Sequence[Path]) -> ConfigError | RefusedError:
    """Return the error for a target that names no existing context."""
    if not files:
        advice = "name one (`kubeconfig:`, $KUBECONFIG); inside a cluster the pod's own service account is used"
        return ConfigError([f"{DEFAULT}: there is no kubeconfig: {advice}"])
    where = ", ".join(map(str, files))
    existing = ", ".join(config.contexts) or "none"
    if target.context:
        close = difflib.get_close_matches(target.context, config.contexts, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        return RefusedError(f"{where}: there is no context {target.context!r}{hint} There are: {existing}")
    if target.contexts:
        patterns = " or ".join(target.contexts)
        return RefusedError(f"{where}: no context matches {patterns}. There are: {existing}")
    if config.current:
        problem = f"current-context is {config.current!r}, and there is no such context"
    else:
        problem = "there is no current-context"
    advice = "choose one with `kubectl config use-context NAME`, or write `context: NAME`"
    return RefusedError(f"{where}: {problem}: {advice}. There are: {existing}")


def _resolved(target: ClusterTarget, config: _Config, context: str) -> ResolvedTarget:
    entry = config.contexts[context]
    where = f"{entry.source}: context {context!r}"
    cluster_name = str(entry.value.get("cluster") or "")
    cluster = config.clusters.get(cluster_name)
    if cluster is None or not cluster.value.get("server"):
        raise ConfigError([f"{where}: no server is given for its cluster {cluster_name!r}"])
    user_name = str(entry.value.get("user") or "")
    user = config.users.get(user_name)
    if user is None and user_name:
        raise ConfigError([f"{where}: there is no user {user_name!r}"])
    kubectl = ["kubectl"]
    if target.kubeconfig:
        kubectl += ["--kubeconfig", target.kubeconfig]
    kubectl += ["--context", context]
    return ResolvedTarget(
        source=str(entry.source),
        context=context,
        namespace=target.namespace or str(entry.value.get("namespace") or "default"),
        kubectl=shlex.join(kubectl),
        cluster=_with_absolute_paths(cluster),
        user=_with_absolute_paths(user) if user else {},
        user_name=user_name,
    )


def _with_absolute_paths(entry: _Entry) -> dict[str, Any]:
    """Resolve paths relative to the kubeconfig in which they stand: files, and the program that logs in."""
    value = dict(entry.value)
    folder = entry.source.absolute().parent
    for key in _PATHS:
        if value.get(key):
            value[key] = str(folder / str(value[key]))
    plugin = value.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
        value["exec"] = {**plugin, "command": str(folder / str(plugin["command"]))}
    return value


def _own_account(target: ClusterTarget, environ: Mapping[str, str], account: Path) -> ResolvedTarget | None:
    """Return the cluster of the pod in which this process runs, by its service account; None outside of a pod."""
    host = environ.get("KUBERNETES_SERVICE_HOST")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = account / "token"
    if not host or not token.is_file():
        return None
    own_namespace = ""
    namespace_file = account / "namespace"
    if namespace_file.is_file():
        own_namespace = namespace_file.read_text(encoding="utf-8").strip()
    if ":" in host:  # an IPv6 address
        host = f"[{host}]"
    return ResolvedTarget(
        source=str(account),
        context=IN_CLUSTER,
        namespace=target.namespace or own_namespace or "default",
        kubectl="kubectl",
        cluster={"server": f"https://{host}:{port}", "certificate-authority": str(account / "ca.crt")},
        user={"tokenFile": str(token)},
    )
