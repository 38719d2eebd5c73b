"""Container images of the test cluster: which there are, what is in them, and what pulling others answers."""

from __future__ import annotations

import http.client
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EMPTY = "127.0.0.1:25999"  # a registry that is there and holds nothing
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
    """What pulls of certain images answer, for a number of times (None: for ever)."""

    pattern: re.Pattern[str]
    answer: str
    times: int | None = None


class Images(MutableMapping[str, dict[str, str]]):
    """Image -> its environment. PATH is the machine's where it is not given, with this Python first."""

    def __init__(self) -> None:
        self._present: dict[str, dict[str, str]] = {}
        self.refusals: list[Refusal] = []
        self.users: dict[str, int] = {}  # who an image runs as where the pod does not say; 0 where nothing stands here
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
        """Pulls of images that match answer so (a key of ANSWERS, or any text): that many times, then they work."""
        self.refusals.insert(0, Refusal(re.compile(pattern), answer, times))

    def pull(self, image: str) -> str:
        """Why it cannot be pulled; empty: it can. An image that is neither here nor refused is not found."""
        for refusal in self.refusals:
            if refusal.pattern.search(image) and refusal.times != 0:
                if refusal.times is not None:
                    refusal.times -= 1
                return _said(refusal.answer, image)
        healed = any(refusal.pattern.search(image) for refusal in self.refusals)
        return "" if healed or image in self._present else _asked(image)

    def present(self, image: str) -> bool:
        """Whether it is on the nodes already."""
        return image in self._present

    def keep(self, image: str) -> None:
        """It has been pulled."""
        self._present.setdefault(image, {})


def invalid(image: str) -> str:
    """Why no registry can have such an image; empty: it might."""
    if _NAME.match(image):
        return ""
    name = image.partition(":")[0]
    why = "invalid reference format"
    if name != name.lower():
        why += f": repository name ({name if '/' in name else f'library/{name}'}) must be lowercase"
    return f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {why}'


def is_always_pulled(image: str, policy: str | None) -> bool:
    """imagePullPolicy, with its default by the image's tag."""
    tag = (match["tag"] if (match := _NAME.match(image)) else None) or "latest"
    return (policy or ("Always" if tag == "latest" and "@" not in image else "IfNotPresent")) == "Always"


def _asked(image: str) -> str:
    """Why a registry on this machine has none; there is no other registry."""
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
