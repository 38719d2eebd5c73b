"""Authentication by one bearer token, and a list of forbidden requests."""

from __future__ import annotations

import secrets

from tests.fake_kubernetes.api.errors import KubeError, may_not, unauthorized
from tests.fake_kubernetes.api.messages import Request

USER = "system:serviceaccount:default:ci"


class Access:
    """Everything is allowed except what forbid() has named."""

    def __init__(self, token: str = "", user: str = USER) -> None:
        self.user = user
        self.token = token or secrets.token_urlsafe(24)
        self._forbidden: set[tuple[str, str]] = set()

    def renew(self) -> str:
        """Replace the token and return the new one. The old one is invalid from now on."""
        self.token = secrets.token_urlsafe(24)
        return self.token

    def forbid(self, *rules: str) -> None:
        """Forbid `events` (every verb), `pods/log` or `list nodes`. API groups are ignored."""
        self._forbidden |= {_rule(rule) for rule in rules}

    def may(self, verb: str, resource: str) -> bool:
        return not {("*", resource), (verb, resource)} & self._forbidden

    def authenticate(self, request: Request) -> None:
        """Raise KubeError 401 for a wrong token."""
        if request.headers.get("authorization", "") != f"Bearer {self.token}":
            raise unauthorized()

    def authorize(self, verb: str, resource: str, group: str, namespace: str, name: str = "") -> None:
        """Raise KubeError 403 for a forbidden request. `resource` includes its subresource: `pods/log`."""
        if not self.may(verb, resource):
            raise self.refusal(verb, resource, group, namespace, name)

    def refusal(self, verb: str, resource: str, group: str, namespace: str, name: str = "") -> KubeError:
        return may_not(self.user, verb, resource, group, name, namespace)


def _rule(text: str) -> tuple[str, str]:
    verb, _, resource = text.rpartition(" ")
    return verb or "*", resource
