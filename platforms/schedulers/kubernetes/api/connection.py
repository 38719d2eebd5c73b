"""One connection to a cluster through the official client, of which only DynamicClient.request is used: raw requests
and raw answers, which are the same in every release of it."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from platforms.job import ConfigError, RefusedError
from platforms.schedulers.kubernetes.api.credentials import Credentials, credentials
from platforms.schedulers.kubernetes.api.errors import HttpError
from platforms.schedulers.kubernetes.api.kubeconfig import ResolvedTarget

POOL = 400  # connections that are kept: followed logs hold one each
_LOCAL = "local"  # the name of everything in what the client library is given


@dataclass(frozen=True)
class ClusterConnection:
    """Thread-safe. Nothing is sent before the first request."""

    dynamic: Any
    header: str = field(repr=False)
    until_s: float | None  # Unix seconds after which the credentials are to be read again

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout_s: tuple[float, float],
    ) -> Any:
        """A urllib3 response whose body has not been read. Raises what answers.py translates."""
        headers = {"Accept": "application/json, */*"}
        if self.header:
            headers["authorization"] = self.header
        return self.dynamic.request(
            method,
            path,
            body=body,
            query_params=list(query),
            header_params=headers,
            content_type=content_type,
            serialize=False,
            _request_timeout=timeout_s,
        )


def connect(found: ResolvedTarget, now_s: float) -> ClusterConnection:
    """Raises ConfigError, RefusedError, LoginNeeded, AwayError with what is wrong and what to do about it."""
    through = proxy(found) or ""
    for module, package in (("kubernetes", "kubernetes"), *([("socks", "pysocks")] if _is_socks(through) else [])):
        if find_spec(module) is None:
            raise RefusedError(f"{found.where}: {package} is needed and not installed: pip install {package}")
    mine = credentials(found, now_s)
    try:
        return ClusterConnection(_dynamic(found, mine, through), mine.header, mine.until_s)
    except Exception as error:  # of a library that reads what people have written: anything
        said = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError([f"{found.source}: context {found.context!r}: {said}"]) from None


def _dynamic(found: ResolvedTarget, mine: Credentials, through: str) -> Any:
    """Its own configuration and pool of connections, which asks nothing before it is asked."""
    client, config = import_module("kubernetes.client"), import_module("kubernetes.config")
    settings = client.Configuration()
    config.load_kube_config_from_dict(_alone(found, mine), client_configuration=settings, persist_config=False)
    # what releases differ in is decided here
    settings.proxy, settings.no_proxy = None if _is_socks(through) else through or None, ""
    settings.connection_pool_maxsize = POOL
    settings.retries = False  # what may be asked twice, the caller knows
    api = client.ApiClient(configuration=settings)
    api.user_agent = "hpc-ml-bench"
    if _is_socks(through):  # as `ssh -D` speaks it
        manager = import_module("urllib3.contrib.socks").SOCKSProxyManager
        api.rest_client.pool_manager = manager(through, **api.rest_client.pool_manager.connection_pool_kw)
    pool = api.rest_client.pool_manager
    pool.request = _refusing(pool.request)
    pool.connection_pool_kw["socket_options"] = _socket_options()
    if not settings.verify_ssl:
        pool.pool_classes_by_scheme = {**pool.pool_classes_by_scheme, "https": _unverified_pool()}
    return import_module("kubernetes.dynamic").DynamicClient(api, discoverer=_nothing)


def _nothing(_client: object, _cache_file: object) -> None:
    """In place of a discoverer, which would ask the server for all that it serves."""


def _refusing(request: Callable[..., Any]) -> Callable[..., Any]:
    """What is no success leaves the client library as it came: what each release would make of it differs."""
    tls_error = import_module("urllib3").exceptions.SSLError

    def asked(*arguments: Any, **options: Any) -> Any:
        try:
            response = request(*arguments, redirect=False, **options)  # elsewhere nobody is to see a token
        except tls_error as error:
            raise HttpError(0, str(error), {}, b"") from None
        if 200 <= response.status < 300:
            return response
        raise HttpError(response.status, str(response.reason or ""), dict(response.headers), response.data)

    return asked


def _alone(found: ResolvedTarget, mine: Credentials) -> dict[str, Any]:
    """A kubeconfig of this context only. Paths are absolute in it."""
    return {
        "current-context": _LOCAL,
        "contexts": [{"name": _LOCAL, "context": {"cluster": _LOCAL, "user": _LOCAL}}],
        "clusters": [{"name": _LOCAL, "cluster": {k: v for k, v in found.cluster.items() if k != "proxy-url"}}],
        "users": [{"name": _LOCAL, "user": dict(mine.user)}] if mine.user else [],
    }


def _socket_options() -> list[tuple[int, int, int]]:
    """A peer that is gone is noticed within two minutes also by a stream that is silent."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    idle = "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE"
    for name, value in ((idle, 45), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _unverified_pool() -> type[Any]:
    """For `insecure-skip-tls-verify`, which somebody has written down: no warning, which may be made an error, ends a
    request, and no filter of ours changes other people's warnings."""
    urllib3 = import_module("urllib3")

    def _validate_conn(self: Any, conn: Any) -> None:
        with contextlib.suppress(urllib3.exceptions.InsecureRequestWarning):
            urllib3.HTTPSConnectionPool._validate_conn(self, conn)

    return type("UnverifiedPool", (urllib3.HTTPSConnectionPool,), {"_validate_conn": _validate_conn})


# --- proxies ---------------------------------------------------------------------------------------------------------


def proxy(
    found: ResolvedTarget, environment: Callable[[], Mapping[str, str]] = urllib.request.getproxies
) -> str | None:
    """Of the kubeconfig, else of the environment, but not for what $NO_PROXY says nor for this machine itself."""
    if named := found.cluster.get("proxy-url"):
        return str(named)
    proxies, server = environment(), urlsplit(found.server)
    if _direct(server.hostname or "", proxies.get("no", "")):
        return None
    return proxies.get(server.scheme) or proxies.get("all")


def _is_socks(through: str) -> bool:
    return through.startswith("socks")


def _direct(host: str, exceptions: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for entry in filter(None, (part.strip().lower() for part in exceptions.split(","))):
        if entry == "*" or host == entry.lstrip(".") or host.endswith(f".{entry.lstrip('.')}"):
            return True
        if address is not None and _within(address, entry):
            return True
    return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _within(address: ipaddress.IPv4Address | ipaddress.IPv6Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
