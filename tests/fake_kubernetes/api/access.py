"""Who asks and what they may: one bearer token, and a list of what is forbidden."""

from __future__ import annotations

import secrets

from tests.fake_kubernetes.api.errors import KubeError, may_not, unauthorized
from tests.fake_kubernetes.api.messages import Request

USER = "system:serviceaccount:default:ci"


class Access:
    """Everything is allowed but what forbid() has named."""

    def __init__(self, token: str = "", user: str = USER) -> None:
        self.user = user
        self.token = token or secrets.token_urlsafe(24)
        self._forbidden: set[tuple[str, str]] = set()

    def renew(self) -> str:
        """Only the new token is good from now on."""
        self.token = secrets.token_urlsafe(24)
        return self.token

    def forbid(self, *rules: str) -> None:
        """`events` (every verb), `pods/log`, `list nodes`, `jobs`; a group is not looked at."""
        self._forbidden |= {_rule(rule) for rule in rules}

    def allow(self, *rules: str) -> None:
        """Takes back what forbid() said in the same words; without arguments all of it."""
        self._forbidden -= {_rule(rule) for rule in rules} if rules else set(self._forbidden)

    def may(self, verb: str, resource: str) -> bool:
        return not {("*", resource), (verb, resource)} & self._forbidden

    def authenticate(self, request: Request) -> None:
        """401."""
        if request.headers.get("authorization", "") != f"Bearer {self.token}":
            raise unauthorized()

    def authorize(self, verb: str, resource: str, group: str, namespace: str, name: str = "") -> None:
        """403. `resource` with its subresource: `pods/log`."""
        if not self.may(verb, resource):
            raise self.refusal(verb, resource, group, namespace, name)

    def refusal(self, verb: str, resource: str, group: str, namespace: str, name: str = "") -> KubeError:
        return may_not(self.user, verb, resource, group, name, namespace)


def _rule(text: str) -> tuple[str, str]:
    verb, _, resource = text.rpartition(" ")
    return verb or "*", resource
