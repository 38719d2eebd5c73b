"""What both SSH transports share: the settings of a host in ssh's configuration, and the errors of a login."""

from __future__ import annotations

import base64
import binascii
import getpass
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from platforms import environ
from platforms.job import AwayError, ConfigError, LoginNeeded, RefusedError

if TYPE_CHECKING:
    from platforms.config.schema import Platform

SESSIONS = 8  # at once over one connection; sshd allows ten (MaxSessions), and counts those that are closing
CONNECT_S = 15.0
PULSE_S = 10.0  # between two checks whether the peer is alive
ASK_S = 20.0  # limit of a call of ssh that asks only this machine
PERSON_S = 60.0  # between two attempts that need a person: sites lock out users who fail too often
KEY_NAMES = ("id_rsa", "id_ecdsa", "id_ed25519")
_ENCRYPTED_PEM = re.compile(rb"^(Proc-Type: 4,ENCRYPTED|-----BEGIN ENCRYPTED PRIVATE KEY-----)", re.MULTILINE)


@dataclass(frozen=True)
class Login:
    """The login node that a platform's file names, and the ssh command lines that reach it."""

    host: str
    config: str | None
    source: Path

    @classmethod
    def of(cls, platform: Platform) -> Login:
        """Read it from a platform.

        Raises ConfigError if `host:` is missing or looks like an option of ssh.
        """
        if not platform.host or platform.host.startswith("-"):
            raise ConfigError([f"{platform.source}: host: is {platform.host!r}; write the login node as ssh knows it"])
        config = str(Path(platform.ssh_config).expanduser()) if platform.ssh_config else None
        return cls(platform.host, config, platform.source)

    def argv(self, *options: str) -> list[str]:
        """Return `ssh [-F FILE] OPTIONS HOST` as words."""
        return [*_ssh(self.config), *options, self.host]

    def typed(self, *options: str, command: str = "") -> str:
        """Return the same as a shell command for a person."""
        words = self.argv(*options)
        if command:
            words.append(command)
        return shlex.join(words)


