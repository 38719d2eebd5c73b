"""What ssh says on stderr -> what is wrong, for whom, and what to type."""

from __future__ import annotations

import re
import shlex

from platforms.job import AwayError, BenchError, RefusedError
from platforms.transports import ssh

NOT_SENT = "hpc-ml-bench: no session"
# Where the connection has no session for us, or is gone, ssh would log in by itself, which a site with one-time codes
# answers by a lockout. This is all that it can do instead, and it says that the command was not sent.
NO_LOGIN = f"ProxyCommand=sh -c 'echo {NOT_SENT} >&2'"


def was_not_sent(words: str) -> bool:
    """Whether no session was opened for the command, so that it can be sent again."""
    refused = "Session open refused by peer" in words
    # a connection that ends in the middle of asking leaves open whether it had passed the command on
    return refused or (NOT_SENT in words and "mux_client" not in words)


def explain(login: ssh.Login, settings: ssh.Settings | None, text: str, socket: str) -> BenchError:
    """What ssh said when it could not log in -> what is wrong, and what to type.

    `socket` is the ControlPath for a person's connection where ssh's configuration has none.
    """
    words = ssh.one_line(text)
    if "REVOKED" in text:
        return ssh.revoked_host_key(login.host, words)
    if "IDENTIFICATION HAS CHANGED" in text:
        known_as = settings.known_as if settings else login.host
        return _changed(login, known_as, text)
    if "Host key verification failed" in text:
        return ssh.unknown_host_key(login, login.host, words)
    if re.search(r"Could not resolve hostname .*(not known|nodename nor|No address)", text):
        return ssh.no_such_host(login, login.host, words)
    if "Bad configuration option" in text or "bad configuration options" in text:
        return RefusedError(f"{login.host}: ssh's configuration cannot be used: {words}")
    if match := re.search(r"Permission denied \(([^)]*)\)|Too many authentication failures", text):
        return _denied(login, settings, match[1] or "", words, socket)
    return AwayError(f"{login.host}: no connection: {words or 'ssh says nothing'}. Try `{login.typed()}`")


def _changed(login: ssh.Login, known_as: str, text: str) -> RefusedError:
    """The jump host's key may be the one that has changed: ssh names file and line, and the name to remove."""
    file = re.search(r"Offending \S+ key in (.+?):\d+", text)
    name = re.search(r"Host key for (\S+) has changed", text)
    sent = re.search(r"SHA256:[\w+/=]+", text)
    return ssh.changed_host_key(
        login,
        login.host,
        name[1] if name else known_as,
        file[1] if file else "~/.ssh/known_hosts",
        f"it sent {sent[0]}" if sent else "host key verification failed",
    )


def _denied(login: ssh.Login, settings: ssh.Settings | None, methods: str, words: str, socket: str) -> BenchError:
    locked = [path for path in (settings.identity_files if settings else ()) if ssh.is_locked(path)]
    asks = {"keyboard-interactive", "password"} & set(methods.split(","))
    if not asks and not locked:
        return ssh.key_refused(login, login.host, settings.user if settings else "", words)
    why = f"it asks for {' or '.join(sorted(asks))}" if asks else f"the key {locked[0]} wants its passphrase"
    options = ["-MNf"] if settings and settings.control_path else ["-MNf", "-o", f"ControlPath={socket}"]
    then = "; the connection that it opens is then used, and stays in the background until `ssh -O exit`"
    if not asks:
        then += f" (or `ssh-add {shlex.quote(str(locked[0]))}`)"
    return ssh.person_needed(login.host, f"only a person can log in, {why}", login.typed(*options), then)
