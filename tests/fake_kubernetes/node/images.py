"""Container images of the fake cluster, and the errors of pulls that fail."""

from __future__ import annotations

import http.client
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EMPTY = "127.0.0.1:25999"  # a registry that exists and is empty
ANSWERS = {
    "NotFound": "rpc error: code = NotFound desc = {lead}{image}: not found",
    "401": "{lead}pulling from host {host} failed with status code [manifests {tag}]: 401 Unauthorized",
    "500": "{lead}pulling from host {host} failed with status code [manifests {tag}]: 500 Internal Server Error",
    "refused": '{lead}failed to do request: Head "http://{host}/v2/{path}/manifests/{tag}": '
    "dial tcp {host}: connect: connection refused",
}
_NAME = re.compile(
    r"^(?:(?P<host>[\w.-]+(?::\d+)?)/)?(?P<path>[a-z0-9._/-]+)(?::(?P<tag>[\w.-]+))?(?:@sha256:\w{64})?$"
)


@dataclass
class Refusal:
    """An error for pulls of matching images, for a number of times (None: always)."""

    pattern: re.Pattern[str]
    answer: str
    times: int | None = None


class Images(MutableMapping[str, dict[str, str]]):
    """Maps each image to its environment. The default PATH has this Python first, then the machine's programs."""

    def __init__(self) -> None:
        self._present: dict[str, dict[str, str]] = {}
        self.refusals: list[Refusal] = []
        self.users: dict[str, int] = {}  # the image's user id, if the pod sets none; 0 by default
        self["bench.local/busybox:1.35"] = {}
        self["bench.local/python:3.11"] = {}

    def __getitem__(self, image: str) -> dict[str, str]:
        return {"PATH": f"{Path(sys.executable).parent}:{PATH}", **self._present[image]}

    def __setitem__(self, image: str, environment: Mapping[str, str]) -> None:
        self._present[image] = dict(environment)

    def __delitem__(self, image: str) -> None:
        del self._present[image]

    def __iter__(self) -> Iterator[str]:
        return iter(self._present)

    def __len__(self) -> int:
        return len(self._present)

    def refuse(self, pattern: str, answer: str, times: int | None = None) -> None:
        """Let pulls of matching images fail `times` times with `answer`: a key of ANSWERS, or any text."""
        self.refusals.insert(0, Refusal(re.compile(pattern), answer, times))

    def pull(self, image: str) -> str:
        """Return the error of a pull, "" if it succeeds. An unknown image is not found."""
        for refusal in self.refusals:
            if refusal.pattern.search(image) and refusal.times != 0:
                if refusal.times is not None:
                    refusal.times -= 1
                return _said(refusal.answer, image)
        healed = any(refusal.pattern.search(image) for refusal in self.refusals)
        return "" if healed or image in self._present else _asked(image)

    def present(self, image: str) -> bool:
        """Return whether the nodes have the image."""
        return image in self._present

    def keep(self, image: str) -> None:
        """Record a successful pull."""
        self._present.setdefault(image, {})


def invalid(image: str) -> str:
    """Return why an image reference is invalid, "" if it is valid."""
    if _NAME.match(image):
        return ""
    name = image.partition(":")[0]
    why = "invalid reference format"
    if name != name.lower():
        why += f": repository name ({name if '/' in name else f'library/{name}'}) must be lowercase"
    return f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {why}'


def is_always_pulled(image: str, policy: str | None) -> bool:
    """Return whether the pull policy is Always; its default depends on the image's tag."""
    tag = (match["tag"] if (match := _NAME.match(image)) else None) or "latest"
    return (policy or ("Always" if tag == "latest" and "@" not in image else "IfNotPresent")) == "Always"


def _asked(image: str) -> str:
    """Ask a registry on this machine for an image and return its error, "" if it has the image."""
    match = _NAME.match(image)
    if not match or not str(match["host"]).startswith("127.0.0.1:") or match["host"] == EMPTY:
        return _said("NotFound", image)
    connection = http.client.HTTPConnection(match["host"], timeout=5)
    try:
        connection.request("HEAD", f"/v2/{match['path']}/manifests/{match['tag'] or 'latest'}")
        status = connection.getresponse().status
    except OSError:
        return _said("refused", image)
    finally:
        connection.close()
    return "" if status == 200 else _said({404: "NotFound"}.get(status, str(status)), image)


def _said(answer: str, image: str) -> str:
    match = _NAME.match(image)
    host, path, tag = (match["host"] or "docker.io", match["path"], match["tag"] or "latest") if match else ("", "", "")
    lead = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": '
    return ANSWERS.get(answer, answer).format(lead=lead, image=image, host=host, path=path, tag=tag)
