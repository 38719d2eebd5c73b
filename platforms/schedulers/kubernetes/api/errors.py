"""Errors of an API server and of the way to it.

ApiError is an answer that would be the same the next time, TransientError may be gone the next time, and RefusedError
and ConfigError need a person.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from platforms.job import ConfigError, RefusedError
from platforms.schedulers.kubernetes.api.kubeconfig import ResolvedTarget

EXCERPT = 500  # so many characters are shown of an answer that is not a Status object
UNAUTHORIZED = 401
SLOW = 408
CONFLICT = 409
TOO_MANY = 429
UNDONE = (CONFLICT, TOO_MANY)  # after these the server surely did nothing
TRANSIENT = (0, SLOW, *UNDONE, 500, 502, 503, 504)  # 0: no answer
# Another request changed the same quota at the same moment (kubernetes#67761). Any other conflict is about the object.
_QUOTA_CONFLICT = re.compile(r"Operation cannot be fulfilled on \w*resourcequotas")


class ApiError(Exception):
    """An error that the server answers, and would answer again. `message` is its sentence."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


class Expired(Exception):
    """The server has dropped the version that was asked for (410 Gone): list again."""


class HttpError(Exception):
    """An HTTP answer that is not a success, as it came."""

    def __init__(self, status: int, phrase: str, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.phrase = phrase
        self.headers = headers
        self.body = body
        super().__init__(phrase)


class TransientError(Exception):
    """No answer (status 0), or an error that may be gone the next time.

    `after_s`: for so many seconds the server wants no further request.
    """

    def __init__(self, status: int, message: str, after_s: float = 0.0) -> None:
        self.status = status
        self.message = message
        self.after_s = after_s
        super().__init__(message)


@contextmanager
def translated_errors(target: ResolvedTarget, limit_s: float) -> Iterator[None]:
    """Turn whatever urllib3 and the network raise into errors of this module.

    `limit_s`: how long the request waits for bytes.
    """
    import urllib3

    try:
        yield
    except HttpError as error:
        raise _error_of_answer(error) from None
    except urllib3.exceptions.SSLError as error:
        raise _tls_error(target, str(error)) from None
    except urllib3.exceptions.LocationValueError:
        raise ConfigError([f"{target.entry}: server {target.server} is not an address"]) from None
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise TransientError(0, _network_message(error, target.server, limit_s)) from None
    except ValueError:  # http.client quotes the header in its message, so this one does not: a token is secret
        raise ConfigError([f"{target.entry}: its token has characters that an HTTP header cannot hold"]) from None


def json_object(target: ResolvedTarget, body: bytes) -> dict[str, Any]:
    """Parse an answer.

    Raises TransientError when it is not a JSON object, as a proxy's login page.
    """
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return answer
    start = " ".join(body.decode(errors="replace").split())[:EXCERPT]
    raise TransientError(0, f"{target.server} gives an answer that is not JSON: {start!r}")


def error_of_event(status: Mapping[str, Any]) -> ApiError | TransientError | Expired:
    """Translate the Status object of a watch's ERROR event."""
    return _error_of_status(int(status.get("code") or 0), status, 0.0)


def _error_of_answer(error: HttpError) -> ApiError | TransientError | Expired:
    text = error.body.decode(errors="replace")
    try:
        status = json.loads(text)
    except ValueError:
        status = None
    if not isinstance(status, dict) or "message" not in status:
        # a proxy's page, perhaps: show its text without the tags
        text_without_tags = re.sub(r"<[^>]*>", " ", text)
        excerpt = " ".join(text_without_tags.split())[:EXCERPT]
        status = {"message": excerpt or f"{error.phrase or 'the answer gives no reason'} (HTTP {error.status})"}
    return _error_of_status(error.status, status, _retry_after_s(error.headers))


def _error_of_status(code: int, status: Mapping[str, Any], after_s: float) -> ApiError | TransientError | Expired:
    message = str(status.get("message") or status.get("reason") or f"HTTP {code}")
    if code == 410:
        return Expired(message)
    is_quota_conflict = code == CONFLICT and _QUOTA_CONFLICT.match(message)
    if code in (0, UNAUTHORIZED, SLOW, TOO_MANY) or code >= 500 or is_quota_conflict:
        return TransientError(code, message, after_s)
    return ApiError(code, message)


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds of Retry-After.

    API servers do not send it as a date, so a date counts as 0.
    """
    seconds = headers.get("Retry-After", "").strip()
    return float(seconds) if seconds.isdecimal() else 0.0


def _tls_error(target: ResolvedTarget, message: str) -> TransientError | RefusedError:
    message = " ".join(message.split())
    where = f"{target.entry}: {target.server}"
    if "CERTIFICATE_VERIFY_FAILED" in message or "doesn't match" in message:
        match = re.search(r"verify failed: (.*?)(?: \(_ssl|$)", message)
        why = match[1] if match else message
        advice = "if the cluster was set up again, get its kubeconfig again (`certificate-authority`)"
        return RefusedError(f"{where} shows a certificate that is not accepted ({why}): {advice}")
    if "WRONG_VERSION_NUMBER" in message or "RECORD_LAYER_FAILURE" in message:
        return RefusedError(
            f"{where} does not speak TLS: is `server:` right? An address without TLS begins with http://"
        )
    if any(word in message for word in ("PEM", "NO_CERTIFICATE", "KEY_VALUES_MISMATCH", "NO_START_LINE")):
        return RefusedError(f"{where}: our certificates cannot be used ({message}): get the kubeconfig again")
    if "ALERT" in message.upper() and "CERTIFICATE" in message.upper():
        return RefusedError(f"{where} does not accept our certificate ({message}): get the kubeconfig again")
    return TransientError(0, f"{target.server}: no connection: {message}")


def _network_message(error: BaseException, server: str, limit_s: float) -> str:
    import urllib3

    reason = _innermost_reason(error)
    if isinstance(error, urllib3.exceptions.ReadTimeoutError):
        return f"{server}: no answer within {limit_s:.0f} s"
    if isinstance(error, urllib3.exceptions.ProxyError):
        return f"{server}: not reached through its proxy: {reason}"
    if isinstance(error, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError):
        return f"{server}: no connection: {reason}"
    return f"{server}: the connection broke: {reason}"


def _innermost_reason(error: BaseException) -> str:
    """Return the message of the innermost cause that has one: urllib3 wraps errors several times."""
    inner: BaseException | None = error
    reason = ""
    while inner is not None:
        message = str(inner)
        if isinstance(inner, OSError) and inner.strerror:
            message = inner.strerror
        # urllib3 puts the repr of its connection before the message
        message = re.sub(r"^\S*(<[^>]*>|\(host=[^)]*\)): ", "", message)
        reason = message or reason
        wrapped = (argument for argument in inner.args if isinstance(argument, BaseException))
        inner = inner.__cause__ or inner.__context__ or next(wrapped, None)
    return reason or type(error).__name__
