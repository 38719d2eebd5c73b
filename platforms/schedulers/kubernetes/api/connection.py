"""A connection to one cluster through the official Kubernetes client.

Of the client only DynamicClient.request is used. It sends raw requests and returns raw answers, which are the same in
all its releases.
"""

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

POOL = 400  # connections that are kept open: each followed log holds one
_LOCAL = "local"  # the one name in the kubeconfig that the client library is given


@dataclass(frozen=True)
class ClusterConnection:
    """A pool of connections and our credentials. Thread-safe; nothing is sent before the first request."""

    dynamic: Any
    header: str = field(repr=False)  # of Authorization
    until_s: float | None  # Unix seconds; after that the credentials must be read again

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
        """Return a urllib3 response whose body has not been read. Raises what errors.translated_errors() translates."""
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


def connect(target: ResolvedTarget, now_s: float) -> ClusterConnection:
    """Read or request credentials and prepare the connections. `now_s`: the time in Unix seconds.

    Raises ConfigError, RefusedError, LoginNeeded, AwayError, each of which says what is wrong and what to do about it.
    """
    proxy_url = proxy(target) or ""
    _check_installed(target, "kubernetes", "kubernetes")
    if _is_socks(proxy_url):
        _check_installed(target, "socks", "pysocks")
    login = credentials(target, now_s)
    try:
        return ClusterConnection(_dynamic_client(target, login, proxy_url), login.header, login.until_s)
    except Exception as error:  # the library reads what people have written in the kubeconfig, and may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError([f"{target.source}: context {target.context!r}: {reason}"]) from None


def _check_installed(target: ResolvedTarget, module: str, package: str) -> None:
    if find_spec(module) is None:
        raise RefusedError(f"{target.where}: {package} is needed and not installed: pip install {package}")


def _dynamic_client(target: ResolvedTarget, login: Credentials, proxy_url: str) -> Any:
    """Return a DynamicClient with a configuration and a pool of its own. Making it sends no request."""
    client = import_module("kubernetes.client")
    config = import_module("kubernetes.config")
    settings = client.Configuration()
    config.load_kube_config_from_dict(_one_context(target, login), client_configuration=settings, persist_config=False)
    # Releases of the library differ in these settings, so all of them are set here.
    settings.proxy = None
    settings.no_proxy = ""
    if proxy_url and not _is_socks(proxy_url):
        settings.proxy = proxy_url
    settings.connection_pool_maxsize = POOL
    settings.retries = False  # the session knows which requests may be repeated
    api = client.ApiClient(configuration=settings)
    api.user_agent = "hpc-ml-bench"
    if _is_socks(proxy_url):  # as `ssh -D` serves it
        socks_manager = import_module("urllib3.contrib.socks").SOCKSProxyManager
        api.rest_client.pool_manager = socks_manager(proxy_url, **api.rest_client.pool_manager.connection_pool_kw)
    pool = api.rest_client.pool_manager
    pool.request = _raising_http_errors(pool.request)
    pool.connection_pool_kw["socket_options"] = _socket_options()
    if not settings.verify_ssl:
        pool.pool_classes_by_scheme = {**pool.pool_classes_by_scheme, "https": _unverified_pool()}
    return import_module("kubernetes.dynamic").DynamicClient(api, discoverer=_no_discovery)


def _no_discovery(_client: object, _cache_file: object) -> None:
    """Stand in for the library's discoverer, which would ask the server for everything that it serves."""


def _raising_http_errors(request: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap urllib3's request so that it raises HttpError: releases of the library translate errors differently."""
    tls_error = import_module("urllib3").exceptions.SSLError

    def request_or_raise(*arguments: Any, **options: Any) -> Any:
        try:
            # A redirect is not followed: the token is for this server only.
            response = request(*arguments, redirect=False, **options)
        except tls_error as error:
            raise HttpError(0, str(error), {}, b"") from None
        if 200 <= response.status < 300:
            return response
        raise HttpError(response.status, str(response.reason or ""), dict(response.headers), response.data)

    return request_or_raise


def _one_context(target: ResolvedTarget, login: Credentials) -> dict[str, Any]:
    """Return a kubeconfig that holds the target's context only, with absolute paths."""
    cluster = dict(target.cluster)
    cluster.pop("proxy-url", None)
    users = []
    if login.user:
        users.append({"name": _LOCAL, "user": dict(login.user)})
    return {
        "current-context": _LOCAL,
        "contexts": [{"name": _LOCAL, "context": {"cluster": _LOCAL, "user": _LOCAL}}],
        "clusters": [{"name": _LOCAL, "cluster": cluster}],
        "users": users,
    }


def _socket_options() -> list[tuple[int, int, int]]:
    """Return options by which even a silent stream notices within two minutes that its peer is gone."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    idle = "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE"
    for name, value in ((idle, 45), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _unverified_pool() -> type[Any]:
    """Return a pool for `insecure-skip-tls-verify` that does not warn: the site has written down that it wants this.

    A warning may have been made an error, which would end the request. A filter of warnings would apply to the whole
    process, so the warning is dropped where it arises.
    """
    urllib3 = import_module("urllib3")

    def _validate_conn(self: Any, conn: Any) -> None:
        with contextlib.suppress(urllib3.exceptions.InsecureRequestWarning):
            urllib3.HTTPSConnectionPool._validate_conn(self, conn)

    return type("UnverifiedPool", (urllib3.HTTPSConnectionPool,), {"_validate_conn": _validate_conn})


# --- proxies ---------------------------------------------------------------------------------------------------------


def proxy(
    target: ResolvedTarget, environment: Callable[[], Mapping[str, str]] = urllib.request.getproxies
) -> str | None:
    """Return the proxy's address: the kubeconfig's, else the environment's.

    The environment's is not used for hosts that $NO_PROXY names, nor for this machine itself.
    """
    proxy_url = target.cluster.get("proxy-url")
    if proxy_url:
        return str(proxy_url)
    proxies = environment()
    server = urlsplit(target.server)
    if _needs_no_proxy(server.hostname or "", proxies.get("no", "")):
        return None
    return proxies.get(server.scheme) or proxies.get("all")


def _is_socks(proxy_url: str) -> bool:
    return proxy_url.startswith("socks")


def _needs_no_proxy(host: str, no_proxy: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for part in no_proxy.split(","):
        entry = part.strip().lower()
        if not entry:
            continue
        domain = entry.lstrip(".")
        if entry == "*" or host == domain or host.endswith(f".{domain}"):
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
