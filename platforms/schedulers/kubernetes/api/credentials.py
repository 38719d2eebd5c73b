"""Runs the program by which a kubeconfig's user logs in, and says when credentials must be read again.

The client library can run such programs, too, but it gives them no deadline, lets them ask at our terminal, and logs
their errors instead of raising them: the user would read "401 Unauthorized" in place of "Session expired".
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from platforms import environ
from platforms.job import AwayError, LoginNeeded, RefusedError
from platforms.schedulers.kubernetes.api.kubeconfig import ResolvedTarget

PROGRAM_S = 60.0  # how long a login program may take
EARLY_S = 30.0  # a credential is renewed so long before it expires
AGAIN_S = 5.0  # a login program runs no sooner again, whatever expiry it states
TOKEN_FILE_S = 60.0  # how long the content of a token's file is used before it is read again
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True)
class Credentials:
    """The `user` of a kubeconfig without a login program: what that program gave stands in its place.

    At `until_s` (Unix seconds) they must be read again. None: never.
    """

    user: Mapping[str, Any] = field(repr=False)
    until_s: float | None = None


def credentials(target: ResolvedTarget, now_s: float) -> Credentials:
    """Return the credentials of a kubeconfig's user; if they come from a program that logs in, run it.

    Raises RefusedError for a login program that is not installed, LoginNeeded when the program gives no credentials in
    time, AwayError when it cannot be started.
    """
    user = dict(target.user)
    if user.get("tokenFile"):
        user.pop("token", None)  # as kubectl does it: the file wins, because its token is renewed
        return Credentials(user, now_s + TOKEN_FILE_S)
    plugin = user.pop("exec", None)
    if plugin and not user.get("token") and not user.get("auth-provider"):
        return _from_program(target, plugin, user, now_s)
    return Credentials(user)


def login_needed(target: ResolvedTarget, why: str) -> LoginNeeded:
    """Return an error with a command that shows a person what kubectl says about the login."""
    command = f"{target.kubectl} auth whoami"
    return LoginNeeded(f"cluster {target.context}: {why}. Type `{command}`", command)


def _from_program(target: ResolvedTarget, plugin: Mapping[str, Any], user: dict[str, Any], now_s: float) -> Credentials:
    status = _run_program(target, plugin)
    token = status.get("token")
    certificate = status.get("clientCertificateData")
    if not token and not certificate:
        raise login_needed(target, f"{plugin.get('command')} gives neither a token nor a certificate")
    if token:
        user["token"] = str(token)
    if certificate:
        user["client-certificate-data"] = base64.b64encode(str(certificate).encode()).decode()
        user["client-key-data"] = base64.b64encode(str(status.get("clientKeyData")).encode()).decode()
    try:
        expires_s = datetime.fromisoformat(str(status.get("expirationTimestamp"))).timestamp()
    except ValueError:  # there is none
        return Credentials(user)
    return Credentials(user, max(expires_s - EARLY_S, now_s + AGAIN_S))


def _run_program(target: ResolvedTarget, plugin: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run a credential plugin and return the `status` of its ExecCredential (client.authentication.k8s.io)."""
    command = str(plugin.get("command") or "")
    env = environ.copied()
    for variable in plugin.get("env") or ():
        env[str(variable["name"])] = str(variable["value"])
    env["KUBERNETES_EXEC_INFO"] = json.dumps(_exec_info(target, plugin))
    program = shutil.which(command, path=env.get("PATH"))
    if program is None:
        hint = " ".join(str(plugin.get("installHint") or "install it, or use another context").split())
        raise RefusedError(f"{target.entry} logs in with {command or 'a program'}, which is not installed here: {hint}")
    argv = [program, *map(str, plugin.get("args") or ())]
    try:
        result = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROGRAM_S)
    except subprocess.TimeoutExpired:
        raise login_needed(target, f"{command} gives no credentials within {PROGRAM_S:.0f} s") from None
    except OSError as error:
        raise AwayError(f"{target.entry}: {program} cannot be started: {error.strerror}") from None
    if result.returncode:
        last_line = result.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
        why = last_line or "it gives no reason"
        raise login_needed(target, f"{command} gives no credentials (exit code {result.returncode}): {why}")
    try:
        return dict(json.loads(result.stdout)["status"])
    except (ValueError, KeyError, TypeError):
        raise login_needed(target, f"{command} gives an answer that is not an ExecCredential") from None


def _exec_info(target: ResolvedTarget, plugin: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a credential plugin reads from KUBERNETES_EXEC_INFO."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        cluster = dict(target.cluster)
        for extension in cluster.pop("extensions", None) or ():
            if extension.get("name") == _EXEC_EXTENSION:
                cluster["config"] = extension["extension"]
        spec["cluster"] = cluster
    return {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": spec}
