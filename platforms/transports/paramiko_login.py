"""Logs in by paramiko, as ssh would: configuration, jump hosts, host keys, the user's keys."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import paramiko

from platforms.job import AwayError, BenchError, RefusedError
from platforms.transports import known_hosts, ssh
from platforms.transports.paramiko_connection import ERRORS, Connection, pair_with
from platforms.transports.ssh import Login, Settings

MOST_JUMPS = 8
ONLY_A_PERSON = {"keyboard-interactive", "password"}
LOG = "hpc_ml_bench.ssh"  # paramiko's default would write every lost connection to the terminal

logging.getLogger(LOG).addHandler(logging.NullHandler())


def connect(login: Login) -> Connection:
    """Log in. Raises AwayError, LoginNeeded or RefusedError with what to type."""
    return _connect(login, login.host, (), 0)


def _connect(login: Login, host: str, jumps: Sequence[str], depth: int) -> Connection:
    """Connect to one host; `jumps` replace the jump hosts that the configuration names for it."""
    if depth > MOST_JUMPS:
        raise RefusedError(f"{login.host}: more than {MOST_JUMPS} jump hosts: does ProxyJump lead back to itself?")
    settings = read_settings(host, login.config)
    hops = jumps or settings.proxy_jump
    below = _connect(login, _as_uri(hops[-1]), hops[:-1], depth + 1) if hops else None
    name = host.removeprefix("ssh://")
    connection = None
    try:
        sock, proxy = _socket(login, name, settings, below)
        connection = Connection(paramiko.Transport(sock), below, proxy)
        _greet(login, name, settings, connection.transport)
        _authenticate(login, name, settings, connection.transport)
        connection.transport.set_keepalive(round(ssh.PULSE_S))  # routers forget a connection that says nothing
        return connection
    except BaseException as error:
        to_close = connection or below
        if to_close:
            to_close.close()
        if isinstance(error, ERRORS):
            raise _no_connection(login, name, error) from error
        raise


def _as_uri(hop: str) -> str:
    return hop if hop.startswith("ssh://") else f"ssh://{hop}"


def _no_connection(login: Login, host: str, error: BaseException) -> AwayError:
    detail = (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip()
    return AwayError(f"{host}: no connection: {detail}. Try `{login.typed()}`")


# --- configuration ---------------------------------------------------------------------------------------------------


def read_settings(host: str, config: str | None) -> Settings:
    """Read the settings by ssh itself, or by paramiko where there is no ssh, as in small containers."""
    try:
        return ssh.settings(host, config)
    except FileNotFoundError:
        return _settings_without_ssh(host, config)


def _settings_without_ssh(host: str, config: str | None) -> Settings:
    file = Path(config or "~/.ssh/config").expanduser()
    match = re.fullmatch(r"(?:ssh://)?(?:(.+)@)?(\[[^]]+\]|[^:]+)(?::(\d+))?", host)
    if not match:
        raise RefusedError(f"{host}: is no host as ssh writes one: [user@]name[:port]")
    name = match[2].strip("[]")
    typed = [f'{key} "{value}"\n' for key, value in (("user", match[1]), ("port", match[3])) if value]
    try:
        lines = file.read_text().split("\n") if config or file.exists() else []
        read = (_plain_line(line, f"{file}:{number}") for number, line in enumerate(lines, start=1))
        keys = dict(paramiko.SSHConfig.from_text("".join((*typed, *read))).lookup(name))
    except (OSError, ValueError, KeyError, paramiko.SSHException) as error:
        raise RefusedError(f"{host}: {file} cannot be used without ssh (openssh-client): {error}") from error
    hops = [key for key in keys if key in ("proxyjump", "proxycommand") and (key, keys[key]) != ("proxyjump", "none")]
    for later in hops[1:]:  # only the first one counts
        del keys[later]
    return ssh.from_keys(name, {key: value if isinstance(value, list) else [value] for key, value in keys.items()})


_WORD = r"""(?:"(?:[^"\\]|\\\w)+"|(?!#)(?:[^\s"'\\]|\\\w)+)"""
_PLAIN = r"""(?:"[^"\\[]+"|(?!#)[^\s"'\\[]+)"""  # to paramiko [ begins a set of letters, and \ quotes one
_WORDS = rf"{_PLAIN}(?:\s+{_PLAIN})*"
_CRITERION = rf"!?(?:canonical|final|(?:host|originalhost|user|localuser)\s+{_PLAIN})"
# The keys that a login depends on, with the values that paramiko understands as ssh does.
_VALUES = {
    "hostname": _WORD, "user": _WORD, "port": "[0-9]+", "identityfile": _WORD, "certificatefile": _WORD,
    "identitiesonly": _WORD, "identityagent": _WORD, "hostkeyalias": _WORD, "controlpath": _WORD, "proxyjump": _WORD,
    "canonicalizehostname": _WORD, "canonicalizemaxdots": _WORD, "canonicalizefallbacklocal": _WORD,
    "addressfamily": _WORD, "canonicaldomains": _WORDS, "userknownhostsfile": _WORDS, "globalknownhostsfile": _WORDS,
    "proxycommand": ".+",  # a comment, too, is for the shell
    "host": _WORDS, "match": rf"all|{_CRITERION}(?:\s+{_CRITERION})*", "include": "(?!)",
}  # fmt: skip


