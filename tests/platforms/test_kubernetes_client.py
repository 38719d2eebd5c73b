"""What we ask of an API server and what we make of its answers, with a server that says what it is told to say."""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from platforms.job import AwayError, BenchError, ConfigError, LoginNeeded, RefusedError
from platforms.schedulers.kubernetes.api import kubeconfig as places
from platforms.schedulers.kubernetes.api import session
from platforms.schedulers.kubernetes.api.client import ApiError, Client, Expired, lines
from platforms.schedulers.kubernetes.api.connection import connect, proxy
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget, ResolvedTarget, context_of
from platforms.schedulers.kubernetes.api.resources import CLAIMS, JOBS, NODES, PODS, Resource

POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}


# --- a server --------------------------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        url = urlsplit(self.path)
        asked = {
            "method": self.command,
            "path": self.path if url.scheme else url.path,
            "query": {key: values[0] for key, values in parse_qs(url.query).items()},
            "headers": {key.lower(): value for key, value in self.headers.items()},
            "body": json.loads(self.rfile.read(length)) if length else None,
        }
        self.server.asked.append(asked)
        answer = self.server.answer(len(self.server.asked) - 1)
        if callable(answer):
            answer(self)
        else:
            self.say(*answer)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def say(self, code: int, body: object, headers: Mapping[str, str]) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self, *pieces: bytes, cut: bool = False, hang: threading.Event | None = None) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if hang is not None:
            hang.wait(60)
        if cut:
            self.reset()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def reset(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


Answer = tuple[int, object, Mapping[str, str]] | Callable[[Handler], None]


class Api(ThreadingHTTPServer):
    """Gives its answers in turn, the last one again and again."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *answers: Answer, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.answers, self.asked = list(answers), list[dict[str, Any]]()
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.server_port}"

    def answer(self, number: int) -> Answer:
        return self.answers[min(number, len(self.answers) - 1)]

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def ok(body: object, **headers: str) -> Answer:
    return (200, body, headers)


def refused(code: int, message: str = "no", reason: str = "", after: int | None = None) -> Answer:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return (code, {**status, "code": code}, {} if after is None else {"Retry-After": str(after)})


def reset(handler: Handler) -> None:
    handler.reset()


@contextlib.contextmanager
def serving(*answers: Answer, context: ssl.SSLContext | None = None) -> Iterator[Api]:
    with Api(*answers, context=context) as api:
        thread = threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield api
        finally:
            api.shutdown()
            thread.join(20)


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s, self.slept = 1000.0, list[float]()

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def written(path: Path, server: str, *, user: object = None, namespace: str | None = None, **cluster: object) -> Path:
    context = {"cluster": "there", "user": "me"} | ({"namespace": namespace} if namespace else {})
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "there", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": {"token": "s3cret"} if user is None else user}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(tmp_path: Path, clock: Clock) -> Callable[..., Client]:
    def made(api: Api, **keys: Any) -> Client:
        path = written(tmp_path / "config", api.url, **keys)
        return Client(ClusterTarget(str(path)), clock=clock, sleep=clock.sleep, wall=clock)

    return made


# --- which cluster ---------------------------------------------------------------------------------------------------


def two_files(folder: Path) -> dict[str, str]:
    """Two kubeconfigs that disagree, in one variable, and between them one that does not exist."""
    named = [(folder / "one", "http://one", ["b", "kind-2"]), (folder / "two", "http://two", ["b", "kind-1", "a"])]
    for path, server, names in named:
        path.mkdir()
        config = {
            "current-context": names[-1],
            "contexts": [{"name": name, "context": {"cluster": f"c-{name}", "user": "u"}} for name in names],
            "clusters": [
                {"name": f"c-{name}", "cluster": {"server": server, "certificate-authority": "ca.pem"}}
                for name in names
            ],
            "users": [{"name": "u", "user": {"client-key": "key.pem", "exec": {"command": "./login"}}}],
        }
        (path / "config").write_text(yaml.safe_dump(config))
    return {"KUBECONFIG": f"{folder}/one/config:{folder}/none::{folder}/two/config"}


def test_kubeconfig_files_are_merged_as_kubectl_merges_them(tmp_path: Path) -> None:
    environ = two_files(tmp_path)
    found = places.resolve(ClusterTarget(), environ)
    assert (found.context, found.server, found.namespace) == ("kind-2", "http://one", "default")
    assert found.kubectl == "kubectl --context kind-2"
    far = places.resolve(ClusterTarget(context="a", namespace="mine"), environ)
    assert (far.server, far.namespace, far.where) == ("http://two", "mine", "cluster a, namespace mine")
    assert far.cluster["certificate-authority"] == f"{tmp_path}/two/ca.pem"
    assert far.user["client-key"] == f"{tmp_path}/one/key.pem"  # the first file that knows the user
    assert far.user["exec"]["command"] == f"{tmp_path}/one/login"


@pytest.mark.parametrize(
    ("place", "context"),
    [
        (ClusterTarget(), "kind-2"),
        (ClusterTarget(context="a"), "a"),
        (ClusterTarget(context="nowhere"), None),
        (ClusterTarget(contexts=("k3d-*", "kind-*")), "kind-2"),  # in the order of the files
        (ClusterTarget(contexts=("a", "kind-*")), "kind-2"),  # the current one
        (ClusterTarget(contexts=("a", "kind-1")), "a"),  # in the order of the patterns
        (ClusterTarget(contexts=("k3d-*",)), None),
        (ClusterTarget(kubeconfig="/nowhere/at/all"), None),
    ],
)
def test_the_target_resolves_to_one_context(tmp_path: Path, place: ClusterTarget, context: str | None) -> None:
    environ = two_files(tmp_path)
    assert context_of(place, environ) == context
    if context:
        assert places.resolve(place, environ).context == context


@pytest.mark.slow
def test_finding_a_context_imports_no_client(tmp_path: Path) -> None:
    program = (
        "import sys; from platforms.schedulers.kubernetes.api.client import Client\n"
        "from platforms.schedulers.kubernetes.api.informer import Informer\n"
        "from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget, context_of\n"
        "assert context_of(ClusterTarget()) == 'kind-2' and Client(ClusterTarget()).namespace == 'default'\n"
        "print(*{'kubernetes', 'urllib3', 'requests'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **two_files(tmp_path)}, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("text", "place", "kind", "says"),
    [
        (None, ClusterTarget(), ConfigError, r"there is no such file; \$KUBECONFIG names it: correct or unset"),
        ("a: [", ClusterTarget(), ConfigError, r"config:\d: not YAML: .+: correct it"),
        ("day: 2026-99-99", ClusterTarget(), ConfigError, r"config:1: not YAML"),
        ("- a", ClusterTarget(), ConfigError, "config: not a kubeconfig"),
        ("contexts: [{name: a}, b]", ClusterTarget(), ConfigError, "not a kubeconfig: each of its .* needs a name"),
        ("contexts: []", ClusterTarget(), RefusedError, "no current-context.*`kubectl config use-context NAME`.*none"),
        ("", ClusterTarget(context="a"), RefusedError, r"there is no context 'a'\. There are: none"),
        ("current-context: a", ClusterTarget(), RefusedError, "current-context is 'a', and there is no such context"),
        ("contexts: [{name: eidf-prod, context: {}}]", ClusterTarget(context="eidf-pord"), RefusedError,
         "no context 'eidf-pord'; did you mean 'eidf-prod'\\? There are: eidf-prod"),
        ("contexts: [{name: a, context: {}}]", ClusterTarget(contexts=("kind-*", "k3d-*")), RefusedError,
         r"no context matches kind-\* or k3d-\*. There are: a"),
        ("contexts: [{name: a, context: {cluster: c}}]", ClusterTarget(context="a"), ConfigError,
         "config: context 'a': no server is given for its cluster 'c'"),
        ("{contexts: [{name: a, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: s}}]}",
         ClusterTarget(context="a"), ConfigError, "config: context 'a': there is no user 'u'"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_kubeconfig_is_one_sentence(
    tmp_path: Path, text: str | None, place: ClusterTarget, kind: type[BenchError], says: str
) -> None:
    if text is not None:
        (tmp_path / "config").write_text(text)
    with pytest.raises(kind, match=says) as raised:
        places.resolve(place, {"KUBECONFIG": str(tmp_path / "config")})
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_kubeconfig_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"~/.kube/config: there is no kubeconfig: name one"):
        places.resolve(ClusterTarget(), {}, tmp_path)


def test_a_pod_uses_its_own_account(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "namespace").write_text("mine\n")
    found = places.resolve(ClusterTarget(), environ, tmp_path)
    assert (found.context, found.namespace, found.server) == ("in-cluster", "mine", "https://[fd00::1]:6443")
    assert found.user == {"tokenFile": str(tmp_path / "token")}
    assert (
        places.resolve(ClusterTarget(context=found.context, namespace="other"), environ, tmp_path).namespace == "other"
    )
    with pytest.raises(ConfigError, match="no kubeconfig"):
        places.resolve(ClusterTarget(context="named"), environ, tmp_path)


# --- who we are ------------------------------------------------------------------------------------------------------


def plugin(folder: Path, script: str) -> dict[str, Any]:
    path = folder / "login"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{script}")
    path.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": "./login", "args": ["x"], "env": [{"name": "E", "value": "v"}]}}


GIVES = """
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert (sys.argv[1:], os.environ["E"], info["spec"]["interactive"]) == (["x"], "v", False)
count = open({folder!r} + "/count", "a"); count.write("."); count.close()
status = {{"token": "t" + str(os.path.getsize({folder!r} + "/count")), "expirationTimestamp": {until!r}}}
print(json.dumps({{"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}}))
"""


@pytest.mark.slow
def test_a_login_program_runs_again_only_when_its_credentials_expire(
    tmp_path: Path, client: Callable[..., Client], clock: Clock
) -> None:
    until = datetime.datetime.fromtimestamp(clock() + 600, datetime.UTC).isoformat().replace("+00:00", "Z")
    with serving(ok({"gitVersion": "v1.36.2"})) as api:
        one = client(api, user=plugin(tmp_path, GIVES.format(folder=str(tmp_path), until=until)))
        for wait_s in (0, 500, 100, 1):
            clock.now_s += wait_s
            assert one.version() == "v1.36.2"
    assert [asked["headers"]["authorization"] for asked in api.asked] == [f"Bearer t{n}" for n in (1, 1, 2, 2)]


@pytest.mark.parametrize(
    ("user", "kind", "says"),
    [
        ({"exec": {"command": "no-such-program", "installHint": "see\nhttps://x"}}, RefusedError,
         "config: context 'here' logs in with no-such-program, which is not installed here: see https://x"),
        ("sys.exit('line\\nSession expired')", LoginNeeded,
         r"cluster here: ./login gives no credentials \(exit code 1\): Session expired. Type `kubectl .*auth whoami`"),
        ("print('{}')", LoginNeeded, "gives an answer that is not an ExecCredential"),
        ("print(json.dumps({'status': {}}))", LoginNeeded, "gives neither a token nor a certificate"),
        ({"tokenFile": "nowhere"}, ConfigError, "config: context 'here': .*No such file or directory: '.*/nowhere'"),
        ({"client-certificate-data": "A"}, ConfigError, "config: context 'here': Invalid base64"),
        ({"client-certificate-data": "AAAA"}, RefusedError, r"our certificates cannot be used \(\[SSL\]"),
        ({"token": "a\x01\nb"}, ConfigError, "its token has characters that an HTTP header cannot hold"),
    ],
)  # fmt: skip
def test_a_failed_login_is_one_sentence(
    tmp_path: Path, client: Callable[..., Client], user: Any, kind: type[BenchError], says: str
) -> None:
    with serving(ok({})) as api:
        api.url = api.url.replace("http:", "https:") if "client-certificate-data" in user else api.url
        one = client(api, user=plugin(tmp_path, user) if isinstance(user, str) else user)
        with pytest.raises(kind, match=says.replace("./login", ".*/login")) as raised:
            one.version()
    assert api.asked == []
    assert "\n" not in str(raised.value)
    assert "a\x01" not in str(raised.value)


def test_a_token_file_is_read_again_every_minute(tmp_path: Path, client: Callable[..., Client], clock: Clock) -> None:
    with serving(ok({"gitVersion": "v1"})) as api:
        one = client(api, user={"tokenFile": "token"})
        for token, wait_s in (("a", 0), ("b", 30), ("b", 31)):
            clock.now_s += wait_s
            (tmp_path / "token").write_text(token + "\n")
            one.version()
    assert [asked["headers"]["authorization"] for asked in api.asked] == ["Bearer a", "Bearer a", "Bearer b"]


def test_a_401_makes_the_client_read_the_kubeconfig_again(client: Callable[..., Client], clock: Clock) -> None:
    def only_new(handler: Handler) -> None:
        known = handler.headers["authorization"] == "Bearer new"
        handler.say(*(ok({"gitVersion": "v1"}) if known else refused(401, "Unauthorized")))  # type: ignore[misc]

    with serving(only_new) as api:
        one = client(api)
        with pytest.raises(LoginNeeded, match=r"cluster here: the server does not accept our login \(401") as raised:
            one.version()
        assert re.fullmatch(r"kubectl --kubeconfig \S+/config --context here auth whoami", raised.value.command)
        assert len(api.asked) == 2
        with pytest.raises(LoginNeeded):
            one.version()
        assert len(api.asked) == 2  # a person is not that quick
        client(api, user={"token": "new"})
        clock.now_s += 6
        assert one.version() == "v1"
        assert "s3cret" not in repr(raised.value) + repr(one._session._connection)


def test_a_new_token_is_used_after_a_401(client: Callable[..., Client]) -> None:
    def renew(handler: Handler) -> None:
        client(api, user={"token": "new"})
        handler.say(*refused(401))  # type: ignore[misc]

    with serving(ok({"gitVersion": "v1"}), renew, ok({"gitVersion": "v2"})) as api:
        one = client(api)
        assert [one.version(), one.version()] == ["v1", "v2"]
    assert [asked["headers"]["authorization"] for asked in api.asked] == ["Bearer s3cret"] * 2 + ["Bearer new"]


def test_a_changed_current_context_does_not_move_the_client(tmp_path: Path, client: Callable[..., Client]) -> None:
    with serving(refused(401), ok({"gitVersion": "v1"})) as api:
        one = client(api, namespace="mine")
        assert one.where == "cluster here, namespace mine"
        config = yaml.safe_load((tmp_path / "config").read_text())
        config["contexts"].append({"name": "other", "context": {"cluster": "other", "namespace": "other"}})
        config["clusters"].append({"name": "other", "cluster": {"server": "http://127.0.0.1:1"}})
        (tmp_path / "config").write_text(yaml.safe_dump({**config, "current-context": "other"}))
        assert one.version() == "v1"
        assert (one.context, one.namespace) == ("here", "mine")


# --- connections -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of a server at 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kube")])
    names = x509.SubjectAlternativeName([x509.DNSName("kube")])
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now - datetime.timedelta(1))
    built = built.not_valid_after(now + datetime.timedelta(1)).add_extension(names, critical=False)
    pem, encoding = built.sign(key, hashes.SHA256()), serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(private + pem.public_bytes(encoding))
    return path


@pytest.mark.slow
def test_tls_errors_name_their_cause(certificate: Path, client: Callable[..., Client]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    trusted = {"certificate-authority": str(certificate), "tls-server-name": "kube"}
    with serving(ok({"gitVersion": "v1"}), context=context) as api:
        assert client(api, **trusted).version() == "v1"
        assert client(api, **{"insecure-skip-tls-verify": True}).version() == "v1"
        with pytest.raises(RefusedError, match=r"config: context 'here': https://127.*certificate.*not"):
            client(api).version()
        with pytest.raises(RefusedError, match="is not accepted"):
            client(api, **{**trusted, "tls-server-name": "other"}).version()
    with serving(ok({})) as plain:
        plain.url = plain.url.replace("http:", "https:")
        with pytest.raises(RefusedError, match="does not speak TLS: is `server:` right"):
            client(plain).version()


def found(server: str, **cluster: object) -> ResolvedTarget:
    return ResolvedTarget("config", "here", "default", "kubectl", {"server": server, **cluster}, {})


@pytest.mark.parametrize(
    ("server", "environment", "through"),
    [
        ("https://kube.site:6443", {}, None),
        ("https://kube.site:6443", {"https": "http://p:1", "http": "http://q:1"}, "http://p:1"),
        ("https://kube.site:6443", {"https": "http://p:1", "no": "x, .site"}, None),
        ("https://kube.site:6443", {"https": "http://p:1", "no": "other.site,10.0.0.0/8"}, "http://p:1"),
        ("https://10.1.2.3:6443", {"https": "http://p:1", "no": "10.0.0.0/8"}, None),
        ("https://127.0.0.1:6443", {"https": "http://p:1"}, None),
        ("https://localhost:6443", {"https": "http://p:1"}, None),
    ],
)
def test_the_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, server: str, environment: dict[str, str], through: str | None
) -> None:
    for kind in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{kind.upper()}_PROXY", raising=False)
        monkeypatch.setenv(f"{kind}_proxy", environment.get(kind, ""))
    assert proxy(found(server)) == through
    assert proxy(found(server, **{"proxy-url": "http://own:1"})) == "http://own:1"


def test_the_proxy_of_a_kubeconfig_is_used(client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with serving(ok({"gitVersion": "v1"})) as api:
        through = api.url
        api.url = "http://kube.invalid"
        assert client(api, **{"proxy-url": through}).version() == "v1"
    assert [asked["path"] for asked in api.asked] == ["http://kube.invalid/version"]


@pytest.mark.skipif(importlib.util.find_spec("socks") is not None, reason="PySocks is installed")
def test_a_proxy_that_speaks_socks_needs_a_package(client: Callable[..., Client]) -> None:
    with (
        serving(ok({})) as api,
        pytest.raises(RefusedError, match=r"speaks SOCKS, .* pip install pysocks") as raised,
    ):
        client(api, **{"proxy-url": "socks5://me:pw@127.0.0.1:1080"}).version()
    assert "pw@" not in str(raised.value)


def test_connections_are_kept_alive() -> None:
    with serving(ok({})) as api:
        pool = connect(found(api.url), 0.0).pool.connection_from_url(api.url)
        connection = pool._get_conn()
        connection.connect()
        with contextlib.closing(connection.sock) as sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 60
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert pool.pool.maxsize >= 300


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_get_sends_exactly_one_request(client: Callable[..., Client]) -> None:
    with serving(ok({**POD, "spec": {"x": None}})) as api:
        assert client(api, namespace="mine").get(PODS, "a/b") == {**POD, "spec": {"x": None}}
    (asked,) = api.asked
    assert (asked["method"], asked["path"]) == ("GET", "/api/v1/namespaces/mine/pods/a%2Fb")
    assert asked["headers"]["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize(
    "fault",
    [refused(500), refused(502), refused(503, after=0), refused(504), (503, b"<html>busy</html>", {}), refused(429),
     (200, b"<html>Log in", {}), (200, b"\xff", {}), reset],
)  # fmt: skip
def test_idempotent_requests_are_retried(client: Callable[..., Client], clock: Clock, fault: Answer) -> None:
    with serving(fault, fault, ok({"gitVersion": "v1"})) as api:
        assert client(api).version() == "v1"
    assert len(api.asked) == 3
    assert len(clock.slept) == 2
    assert 0 < clock.slept[0] <= 0.5 < clock.slept[1] <= 1.0 or clock.slept[1] >= 0.5


def test_retry_after_is_obeyed(client: Callable[..., Client], clock: Clock) -> None:
    with serving(refused(429, after=7), ok({"gitVersion": "v1"}), refused(503, "down", after=3600)) as api:
        one = client(api)
        assert one.version() == "v1"
        assert clock.slept == [7.0]
        with pytest.raises(AwayError, match="cluster here, namespace default: down"):
            one.version()
    assert len(api.asked) == 3


@pytest.mark.slow
def test_retries_end_after_their_limit(client: Callable[..., Client], clock: Clock) -> None:
    with serving(refused(500, "etcdserver: no leader")) as api:
        with pytest.raises(AwayError, match="cluster here, namespace default: etcdserver: no leader"):
            client(api).get(PODS, "a")
        assert len(api.asked) == 5
    assert sum(clock.slept) < 60
    with pytest.raises(AwayError, match=r"http://127.0.0.1:\d+: no connection: Connection refused") as raised:
        client(api).get(PODS, "a")
    assert "object at" not in str(raised.value)


@pytest.mark.parametrize("fault", [refused(500), refused(503), refused(409, "exists", "AlreadyExists"), reset])
def test_a_create_without_a_sure_answer_is_sent_once(
    client: Callable[..., Client], clock: Clock, fault: Answer
) -> None:
    with serving(fault, ok(POD)) as api:
        one = client(api)
        with pytest.raises((AwayError, ApiError)):
            one.create(PODS, POD)
        assert (len(api.asked), clock.slept) == (1, [])


@pytest.mark.parametrize("fault", [refused(500), refused(503), reset])
def test_a_dry_run_makes_nothing(client: Callable[..., Client], fault: Answer) -> None:
    with serving(fault, ok(POD)) as api:
        assert client(api).create(PODS, POD, dry_run=True, strict=True) == POD
        assert [asked["query"] for asked in api.asked] == [{"dryRun": "All", "fieldValidation": "Strict"}] * 2


QUOTA_IS_WRITTEN = 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified; please apply'


@pytest.mark.parametrize("fault", [refused(429, after=1), (429, b"later", {}), refused(409, QUOTA_IS_WRITTEN)])
@pytest.mark.slow
def test_a_create_is_retried_if_it_surely_made_nothing(
    client: Callable[..., Client], clock: Clock, fault: Answer
) -> None:
    with serving(fault, fault, ok(POD)) as api:
        assert client(api).create(PODS, POD) == POD
        assert len(api.asked) == 3
    with serving(fault) as api, pytest.raises(AwayError):
        client(api).create(PODS, POD)
    assert len(api.asked) == 5
    assert sum(clock.slept) < 60


QUOTA = 'pods "q2" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=4, used: ...'


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        (refused(403, QUOTA, "Forbidden"), 403, QUOTA),
        (refused(409, 'pods "dup" already exists', "AlreadyExists"), 409, 'pods "dup" already exists'),
        ((404, b"404 page not found\n", {}), 404, "404 page not found"),
        ((400, b"", {}), 400, "Bad Request (HTTP 400)"),
        ((302, b"<a>log in</a> \xff", {"Location": "/login"}), 302, "log in �"),
    ],
)
def test_a_refusal_keeps_the_servers_message(
    client: Callable[..., Client], answer: Answer, status: int, message: str
) -> None:
    with serving(answer) as api, pytest.raises(ApiError) as raised:
        client(api).create(JOBS, {"kind": "Job"})
    assert (raised.value.status, raised.value.message) == (status, message)
    assert len(api.asked) == 1


def test_a_merge_patch_keeps_nulls(client: Callable[..., Client]) -> None:
    with serving(ok(POD)) as api:
        client(api).patch(PODS, "a", {"metadata": {"finalizers": None}, "spec": {"activeDeadlineSeconds": 1}})
    (asked,) = api.asked
    assert asked["method"] == "PATCH"
    assert asked["headers"]["content-type"] == "application/merge-patch+json"
    assert asked["body"] == {"metadata": {"finalizers": None}, "spec": {"activeDeadlineSeconds": 1}}


@pytest.mark.slow
def test_delete_sends_its_options_and_preconditions(client: Callable[..., Client]) -> None:
    conflict = (
        "Operation cannot be fulfilled on pods: Precondition failed: UID in precondition: u, UID in object meta: v"
    )
    with serving(reset, refused(404), ok({}), refused(409, conflict, "Conflict"), refused(409, "x", "Conflict")) as api:
        one = client(api)
        one.delete(JOBS, "a")  # done, the answer lost, and gone
        one.delete(JOBS, "a", propagation="Foreground", uid="u")
        one.delete(JOBS, "a", uid="u")  # another one by now
        with pytest.raises(ApiError):
            one.delete(JOBS, "a", uid="u", version="7")
    assert {asked["path"] for asked in api.asked} == {"/apis/batch/v1/namespaces/default/jobs/a"}
    bodies = [asked["body"] for asked in api.asked]
    assert bodies[0] == {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    assert bodies[2] == {**bodies[0], "propagationPolicy": "Foreground", "preconditions": {"uid": "u"}}
    assert bodies[-1]["preconditions"] == {"uid": "u", "resourceVersion": "7"}


def page(names: str, version: str, more: str = "") -> Answer:
    metadata = {"resourceVersion": version} | ({"continue": more} if more else {})
    return ok({"kind": "PodList", "metadata": metadata, "items": [{"metadata": {"name": name}} for name in names]})


@pytest.mark.slow
def test_a_list_follows_all_pages(client: Callable[..., Client]) -> None:
    with serving(page("ab", "7", "next/+="), refused(410, "too old"), page("ab", "9", "n"), page("c", "9")) as api:
        items, version = client(api).list(PODS, labels="a in (b,c)", fields="x=y")
    assert [(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in items] == [
        ("v1", "Pod", name) for name in "abc"
    ]
    assert version == "9"
    first = {"labelSelector": "a in (b,c)", "fieldSelector": "x=y", "limit": "500"}
    asked = [first, {**first, "continue": "next/+="}, first, {**first, "continue": "n"}]
    assert [each["query"] for each in api.asked] == asked
    with serving(page("a", "1"), refused(410)) as api:
        one = client(api)
        one.list(CLAIMS, everywhere=True)
        with pytest.raises(AwayError, match="cannot be listed"):
            one.list(NODES)
    assert [asked["path"] for asked in api.asked[:2]] == ["/api/v1/persistentvolumeclaims", "/api/v1/nodes"]


def test_discovery_of_a_kind_is_cached(client: Callable[..., Client]) -> None:
    listed = [{"name": "ipujobs", "kind": "IPUJob", "namespaced": True}, {"name": "ipujobs/status", "kind": "IPUJob"}]
    with serving(ok({"resources": listed})) as api:
        one = client(api)
        kinds = [one.resource("graphcore.ai/v1alpha1", "IPUJob") for _ in range(3)]
        assert kinds == [Resource("graphcore.ai/v1alpha1", "IPUJob", "ipujobs")] * 3
        assert one.resource("batch/v1", "Job") == JOBS
    assert [asked["path"] for asked in api.asked] == ["/apis/graphcore.ai/v1alpha1"]
    assert [each.kubectl for each in (kinds[0], JOBS, PODS)] == ["ipujob.graphcore.ai", "job.batch", "pod"]


GROUP = ok({"versions": [{"version": "v1beta1"}, {"version": "v1"}], "preferredVersion": {"version": "v1"}})
NOTHING: Answer = (404, b"404 page not found", {})


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([NOTHING, NOTHING], r"X of g.io/v2: the cluster has no API group g.io: is its operator installed\?"),
        ([NOTHING, GROUP], r"X of g.io/v2: the cluster serves g.io as v1, v1beta1. Try `kubectl .*api-resources`"),
        ([ok({"resources": [{"name": "ys", "kind": "Y", "namespaced": True}]}), ok({"versions": [{"version": "v2"}]})],
         "its kinds are Y"),
    ],
)  # fmt: skip
def test_an_unknown_kind_is_refused(client: Callable[..., Client], answers: list[Answer], says: str) -> None:
    with serving(*answers) as api, pytest.raises(RefusedError, match=says):
        client(api).resource("g.io/v2", "X")
    assert [asked["path"] for asked in api.asked] == ["/apis/g.io/v2", "/apis/g.io"]


def test_served_versions_of_a_group_are_cached(client: Callable[..., Client]) -> None:
    with serving(GROUP, NOTHING) as api:
        one = client(api)
        versions = [one.served_versions(group) for group in ("a.io", "a.io", "b.io")]
        assert versions == [("v1", "v1beta1"), ("v1", "v1beta1"), ()]
    assert len(api.asked) == 2


def test_may_asks_for_an_access_review(client: Callable[..., Client]) -> None:
    with serving(reset, ok({"status": {"allowed": True}}), ok({"status": {"allowed": False}})) as api:
        one = client(api, namespace="mine")
        assert one.is_allowed("get", "", "pods", "log")
        assert not one.is_allowed("list", "", "nodes")
    assert {asked["path"] for asked in api.asked} == {"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}
    asked = [asked["body"]["spec"]["resourceAttributes"] for asked in api.asked[1:]]
    assert asked == [
        {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "mine"},
        {"verb": "list", "resource": "nodes"},
    ]


# --- streams ---------------------------------------------------------------------------------------------------------


def test_lines_are_whole_wherever_the_stream_is_cut() -> None:
    text = '{"a": "µ€"}\n\n{"b": 1}\n{"c'.encode()
    whole = [b'{"a": "\xc2\xb5\xe2\x82\xac"}', b'{"b": 1}']
    assert all(list(lines([text[:cut], text[cut:]])) == whole for cut in range(len(text) + 1))
    assert list(lines([text[i : i + 1] for i in range(len(text))])) == whole


def event(what: str, /, **keys: object) -> bytes:
    return json.dumps({"type": what, "object": keys}, ensure_ascii=False).encode() + b"\n"


def test_a_watch_yields_the_servers_events(client: Callable[..., Client]) -> None:
    said = event("ADDED", **POD) + event("MODIFIED", said="µ€") + event("BOOKMARK", metadata={"resourceVersion": "9"})
    pieces = [said[i : i + 7] for i in range(0, len(said), 7)]
    with serving(lambda handler: handler.stream(*pieces)) as api:
        one = client(api)
        with one.watch(PODS, labels="a=b", version="5", timeout_s=240) as events:
            assert [(each["type"], each["object"]) for each in events] == [
                ("ADDED", POD), ("MODIFIED", {"said": "µ€"}), ("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
            ]  # fmt: skip
    assert api.asked[0]["query"] == {
        "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "5", "timeoutSeconds": "240",
        "labelSelector": "a=b",
    }  # fmt: skip


def old(handler: Handler) -> None:
    handler.stream(event("ADDED", **POD), event("ERROR", code=410, reason="Expired", message="too old"))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(410, "too old resource version: 1 (313)", "Expired"), Expired),
        (old, Expired),
        (lambda handler: handler.stream(event("ERROR", code=500, message="etcd")), AwayError),
        (lambda handler: handler.stream(event("ADDED", **POD), cut=True), AwayError),
        (lambda handler: handler.stream(b"what?\n"), AwayError),
        (refused(500), AwayError),
        (refused(403, "no"), ApiError),
    ],
)
def test_a_broken_watch_raises_and_is_not_retried(
    client: Callable[..., Client], clock: Clock, answer: Answer, kind: type[Exception]
) -> None:
    with serving(answer) as api:
        with pytest.raises(kind), client(api).watch(PODS, labels="", version="1", timeout_s=9) as events:
            list(events)
        assert (len(api.asked), clock.slept) == (1, [])


@pytest.mark.slow
def test_a_silent_watch_times_out(client: Callable[..., Client]) -> None:
    over = threading.Event()
    with serving(lambda handler: handler.stream(event("ADDED", **POD), hang=over)) as api:
        with client(api).watch(PODS, labels="", version="1", timeout_s=9, silence_s=3.0) as events:
            assert next(events)["type"] == "ADDED"
            with pytest.raises(AwayError, match="no answer within 3 s"):
                next(events)
        over.set()


@pytest.mark.slow
def test_a_stream_lives_longer_than_a_connection_may_take(
    client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(handler: Handler) -> None:
        handler.stream(event("ADDED", **POD), hang=over)

    monkeypatch.setattr(session, "CONNECT_S", 0.2)
    over = threading.Event()
    with serving(slow) as api, client(api).watch(PODS, labels="", version="1", timeout_s=9) as events:
        assert next(events)["type"] == "ADDED"
        threading.Timer(0.5, over.set).start()
        assert list(events) == []


def test_a_log_stream_yields_the_raw_bytes(client: Callable[..., Client]) -> None:
    said = b"2026-11-20T22:11:20.1Z a\xff\r\r\n2026-11-20T22:11:21.2Z no end"
    with serving(lambda handler: handler.stream(said[:30], said[30:]), (204, b"", {})) as api:
        one = client(api)
        with one.log("p", "c", follow=True, since="2026-11-20T22:11:20Z") as pieces:
            assert b"".join(pieces) == said
        with one.log("p", "c", follow=False, since=None, previous=True) as pieces:
            assert list(pieces) == []
    assert {asked["path"] for asked in api.asked} == {"/api/v1/namespaces/default/pods/p/log"}
    assert [asked["query"] for asked in api.asked] == [
        {"container": "c", "timestamps": "true", "follow": "true", "sinceTime": "2026-11-20T22:11:20Z"},
        {"container": "c", "timestamps": "true", "previous": "true"},
    ]


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (refused(400, 'container "c" is waiting to start: ContainerCreating'), ApiError, "waiting to start"),
        (refused(404, 'pods "p" not found', "NotFound"), ApiError, "not found"),
        (refused(500, 'Get "https://127.0.0.1:26250/containerLogs/": dial tcp: refused'), AwayError, "containerLogs"),
        (lambda handler: handler.stream(b"half a l", cut=True), AwayError, "the connection broke"),
        (reset, AwayError, "the connection broke"),
    ],
)
def test_a_broken_log_stream_raises_and_is_not_retried(
    client: Callable[..., Client], answer: Answer, kind: type[Exception], says: str
) -> None:
    with serving(answer) as api:
        with pytest.raises(kind, match=says), client(api).log("p", "c", follow=True, since=None) as pieces:
            list(pieces)
        assert len(api.asked) == 1
