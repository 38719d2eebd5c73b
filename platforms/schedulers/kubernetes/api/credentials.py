"""Credentials for a cluster from the `user` of a kubeconfig: a token, a token's file, a certificate, or a program that
logs in."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from platforms.job import AwayError, ConfigError, LoginNeeded, RefusedError
from platforms.schedulers.kubernetes.api.kubeconfig import ResolvedTarget

PROGRAM_S = 60.0  # how long a login program may take
EARLY_S = 30.0  # a credential is renewed so long before it expires
AGAIN_S = 5.0  # a login program runs no sooner again, whatever expiry it states
TOKEN_FILE_S = 60.0  # how long the content of a token's file is used before it is read again
_EXEC_INFO = "KUBERNETES_EXEC_INFO"


@dataclass(frozen=True)
class Credentials:
    """`header` is the value of Authorization. `user` is the rest, for the client library: certificates, older ways.

    At `until_s` (Unix seconds) they must be read again. None: never.
    """

    header: str = field(default="", repr=False)
    user: Mapping[str, Any] = field(default_factory=dict, repr=False)
    until_s: float | None = None


def credentials(target: ResolvedTarget, now_s: float) -> Credentials:
    """Read the credentials of a kubeconfig's user, or run the program that logs in.

    Raises ConfigError for a token's file that cannot be read, RefusedError for a login program that is not installed,
    LoginNeeded when the program gives no credentials in time, AwayError when it cannot be started.
    """
    user = dict(target.user)
    token = user.pop("token", None)
    token_file = user.pop("tokenFile", None)
    plugin = user.pop("exec", None)
    if token_file:
        return Credentials(_bearer(_read_token(target, token_file)), user, now_s + TOKEN_FILE_S)
    if token:
        return Credentials(_bearer(str(token)), user)
    if plugin and not user.get("auth-provider"):
        return _from_program(target, plugin, user, now_s)
    if "username" in user and "password" in user:
        pair = f"{user.pop('username')}:{user.pop('password')}"
        return Credentials(f"Basic {base64.b64encode(pair.encode()).decode()}", user)
    return Credentials("", user)


def login_needed(target: ResolvedTarget, why: str) -> LoginNeeded:
    """Return an error with a command that shows a person what kubectl says about the login."""
    command = f"{target.kubectl} auth whoami"
    return LoginNeeded(f"cluster {target.context}: {why}. Type `{command}`", command)


def _read_token(target: ResolvedTarget, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "the file is not text"
        raise ConfigError([f"{target.source}: context {target.context!r}: tokenFile {path}: {why}"]) from None


def _bearer(token: str) -> str:
    return f"Bearer {token.strip()}"


def _from_program(target: ResolvedTarget, plugin: Mapping[str, Any], user: dict[str, Any], now_s: float) -> Credentials:
    status = _run_program(target, plugin)
    token = status.get("token")
    certificate = status.get("clientCertificateData")
    if not token and not certificate:
        raise login_needed(target, f"{plugin.get('command')} gives neither a token nor a certificate")
    if certificate:
        user["client-certificate-data"] = _base64(certificate)
        user["client-key-data"] = _base64(status.get("clientKeyData") or "")
    expires_s = _unix_seconds(status.get("expirationTimestamp"))
    until_s = None
    if expires_s is not None:
        until_s = max(expires_s - EARLY_S, now_s + AGAIN_S)
    return Credentials(_bearer(str(token)) if token else "", user, until_s)


def _run_program(target: ResolvedTarget, plugin: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run a credential plugin and return the `status` of its ExecCredential (client.authentication.k8s.io)."""
    command = str(plugin.get("command") or "")
    where = f"{target.source}: context {target.context!r}"
    env = dict(os.environ)
    for variable in plugin.get("env") or ():
        env[str(variable["name"])] = str(variable["value"])
    program = shutil.which(command, path=env.get("PATH"))
    if program is None:
        hint = " ".join(str(plugin.get("installHint") or "install it, or use another context").split())
        raise RefusedError(f"{where} logs in with {command or 'a program'}, which is not installed here: {hint}")
    env[_EXEC_INFO] = json.dumps(_exec_info(target, plugin))
    argv = [program, *map(str, plugin.get("args") or ())]
    try:
        result = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROGRAM_S)
    except subprocess.TimeoutExpired:
        raise login_needed(target, f"{command} gives no credentials within {PROGRAM_S:.0f} s") from None
    except OSError as error:
        raise AwayError(f"{where}: {program} cannot be started: {error.strerror}") from None
    if result.returncode:
        last_line = result.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
        why = last_line or "it gives no reason"
        raise login_needed(target, f"{command} gives no credentials (exit code {result.returncode}): {why}")
    try:
        status = json.loads(result.stdout)["status"]
    except (ValueError, KeyError, TypeError):
        status = None
    if not isinstance(status, dict):
        raise login_needed(target, f"{command} gives an answer that is not an ExecCredential")
    return status


def _exec_info(target: ResolvedTarget, plugin: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a credential plugin reads from KUBERNETES_EXEC_INFO."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        keys = {"server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url"}
        spec["cluster"] = {key: value for key, value in target.cluster.items() if key in keys}
        for extension in target.cluster.get("extensions") or ():
            if extension.get("name") == "client.authentication.k8s.io/exec":
                spec["cluster"]["config"] = extension["extension"]
                break
    return {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": spec}


def _base64(value: object) -> str:
    return base64.b64encode(str(value).encode()).decode()


def _unix_seconds(timestamp: object) -> float | None:
    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp()
    except ValueError:
        return None
