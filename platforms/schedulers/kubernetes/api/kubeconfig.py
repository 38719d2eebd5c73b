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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from platforms.config import yaml_lines
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
    user: Mapping[str, Any] = field(repr=False)

    @property
    def where(self) -> str:
        return f"cluster {self.context}, namespace {self.namespace}"

    @property
    def entry(self) -> str:
        """Where a person finds the context: `/home/me/.kube/config: context 'kind-kind'`."""
        return f"{self.source}: context {self.context!r}"

    @property
    def server(self) -> str:
        return str(self.cluster["server"]).rstrip("/")


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
    if names_no_context and not config.contexts and (account / "token").is_file():
        host = environ.get("KUBERNETES_SERVICE_HOST")
        if host:
            return _own_account(target, host, environ.get("KUBERNETES_SERVICE_PORT", "443"), account)
    raise _no_context(target, config, files)


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass
class _Config:
    """All files as one. `sources`: the file that defines a context."""

    contexts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    clusters: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    users: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    current: str = ""
    sources: dict[str, Path] = field(default_factory=dict)


def _files(kubeconfig: str | None, environ: Mapping[str, str]) -> list[Path]:
    """Return the files that exist of: the one that is named, else those of $KUBECONFIG, else ~/.kube/config."""
    if kubeconfig:
        named = [kubeconfig]
    else:
        named = [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = [Path(part).expanduser() for part in named or [DEFAULT]]
    # Path.exists raises for a folder that is closed to us.
    existing = [path for path in paths if os.path.exists(path)]  # noqa: PTH110
    if named and not existing:
        missing = ", ".join(map(str, paths))
        if kubeconfig:
            raise ConfigError([f"{missing}: there is no such file; `kubeconfig:` names it: name another one"])
        raise ConfigError([f"{missing}: there is no such file; $KUBECONFIG names it: correct or unset it"])
    return existing


def _merged(files: Sequence[Path]) -> _Config:
    """Merge the files as kubectl does: for each entry, and for current-context, the first file that has it wins.

    The client library's own merging takes the last current-context, so it could mean another cluster than kubectl.
    """
    merged = _Config()
    for path in files:
        config = _read(path)
        try:
            merged.current = merged.current or str(config.get("current-context") or "")
            for kind, entries in (("context", merged.contexts), ("cluster", merged.clusters), ("user", merged.users)):
                for entry in config.get(f"{kind}s") or []:
                    entries.setdefault(str(entry["name"]), _with_absolute_paths(dict(entry.get(kind) or {}), path))
        except (AttributeError, KeyError, TypeError, ValueError):
            need = "each of its contexts, clusters and users needs a name and `context: {…}`"
            raise ConfigError([f"{path}: not a kubeconfig: {need}"]) from None
        for name in merged.contexts:
            merged.sources.setdefault(name, path)
    return merged


def _read(path: Path) -> Any:
    try:
        text = yaml_lines.text_of(path)
        return yaml_lines.parse(text, lambda text: yaml.load(text, Loader=_Loader)) or {}
    except yaml_lines.YamlMistake as mistake:
        cure = "correct it, or name another file"
        raise ConfigError([f"{path}:{mistake.line}: {mistake.what}: {cure}"]) from None


def _with_absolute_paths(entry: dict[str, Any], path: Path) -> dict[str, Any]:
    """Resolve paths relative to the kubeconfig in which they stand."""
    folder = path.absolute().parent
    for key in _PATHS:
        if entry.get(key):
            entry[key] = str(folder / str(entry[key]))
    plugin = entry.get("exec")
    if plugin and os.sep in str(plugin.get("command")):
        entry["exec"] = {**plugin, "command": str(folder / str(plugin["command"]))}
    return entry


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
    source = str(config.sources[context])
    where = f"{source}: context {context!r}"
    cluster_name = str(entry.get("cluster") or "")
    cluster = config.clusters.get(cluster_name, {})
    if not cluster.get("server"):
        raise ConfigError([f"{where}: no server is given for its cluster {cluster_name!r}"])
    user_name = str(entry.get("user") or "")
    if user_name and user_name not in config.users:
        raise ConfigError([f"{where}: there is no user {user_name!r}"])
    kubectl = ["kubectl"]
    if target.kubeconfig:
        kubectl += ["--kubeconfig", target.kubeconfig]
    kubectl += ["--context", context]
    namespace = target.namespace or str(entry.get("namespace") or "default")
    user = config.users.get(user_name, {})
    return ResolvedTarget(source, context, namespace, shlex.join(kubectl), cluster, user)


def _own_account(target: ClusterTarget, host: str, port: str, account: Path) -> ResolvedTarget:
    """Return the cluster of the pod in which this process runs, by its service account."""
    namespace = target.namespace
    namespace_file = account / "namespace"
    if namespace is None and namespace_file.is_file():
        namespace = namespace_file.read_text(encoding="utf-8").strip()
    if ":" in host:  # an IPv6 address
        host = f"[{host}]"
    cluster = {"server": f"https://{host}:{port}", "certificate-authority": str(account / "ca.crt")}
    # A kubelet renews the token of a pod about once an hour, so the file is read again.
    user = {"tokenFile": str(account / "token")}
    return ResolvedTarget(str(account), IN_CLUSTER, namespace or "default", "kubectl", cluster, user)
