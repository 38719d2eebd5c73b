"""The errors of a Kubernetes API server, with its own messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class KubeError(Exception):
    """A refused request: HTTP code, reason ("AlreadyExists"), message and details of the Status object."""

    def __init__(self, code: int, message: str, *, reason: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason or REASONS.get(code, "")
        self.message = message
        self.details = dict(details or {})

    def status(self) -> dict[str, Any]:
        """Return the body of the answer."""
        answer: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        answer |= {"message": self.message, "reason": self.reason}
        if self.details:
            answer["details"] = self.details
        return answer | {"code": self.code}


def _about(resource: str, name: str, **more: Any) -> dict[str, Any]:
    plural, _, group = resource.partition(".")
    return {"name": name, **({"group": group} if group else {}), "kind": plural, **more}


def not_found(resource: str, name: str) -> KubeError:
    """`resource` includes the group, here and below: `pods`, `jobs.batch`."""
    return KubeError(404, f'{resource} "{name}" not found', details=_about(resource, name))


def already_exists(resource: str, name: str) -> KubeError:
    return KubeError(409, f'{resource} "{name}" already exists', reason="AlreadyExists", details=_about(resource, name))


def conflict(resource: str, name: str, why: str = "") -> KubeError:
    """The default reason is that the object has been written meanwhile."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    return KubeError(
        409, f'Operation cannot be fulfilled on {resource} "{name}": {why}', details=_about(resource, name)
    )


def forbidden(resource: str, name: str, why: str) -> KubeError:
    """The refusal of an admission controller: `pods "q2" is forbidden: exceeded quota: …`."""
    subject = f'{resource} "{name}"' if name else resource
    return KubeError(403, f"{subject} is forbidden: {why}", details=_about(resource, name))


def may_not(user: str, verb: str, resource: str, group: str, name: str, namespace: str) -> KubeError:
    """The refusal of the authorizer. `resource` may have a subresource: `pods/log`."""
    where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    why = f'User "{user}" cannot {verb} resource "{resource}" in API group "{group}"{where}'
    plural = resource.partition("/")[0]
    return forbidden(f"{plural}.{group}" if group else plural, name, why)


def invalid(kind: str, name: str, causes: Sequence[tuple[str, str, str]]) -> KubeError:
    """`kind` with its group (`Job.batch`); a cause is (field, reason, message), in which message is
    `Required value: …` or `Invalid value: "x": …`."""
    listed = [f"{field}: {message}" for field, _, message in causes]
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    rows = [{"reason": reason, "message": message, "field": field} for field, reason, message in causes]
    return KubeError(422, f'{kind} "{name}" is invalid: {text}', details=_about(kind, name, causes=rows))


def bad_request(message: str) -> KubeError:
    return KubeError(400, message)


def expired(requested: int, oldest: int) -> KubeError:
    """The error of a watch that starts before the oldest remembered event."""
    return KubeError(410, f"too old resource version: {requested} ({oldest})")


def unauthorized() -> KubeError:
    return KubeError(401, "Unauthorized")
