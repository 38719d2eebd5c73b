"""What an API server answers, and what goes wrong on the way there, as three errors: ApiError is a no, Trouble may be
gone the next time, and RefusedError needs a person."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from platforms.job import ConfigError, RefusedError
from platforms.schedulers.kubernetes.api.kubeconfig import ResolvedTarget

SAID = 500  # characters of an answer that is no Status which are shown
UNAUTHORIZED, SLOW, CONFLICT, TOO_MANY = 401, 408, 409, 429
UNDONE = (CONFLICT, TOO_MANY)  # surely nothing was done
TRANSIENT = (0, SLOW, *UNDONE, 500, 502, 503, 504)  # 0: no answer
# Others used the same quota at the same moment (kubernetes#67761). Any other conflict is about the object itself.
_QUOTA_IS_WRITTEN = re.compile(r"Operation cannot be fulfilled on \w*resourcequotas")
_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
}


class ApiError(Exception):
    """An answer that is an error and would be the same the next time: `reason` is the server's word for it, as in
    AlreadyExists, `message` its sentence, `causes` what it names one by one, as in `spec.x: Required value`."""

    def __init__(self, status: int, reason: str, message: str, causes: tuple[str, ...] = ()) -> None:
        self.status, self.reason, self.message, self.causes = status, reason, message, causes
        super().__init__(message)


class Expired(Exception):
    """What was asked for lies too far back (410): list again."""


class HttpError(Exception):
    """An HTTP answer that is no success, as it came; with status 0 none came for want of TLS, and `phrase` says why."""

    def __init__(self, status: int, phrase: str, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.phrase, self.headers, self.body = status, phrase, headers, body
        super().__init__(phrase)


class TransientError(Exception):
    """No answer (status 0), or one that may be another the next time. `after_s`: how long the server wants to be left
    alone."""

    def __init__(self, status: int, message: str, after_s: float = 0.0) -> None:
        self.status, self.message, self.after_s = status, message, after_s
        super().__init__(message)


@contextmanager
def translated_errors(found: ResolvedTarget, limit_s: float) -> Iterator[None]:
    """Whatever the client library and the network raise, as one of ours. `limit_s`: how long bytes were waited for."""
    import urllib3

    try:
        yield
    except HttpError as refused:
        raise (_of_answer(refused) if refused.status else _of_tls(found, refused.phrase)) from None
    except urllib3.exceptions.SSLError as error:
        raise _of_tls(found, str(error)) from None
    except urllib3.exceptions.LocationValueError:
        raise ConfigError([f"{found.source}: context {found.context!r}: server {found.server} is no address"]) from None
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise TransientError(0, _words(error, found.server, limit_s)) from None
    except ValueError:  # by http.client, with the header in its words: a token is not for showing
        raise ConfigError(
            [f"{found.source}: context {found.context!r}: its token cannot be a header's value"]
        ) from None


def json_object(found: ResolvedTarget, body: bytes) -> dict[str, Any]:
    """The object that an answer is. Raises Trouble when it is something else, as a page on which to log in."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return answer
    start = " ".join(body.decode(errors="replace").split())[:SAID]
    raise TransientError(0, f"{found.server} answers with something that is no JSON: {start!r}")


def error_of_event(status: Mapping[str, Any]) -> ApiError | TransientError | Expired:
    """A Status object that came as an event of a watch."""
    return _of_status(int(status.get("code") or 0), status, 0.0)


def _of_answer(refused: HttpError) -> ApiError | TransientError | Expired:
    text, code = refused.body.decode(errors="replace"), refused.status
    try:
        status = json.loads(text)
    except ValueError:
        status = None
    if not isinstance(status, dict) or "message" not in status:
        words = " ".join(re.sub(r"<[^>]*>", " ", text).split())[:SAID]
        status = {"message": words or f"{refused.phrase or 'no word of why'} (HTTP {code})"}
    return _of_status(code, status, _after_s(refused.headers))


def _of_status(code: int, status: Mapping[str, Any], after_s: float) -> ApiError | TransientError | Expired:
    message = str(status.get("message") or status.get("reason") or f"HTTP {code}")
    if code == 410:
        return Expired(message)
    busy = code == CONFLICT and _QUOTA_IS_WRITTEN.match(message)
    if code in (UNAUTHORIZED, SLOW, TOO_MANY) or code >= 500 or code == 0 or busy:
        return TransientError(code, message, after_s)
    causes = tuple(_causes((status.get("details") or {}).get("causes") or ()))
    return ApiError(code, str(status.get("reason") or _REASONS.get(code, "")), message, causes)


def _causes(causes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for cause in causes:
        yield ": ".join(str(cause[key]) for key in ("field", "message") if cause.get(key))


def _after_s(headers: Mapping[str, str]) -> float:
    """Retry-After in seconds; a date, which nobody sends, is none."""
    value = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    return float(value) if re.fullmatch(r"\d+", value.strip()) else 0.0


def _of_tls(found: ResolvedTarget, said: str) -> TransientError | RefusedError:
    words = " ".join(said.split())
    where = f"{found.source}: context {found.context!r}: {found.server}"
    if "CERTIFICATE_VERIFY_FAILED" in words or "doesn't match" in words:
        why = match[1] if (match := re.search(r"verify failed: (.*?)(?: \(_ssl|$)", words)) else words
        cure = "was the cluster made anew? Then get its kubeconfig again (`certificate-authority`)"
        return RefusedError(f"{where} shows a certificate that is not accepted ({why}): {cure}")
    if "WRONG_VERSION_NUMBER" in words or "RECORD_LAYER_FAILURE" in words:
        return RefusedError(f"{where} speaks no TLS: is `server:` right? An address without TLS begins with http://")
    if any(word in words for word in ("PEM", "NO_CERTIFICATE", "KEY_VALUES_MISMATCH", "NO_START_LINE")):
        return RefusedError(f"{where}: our certificates cannot be used ({words}): get the kubeconfig again")
    if "ALERT" in words.upper() and "CERTIFICATE" in words.upper():
        return RefusedError(f"{where} does not accept our certificate ({words}): get the kubeconfig again")
    return TransientError(0, f"{found.server}: no connection: {words}")


def _words(error: BaseException, server: str, limit_s: float) -> str:
    """What a person can use of an error that has wrapped others."""
    import urllib3

    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return f"{server}: no connection: {_reason(error)}"
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
        return f"{server}: no connection: nobody answers"
    if isinstance(error, urllib3.exceptions.ReadTimeoutError):
        return f"{server}: no answer within {limit_s:.0f} s"
    if isinstance(error, urllib3.exceptions.ProxyError):
        return f"{server}: not reached through its proxy: {_reason(error)}"
    return f"{server}: the connection broke: {_reason(error)}"


def _reason(error: BaseException) -> str:
    """The innermost cause that says something."""
    inner: BaseException | None = error
    words = ""
    while inner is not None:
        own = inner.strerror if isinstance(inner, OSError) and inner.strerror else str(inner)
        words = re.sub(r"^\S*(<[^>]*>|\(host=[^)]*\)): ", "", own) or words
        arguments = (each for each in inner.args if isinstance(each, BaseException))
        inner = inner.__cause__ or inner.__context__ or next(arguments, None)
    return words or type(error).__name__
