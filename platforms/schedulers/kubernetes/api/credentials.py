"""Who we are at a cluster, from the `user` of a kubeconfig: a token, its file, a certificate, or a program to ask."""

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

PROGRAM_S = 60.0  # how long a program may take that logs in
EARLY_S = 30.0  # how long before its end a credential is asked for again
AGAIN_S = 5.0  # how soon it is asked again at the earliest, whatever it says
TOKEN_FILE_S = 60.0  # how long the content of a token's file is believed
_INFO = "KUBERNETES_EXEC_INFO"


@dataclass(frozen=True)
class Credentials:
    """`header` is what stands in Authorization, `user` what is left for the client library: certificates, old ways.

    They are to be read again at `until_s` (Unix seconds), if that is given.
    """

    header: str = field(default="", repr=False)
    user: Mapping[str, Any] = field(default_factory=dict, repr=False)
    until_s: float | None = None


def credentials(found: ResolvedTarget, now_s: float) -> Credentials:
    """Read them, or have them made.

    Raises ConfigError for what is wrong with the file, RefusedError for a program that is not installed, LoginNeeded
    when it gives nothing, AwayError when it does not end.
    """
    user = dict(found.user)
    token, file, plugin = user.pop("token", None), user.pop("tokenFile", None), user.pop("exec", None)
    if file:
        try:
            token = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "is no text"
            raise ConfigError([f"{found.source}: context {found.context!r}: tokenFile {file}: {why}"]) from None
        return Credentials(_bearer(token), user, now_s + TOKEN_FILE_S)
    if token:
        return Credentials(_bearer(str(token)), user)
    if plugin and not user.get("auth-provider"):
        return _from_program(found, plugin, user, now_s)
    if "username" in user and "password" in user:
        pair = f"{user.pop('username')}:{user.pop('password')}"
        return Credentials(f"Basic {base64.b64encode(pair.encode()).decode()}", user)
    return Credentials("", user)


def login_needed(found: ResolvedTarget, why: str) -> LoginNeeded:
    """What a person can do about it: see for themselves what kubectl says, and follow that."""
    command = f"{found.kubectl} auth whoami"
    return LoginNeeded(f"cluster {found.context}: {why}. Type `{command}`", command)


def _bearer(token: str) -> str:
    return f"Bearer {token.strip()}"


def _from_program(found: ResolvedTarget, plugin: Mapping[str, Any], user: dict[str, Any], now_s: float) -> Credentials:
    status = _ask_program(found, plugin)
    end_s = _seconds(status.get("expirationTimestamp"))
    until_s = None if end_s is None else max(end_s - EARLY_S, now_s + AGAIN_S)
    if certificate := status.get("clientCertificateData"):
        pair = {"client-certificate-data": certificate, "client-key-data": status.get("clientKeyData") or ""}
        user |= {key: base64.b64encode(str(text).encode()).decode() for key, text in pair.items()}
    elif not status.get("token"):
        raise login_needed(found, f"{plugin.get('command')} gives neither a token nor a certificate")
    header = _bearer(str(status["token"])) if status.get("token") else ""
    return Credentials(header, user, until_s)


def _ask_program(found: ResolvedTarget, plugin: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `status` of the ExecCredential that a credential plugin writes (client.authentication.k8s.io)."""
    command, where = str(plugin.get("command") or ""), f"{found.source}: context {found.context!r}"
    env = {**os.environ, **{str(each["name"]): str(each["value"]) for each in plugin.get("env") or ()}}
    program = shutil.which(command, path=env.get("PATH"))
    if program is None:
        hint = " ".join(str(plugin.get("installHint") or "install it, or use another context").split())
        raise RefusedError(f"{where} logs in with {command or 'a program'}, which is not installed here: {hint}")
    env[_INFO] = json.dumps(_info(found, plugin))
    argv = [program, *map(str, plugin.get("args") or ())]
    try:
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROGRAM_S)
    except subprocess.TimeoutExpired:
        raise login_needed(found, f"{command} gives no credentials within {PROGRAM_S:.0f} s") from None
    except OSError as error:
        raise AwayError(f"{where}: {program} cannot be started: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300] or "no word of why"
        raise login_needed(found, f"{command} gives no credentials (exit code {done.returncode}): {said}")
    try:
        status = json.loads(done.stdout)["status"]
    except (ValueError, KeyError, TypeError):
        status = None
    if not isinstance(status, dict):
        raise login_needed(found, f"{command} answers with something that is no ExecCredential")
    return status


def _info(found: ResolvedTarget, plugin: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        keys = {"server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url"}
        spec["cluster"] = {key: value for key, value in found.cluster.items() if key in keys}
        extensions = found.cluster.get("extensions") or ()
        mine = [each["extension"] for each in extensions if each.get("name") == "client.authentication.k8s.io/exec"]
        if mine:
            spec["cluster"]["config"] = mine[0]
    return {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": spec}


def _seconds(stamp: object) -> float | None:
    try:
        return datetime.fromisoformat(str(stamp)).timestamp() if stamp else None
    except ValueError:
        return None