class LoginTransport:
    """What both SSH transports know of their login node."""

    def __init__(
        self,
        platform: Platform,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._login = Login.of(platform)
        self.where = self._login.host
        self._login_shell = platform.login_shell
        self._clock = clock
        self._sleep = sleep
        self._slots = threading.BoundedSemaphore(SESSIONS)
        self._lock = threading.Lock()
        self._refusal: tuple[float, LoginNeeded] | None = None

    def typed(self, command: str) -> str:
        return self._login.typed(command=command)

    @contextmanager
    def _asking_seldom(self) -> Iterator[None]:
        """Log in within this. After a LoginNeeded it raises that error again for PERSON_S, and logs in no more."""
        if self._refusal and self._clock() - self._refusal[0] < PERSON_S:
            raise self._refusal[1]
        try:
            yield
        except LoginNeeded as error:
            self._refusal = (self._clock(), error)
            raise


@dataclass(frozen=True)
class Settings:
    """The settings of one host in ssh's configuration, with every default filled in."""

    hostname: str
    user: str
    port: int
    identity_files: tuple[Path, ...]
    certificate_files: tuple[Path, ...]
    identities_only: bool
    agent: bool
    proxy_jump: tuple[str, ...]
    proxy_command: str | None
    known_hosts: tuple[Path, ...]
    host_key_alias: str | None
    control_path: str | None

    @property
    def known_as(self) -> str:
        """Its name in known_hosts."""
        if self.host_key_alias:
            return self.host_key_alias
        name = self.hostname.lower()
        return name if self.port == 22 else f"[{name}]:{self.port}"


def settings(host: str, config: str | None) -> Settings:
    """Ask ssh itself (`ssh -G`), which knows Include, Match and every default. Opens no connection.

    Raises:
        RefusedError: the configuration cannot be read; with ssh's message.
        FileNotFoundError: there is no ssh.
    """
    argv = [*_ssh(config), "-G", host]
    try:
        asked = subprocess.run(
            argv, env=environ.copied(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASK_S
        )
    except subprocess.TimeoutExpired:
        raise AwayError(f"{host}: `{shlex.join(argv)}` does not end (is a file of ssh's configuration away?)") from None
    if asked.returncode != 0:
        raise RefusedError(f"{host}: ssh's configuration cannot be used: {one_line(asked.stderr)}")
    keys: dict[str, list[str]] = {}
    for line in asked.stdout.splitlines():
        key, _, value = line.partition(" ")
        keys.setdefault(key, []).append(value)
    return from_keys(host, keys)


def _ssh(config: str | None) -> list[str]:
    return ["ssh", "-F", config] if config else ["ssh"]


def from_keys(host: str, keys: Mapping[str, Sequence[str]]) -> Settings:
    """Build settings from ssh_config's keywords in lower case. Missing ones get ssh's default."""

    def first_value(key: str) -> str | None:
        value = keys.get(key, [""])[0]
        return None if value.lower() in ("", "none") else value

    name = first_value("hostname") or host.rpartition("@")[2]
    user = first_value("user") or host.rpartition("@")[0] or getpass.getuser()
    port = int(first_value("port") or 22)
    tokens = {"%%": "%", "%h": name, "%n": host, "%p": str(port), "%r": user, "%d": str(Path.home())}
    tokens["%u"] = getpass.getuser()

    def path(text: str) -> Path:
        return Path(expand(text, tokens)).expanduser()

    command = first_value("proxycommand")
    known_hosts = [*keys.get("userknownhostsfile", ["~/.ssh/known_hosts"]), *keys.get("globalknownhostsfile", [])]
    default_keys = [f"~/.ssh/{name}" for name in KEY_NAMES]
    return Settings(
        hostname=name,
        user=user,
        port=port,
        identity_files=tuple(path(text.strip('"')) for text in keys.get("identityfile", default_keys)),
        certificate_files=tuple(path(text.strip('"')) for text in keys.get("certificatefile", [])),
        identities_only=(first_value("identitiesonly") or "").lower() in ("yes", "true"),
        agent=keys.get("identityagent", [""])[0].lower() != "none",
        proxy_jump=tuple(jump.strip() for jump in (first_value("proxyjump") or "").split(",") if jump.strip()),
        proxy_command=expand(command, tokens) if command else None,
        known_hosts=tuple(path(file) for text in known_hosts for file in shlex.split(text)),
        host_key_alias=first_value("hostkeyalias"),
        control_path=first_value("controlpath"),
    )


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """Replace ssh_config's tokens such as `%h`. Unknown ones stay."""
    return re.sub(r"%.", lambda match: tokens.get(match[0], match[0]), text)


def one_line(text: str) -> str:
    """Join the lines of ssh's output, without the frames that it draws."""
    return "; ".join(line.strip() for line in text.splitlines() if line.strip("@ "))


def is_locked(key_file: Path) -> bool:
    """Return whether a private key needs a passphrase; False for a file that is no key or cannot be read."""
    try:
        content = key_file.read_bytes()
    except OSError:
        return False
    if _ENCRYPTED_PEM.search(content):
        return True
    body = re.search(rb"-----BEGIN OPENSSH PRIVATE KEY-----(.*?)-----END", content, re.DOTALL)
    if not body:
        return False
    try:
        raw = base64.b64decode(body[1])
    except binascii.Error:
        return False
    # openssh's PROTOCOL.key: magic, then the cipher's name behind its length
    return raw.startswith(b"openssh-key-v1\0") and not raw[15:].startswith(b"\0\0\0\x04none")


def unknown_host_key(login: Login, host: str, detail: str) -> RefusedError:
    return RefusedError(
        f"{host}: its host key is not known here, so it may be another machine ({detail}). Type `{login.typed()}` "
        "once, compare the fingerprint that it shows with the one that the site publishes, and only then answer yes"
    )


def changed_host_key(login: Login, host: str, known_as: str, file: str, detail: str) -> RefusedError:
    remove = shlex.join(["ssh-keygen", "-R", known_as, "-f", file])
    return RefusedError(
        f"{host}: its host key is another than the one in {file}: the machine was reinstalled, or an attacker stands "
        f"between ({detail}). Ask its administrators; only if they confirm the new fingerprint, type `{remove}` and "
        f"then `{login.typed()}`"
    )


def revoked_host_key(host: str, detail: str) -> RefusedError:
    return RefusedError(f"{host}: its host key is revoked ({detail}): do not log in there, and tell its administrators")


def key_refused(login: Login, host: str, user: str, detail: str) -> RefusedError:
    return RefusedError(
        f"{host}: refuses user {user} with every key that was offered ({detail}). Try `{login.typed('-v')}`; ssh's "
        "configuration names user and key (User, IdentityFile)"
    )


def no_such_host(login: Login, host: str, detail: str) -> RefusedError:
    return RefusedError(
        f"{host}: {detail}; is `host: {login.host}` in {login.source} spelled as in ssh's configuration?"
    )


def person_needed(host: str, why: str, command: str, then: str) -> LoginNeeded:
    return LoginNeeded(f"{host}: {why}. Type `{command}`{then}", command)