def _plain_line(line: str, place: str) -> str:
    """Write a line of ssh's configuration as paramiko reads it; empty for one that no login here depends on.

    paramiko takes a comment for a part of the value, and lets a `Match` apply to every host whose criteria it does not
    know. Raises RefusedError for what only ssh understands.
    """
    line = line.strip()
    parts = re.fullmatch(r"(\w+)(?:\s*=\s*|\s+(?!=))(.+)", line)
    key = parts[1].lower() if parts else ""
    if not line or line.startswith("#") or (parts and key not in _VALUES):
        return ""
    value = re.fullmatch(rf"({_VALUES[key]})(?:\s+#.*)?", parts[2], re.IGNORECASE) if parts else None
    if not value or (key == "port" and not 0 < int(value[1]) < 1 << 16):
        raise RefusedError(f"{place}: only ssh reads this line ({line}): correct it, or install ssh (openssh-client)")
    if key == "match":
        names = r"(?<!\S)!?(canonical|final|host|originalhost|user|localuser|all)(?!\S)"
        return f"{key} {re.sub(names, lambda name: name[0].lower(), value[1], flags=re.IGNORECASE)}\n"
    # paramiko takes one pair of quotes off, also off two words with quotes
    return f"{key} {value[1]}\n" if key == "host" or _VALUES[key] == _WORD else f'{key} "{value[1]}"\n'


# --- reaching it -----------------------------------------------------------------------------------------------------


def _socket(
    login: Login, host: str, settings: Settings, below: Connection | None
) -> tuple[Any, subprocess.Popen[bytes] | None]:
    address = (settings.hostname, settings.port)
    if below:
        return below.transport.open_channel("direct-tcpip", address, ("127.0.0.1", 0), timeout=ssh.CONNECT_S), None
    if settings.proxy_command:
        return pair_with(settings.proxy_command)
    try:
        return socket.create_connection(address, timeout=ssh.CONNECT_S), None
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            raise ssh.no_such_host(login, host, f"there is no host called {settings.hostname!r}") from error
        raise
    except UnicodeError as error:  # a name that cannot be one
        raise ssh.no_such_host(login, host, f"{settings.hostname!r} is no host name") from error


def _greet(login: Login, host: str, settings: Settings, transport: paramiko.Transport) -> None:
    """Agree on session keys, then check the host's key.

    An unknown host key is never added to known_hosts.
    """
    transport.set_log_channel(LOG)
    transport.banner_timeout = transport.auth_timeout = ssh.CONNECT_S
    known = known_hosts.keys_of_host(settings.known_as, settings.known_hosts)
    options = transport.get_security_options()
    options.key_types = known_hosts.algorithms(known, options.key_types)
    transport.start_client(timeout=ssh.CONNECT_S)
    if not transport.initial_kex_done:
        raise paramiko.SSHException(f"no answer within {ssh.CONNECT_S:.0f} s")
    server_key = transport.get_remote_server_key()
    detail = f"it sent {server_key.get_name()} {server_key.fingerprint}"
    same = [host_key for host_key in known if host_key.key == server_key]
    if any(host_key.revoked for host_key in same):
        raise ssh.revoked_host_key(host, f"in {same[0].file}; {detail}")
    if same:
        return
    if known:
        raise ssh.changed_host_key(login, host, settings.known_as, str(known[0].file), detail)
    files = ", ".join(map(str, settings.known_hosts))
    raise ssh.unknown_host_key(login, host, f"{detail}, and no line for {settings.known_as} in {files}")


