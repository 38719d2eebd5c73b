"""A connection to one cluster: the client library reads how to log in, and urllib3 sends the requests.

Of the library only `kubernetes.config` is used. Its API classes are not: they parse every answer into objects of their
own, and its releases differ in how they raise what the server answers.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from platforms.job import ConfigError, RefusedError
from platforms.schedulers.kubernetes.api.credentials import Credentials, credentials
from platforms.schedulers.kubernetes.api.errors import HttpError
from platforms.schedulers.kubernetes.api.kubeconfig import ResolvedTarget

if TYPE_CHECKING:
    import urllib3

POOL = 400  # connections that are kept open: each followed log holds one
_LOCAL = "local"  # the one name in the kubeconfig that the client library is given


@dataclass(frozen=True)
class ClusterConnection:
    """A pool of connections and our credentials.

    Thread-safe; nothing is sent before the first request.
    """

    server: str
    pool: urllib3.PoolManager
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
    ) -> urllib3.BaseHTTPResponse:
        """Return an answer whose body has not been read. `timeout_s`: to connect, and between two pieces of it.

        Raises HttpError for an answer that is not a success, and what else errors.translated_errors() translates.
        """
        import urllib3

        headers = {"Accept": "application/json, */*", "User-Agent": "hpc-ml-bench"}
        if self.header:
            headers["Authorization"] = self.header
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body)
        response = self.pool.request(
            method,
            f"{self.server}{path}?{urlencode(query)}".rstrip("?"),
            body=data,
            headers=headers,
            timeout=urllib3.Timeout(connect=timeout_s[0], read=timeout_s[1]),
            redirect=False,  # the token is for this server only
            retries=False,  # the session knows which requests may be repeated
            preload_content=False,
        )
        if 200 <= response.status < 300:
            return response
        phrase = str(response.reason or "")
        raise HttpError(response.status, phrase, response.headers, response.data)


def connect(target: ResolvedTarget, now_s: float) -> ClusterConnection:
    """Read or request credentials and prepare the connections. `now_s`: the time in Unix seconds.

    Raises ConfigError, RefusedError, LoginNeeded, AwayError, each of which says what is wrong and what to do about it.
    """
    login = credentials(target, now_s)
    try:
        settings = _settings(target, login)
        pool = _pool(target, settings)
    except RefusedError:
        raise
    except Exception as error:  # the library reads what people have written in the kubeconfig, and may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError([f"{target.entry}: {reason}"]) from None
    header = settings.auth_settings().get("BearerToken", {}).get("value") or ""
    return ClusterConnection(target.server, pool, header.strip(), login.until_s)


def _settings(target: ResolvedTarget, login: Credentials) -> Any:
    """Return the library's settings for one context: our login, and certificates as files."""
    # It takes .3 s to import: commands that ask no cluster do without it.
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config_from_dict

    cluster = dict(target.cluster)
    cluster.pop("proxy-url", None)
    kubeconfig = {
        "current-context": _LOCAL,
        "contexts": [{"name": _LOCAL, "context": {"cluster": _LOCAL, "user": _LOCAL}}],
        "clusters": [{"name": _LOCAL, "cluster": cluster}],
        "users": [{"name": _LOCAL, "user": dict(login.user)}],
    }
    settings = Configuration()
    load_kube_config_from_dict(kubeconfig, client_configuration=settings, persist_config=False)
    return settings


def _pool(target: ResolvedTarget, settings: Any) -> urllib3.PoolManager:
    import urllib3

    options: dict[str, Any] = {
        "maxsize": POOL,
        "socket_options": _socket_options(),
        "ca_certs": settings.ssl_ca_cert,
        "cert_file": settings.cert_file,
        "key_file": settings.key_file,
    }
    if not settings.verify_ssl:
        options["cert_reqs"] = "CERT_NONE"
    if settings.tls_server_name:
        options["server_hostname"] = settings.tls_server_name
    proxy_url = proxy(target)
    pool: urllib3.PoolManager
    if not proxy_url:
        pool = urllib3.PoolManager(**options)
    elif proxy_url.startswith("socks"):  # as `ssh -D` serves it
        if find_spec("socks") is None:
            problem = "its proxy speaks SOCKS, which needs PySocks: pip install pysocks"
            raise RefusedError(f"{target.where}: {problem}")
        from urllib3.contrib.socks import SOCKSProxyManager

        pool = SOCKSProxyManager(proxy_url, **options)
    else:
        pool = urllib3.ProxyManager(proxy_url, **options)
    if not settings.verify_ssl:
        pool.pool_classes_by_scheme = {**pool.pool_classes_by_scheme, "https": _unverified_pool()}
    return pool


def _socket_options() -> list[tuple[int, int, int]]:
    """Return options by which even a silent stream notices within two minutes that its peer is gone."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    idle = "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE"
    for name, value in ((idle, 45), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _unverified_pool() -> type[urllib3.HTTPSConnectionPool]:
    """Return a pool for `insecure-skip-tls-verify` that does not warn: the site has written down that it wants this.

    A warning may have been made an error, which would end the request. A filter of warnings would apply to the whole
    process, so the warning is dropped where it arises.
    """
    import urllib3

    class UnverifiedPool(urllib3.HTTPSConnectionPool):
        def _validate_conn(self, conn: Any) -> None:
            with contextlib.suppress(urllib3.exceptions.InsecureRequestWarning):
                super()._validate_conn(conn)

    return UnverifiedPool


def proxy(target: ResolvedTarget) -> str | None:
    """Return the proxy's address: the kubeconfig's, else the environment's.

    That is not used for hosts and networks that $NO_PROXY names, nor for this machine itself, as kubectl does it.
    """
    from requests.utils import get_environ_proxies, select_proxy

    if target.cluster.get("proxy-url"):
        return str(target.cluster["proxy-url"])
    host = urlsplit(target.server).hostname or ""
    with contextlib.suppress(ValueError):  # a name, not an address
        if ipaddress.ip_address(host).is_loopback:
            return None
    if host == "localhost":
        return None
    return select_proxy(target.server, get_environ_proxies(target.server))
