"""Which cluster and namespace is meant: kubeconfig files, merged as kubectl merges them, or the account of the pod in
which we run. Reads files only, and needs nothing but PyYAML."""

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

IN_CLUSTER = "in-cluster"  # the name of the context that a pod's own account is
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT = "~/.kube/config"
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it


@dataclass(frozen=True)
class ClusterTarget:
    """A namespace of a cluster, as it is asked for. `contexts` are patterns, as in `kind-*`; of those that match, the
    current context goes first."""

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
    """A namespace of a cluster, as it is found: the entries of its context in the files. `kubectl` is how a command for
    it begins; `source` is the file that defines the context."""

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
    """The names of all contexts, in the order of the files. Raises ConfigError for a file that cannot be read."""
    return tuple(_merged(_files(kubeconfig, environ)).contexts)


def context_of(place: ClusterTarget, environ: Mapping[str, str] = os.environ) -> str | None:
    """The context that a place is, None where there is none (or no file that can be read)."""
    try:
        return _choose(place, _merged(_files(place.kubeconfig, environ)))
    except ConfigError:
        return None


def resolve(place: ClusterTarget, environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> ResolvedTarget:
    """The cluster of a place, and who we are there.

    Raises ConfigError with the file and what is wrong with it, RefusedError with the contexts that there are.
    """
    files = _files(place.kubeconfig, environ)
    config = _merged(files)
    context = _choose(place, config)
    if context is None:
        asked = place.context if place.context != IN_CLUSTER else None
        if not asked and not place.contexts and not config.contexts and (pod := _own_account(place, environ, account)):
            return pod
        raise _no_context(place, config, files)
    return _found(place, config, context)


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
    """The files that there are: the one that is named, else those of $KUBECONFIG, else the usual one."""
    named = [kubeconfig] if kubeconfig else [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = [Path(part).expanduser() for part in named or [DEFAULT]]
    there = [path for path in paths if _is_file(path)]
    if named and not there:
        given = "kubeconfig" if kubeconfig else "$KUBECONFIG"
        cure = "name another file" if kubeconfig else "correct or unset it"
        raise ConfigError([f"{', '.join(map(str, paths))}: there is no such file, which {given} names: {cure}"])
    return there


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # behind a folder that is closed to us
        return True  # so that reading it says so


def _merged(files: Sequence[Path]) -> _Config:
    """The first file that says something wins, entry by entry."""
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
    except (yaml.YAMLError, ValueError) as error:  # a date that is none is a ValueError
        mark, said = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "no text"
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError([f"{path}{line}: is no YAML ({said}): correct it, or name another file"]) from None
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise ConfigError([f"{path}: is no kubeconfig: it holds no keys and values"])
    return config


def _named(path: Path, config: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    """`[{name: a, context: {…}}]` as {a: {…}}."""
    found: dict[str, Mapping[str, Any]] = {}
    listed = config.get(kind) or []
    for each in listed if isinstance(listed, list) else [listed]:
        value = each.get(kind[:-1]) if isinstance(each, dict) else None
        if not isinstance(each, dict) or "name" not in each or not isinstance(value or {}, dict):
            raise ConfigError([f"{path}: {kind}: is no kubeconfig: each needs a name and `{kind[:-1]}: {{…}}`"])
        found.setdefault(str(each["name"]), value or {})
    return found


# --- choosing --------------------------------------------------------------------------------------------------------


def _choose(place: ClusterTarget, config: _Config) -> str | None:
    if place.context:
        return place.context if place.context in config.contexts else None
    if place.contexts:
        matching = [name for pattern in place.contexts for name in fnmatch.filter(config.contexts, pattern)]
        return config.current if config.current in matching else next(iter(matching), None)
    return config.current if config.current in config.contexts else None


def _no_context(place: ClusterTarget, config: _Config, files: Sequence[Path]) -> ConfigError | RefusedError:
    where = ", ".join(map(str, files)) or DEFAULT
    if not files:
        how = "name one (`kubeconfig:`, $KUBECONFIG); inside a cluster a pod's own service account serves"
        return ConfigError([f"{where}: there is no kubeconfig: {how}"])
    there = ", ".join(config.contexts) or "none"
    if place.context:
        close = difflib.get_close_matches(place.context, config.contexts, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        return RefusedError(f"{where}: there is no context {place.context!r}{hint} There are: {there}")
    if place.contexts:
        return RefusedError(f"{where}: no context matches {' or '.join(place.contexts)}. There are: {there}")
    if config.current:
        said = f"current-context is {config.current!r}, and there is no such context"
    else:
        said = "there is no current-context"
    choose = "choose one with `kubectl config use-context NAME`, or write `context: NAME`"
    return RefusedError(f"{where}: {said}: {choose}. There are: {there}")


def _found(place: ClusterTarget, config: _Config, context: str) -> ResolvedTarget:
    entry = config.contexts[context]
    cluster_name, user_name = (str(entry.value.get(key) or "") for key in ("cluster", "user"))
    cluster, user = config.clusters.get(cluster_name), config.users.get(user_name)
    if cluster is None or not cluster.value.get("server"):
        raise ConfigError([f"{entry.source}: context {context!r}: no server is given for its cluster {cluster_name!r}"])
    if user is None and user_name:
        raise ConfigError([f"{entry.source}: context {context!r}: there is no user {user_name!r}"])
    words = ["kubectl", *(["--kubeconfig", place.kubeconfig] if place.kubeconfig else []), "--context", context]
    return ResolvedTarget(
        source=str(entry.source),
        context=context,
        namespace=place.namespace or str(entry.value.get("namespace") or "default"),
        kubectl=shlex.join(words),
        cluster=_absolute(cluster),
        user=_absolute(user) if user else {},
        user_name=user_name,
    )


def _absolute(entry: _Entry) -> dict[str, Any]:
    """Paths are relative to the file in which they stand, and so is the path of a program that logs in."""
    value, folder = dict(entry.value), entry.source.absolute().parent
    for key in _PATHS:
        if value.get(key):
            value[key] = str(folder / str(value[key]))
    plugin = value.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
        value["exec"] = {**plugin, "command": str(folder / str(plugin["command"]))}
    return value


def _own_account(place: ClusterTarget, environ: Mapping[str, str], account: Path) -> ResolvedTarget | None:
    """What a pod is given to speak with its own cluster."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, namespace = account / "token", account / "namespace"
    if not host or not token.is_file():
        return None
    own = namespace.read_text(encoding="utf-8").strip() if namespace.is_file() else ""
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ResolvedTarget(
        source=str(account),
        context=IN_CLUSTER,
        namespace=place.namespace or own or "default",
        kubectl="kubectl",
        cluster={"server": server, "certificate-authority": str(account / "ca.crt")},
        user={"tokenFile": str(token)},
    )