# --- logging in ------------------------------------------------------------------------------------------------------


def _authenticate(login: Login, host: str, settings: Settings, transport: paramiko.Transport) -> None:
    try:
        transport.auth_none(settings.user)
        return  # the server lets this user in without a key
    except paramiko.BadAuthenticationType as error:
        allowed = set(error.allowed_types)
    agent = paramiko.Agent() if settings.agent else None
    try:
        for key in _keys(settings, agent.get_keys() if agent else ()) if "publickey" in allowed else ():
            left = _offer(transport, settings.user, key)
            if left is not None:
                if left:
                    raise _person(login, host, set(left))
                return
        _refused(login, host, settings, allowed)
    finally:
        if agent:
            agent.close()


def _offer(transport: paramiko.Transport, user: str, key: paramiko.PKey) -> list[str] | None:
    """Offer a key. Returns what the server wants beside it; None when it does not take the key."""
    try:
        return list(transport.auth_publickey(user, key))
    except paramiko.AuthenticationException as error:
        if "timeout" in str(error):
            raise paramiko.SSHException("no answer while logging in") from None
        if not transport.is_active():
            raise paramiko.SSHException("it hung up while keys were offered (too many? set IdentitiesOnly)") from None
        return None


def _refused(login: Login, host: str, settings: Settings, allowed: set[str]) -> NoReturn:
    locked = [path for path in settings.identity_files if ssh.is_locked(path)]
    if locked:
        command = f"ssh-add {locked[0]}"
        why = f"the key {locked[0]} needs its passphrase, and no agent has it"
        raise ssh.person_needed(
            host, why, command, " in a shell with an agent (`eval $(ssh-agent)`), and start again there"
        )
    if allowed & ONLY_A_PERSON:
        raise _person(login, host, allowed)
    files = ", ".join(str(path) for path in settings.identity_files if path.exists()) or "no key file is there"
    raise ssh.key_refused(login, host, settings.user, files)


def _person(login: Login, host: str, methods: set[str]) -> BenchError:
    why = f"only a person can log in, it asks for {' or '.join(sorted(methods & ONLY_A_PERSON or methods))}"
    then = f" with `transport: openssh` in {login.source}, which uses the connection that you open so"
    return ssh.person_needed(host, why, login.typed("-MNf"), then)


def _keys(settings: Settings, agent_keys: Sequence[paramiko.PKey]) -> Iterator[paramiko.PKey]:
    """Yield keys in ssh's order: the agent's that the configuration names, the files, the agent's others."""
    named = {_public(path) for path in settings.identity_files}
    yield from (key for key in agent_keys if key.asbytes() in named)
    for path in settings.identity_files:
        if os.access(path, os.R_OK) and not ssh.is_locked(path):
            # paramiko raises many kinds of errors for a kind of key that it cannot read
            with contextlib.suppress(*ERRORS, ValueError, TypeError, paramiko.pkey.UnknownKeyType):
                yield from _from_file(path, settings.certificate_files)
    if not settings.identities_only:
        yield from (key for key in agent_keys if key.asbytes() not in named)


def _from_file(path: Path, certificates: Sequence[Path]) -> Iterator[paramiko.PKey]:
    """Yield the key with each of its certificates, then the key alone."""
    key = paramiko.PKey.from_path(path)  # with PATH-cert.pub where there is one
    if key.public_blob:
        yield key
    for certificate in certificates:
        with_certificate = type(key).from_private_key_file(str(path))
        with contextlib.suppress(OSError, ValueError):
            with_certificate.load_certificate(str(certificate))
            yield with_certificate
    yield type(key).from_private_key_file(str(path))


def _public(path: Path) -> bytes | None:
    try:
        return paramiko.pkey.PublicBlob.from_file(f"{path}.pub").key_blob  # type: ignore[no-any-return]
    except (OSError, ValueError, paramiko.SSHException):
        return None
