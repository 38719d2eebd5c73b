"""What is wrong with a manifest anywhere, whatever a site's own rules are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.job import names_a_secret
from platforms.schedulers.kubernetes import labels
from platforms.schedulers.kubernetes.objects import Object, TreePath, containers, templates
from platforms.values import quantity_of

# Rules that are law everywhere: who breaks them is refused by the cluster, runs something else than was meant, or tells
# what nobody should know.
ALWAYS = frozenset({"names", "words", "secrets"})

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DOTTED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9][-a-z0-9.]*")
_IPUJOB_LONGEST = 36  # the operator acquires no IPUs for longer names (EIDF's Graphcore FAQ, until 2026)
_TWO_WORDS = re.compile(r"(--?[A-Za-z][\w-]*)\s+(\S.*)")
_TORCH = re.compile(r"\btorchrun\b|torch\.distributed")
_STILL_OPEN = re.compile(r"set in site\.yaml>|\$\{")
_THREADS = "OMP_NUM_THREADS"
_RFC = "small letters, digits and -, as RFC 1123 has it"


@dataclass(frozen=True)
class Finding:
    """Which rule is broken, where in the object, and how."""

    rule: str
    path: TreePath
    what: str


def findings(each: Object) -> Iterator[Finding]:
    """Everything that is wrong with one object."""
    yield from _names(each)
    for path, template in templates(each):
        yield from _pod(each, template, path)
        for place, container in containers(template, path):
            yield from _words(container, place)
            yield from _secrets(container, place)
            yield from _needs(container, template, place)
            yield from _image(container, place)


def devices(container: Mapping[str, Any]) -> float:
    """How many devices a container asks for: resources with somebody's name before a slash."""
    limits = _mapping(_mapping(container.get("resources")).get("limits"))
    return max((amount_of(value) for name, value in limits.items() if "/" in str(name)), default=0.0)


def amount_of(value: object) -> float:
    """A quantity, as a number; 0 of what is none."""
    try:
        return quantity_of(str(value))
    except ValueError:
        return 0.0


def open_yet(text: object) -> bool:
    """Whether a site, or who fills the holes, has still to say what stands there."""
    return isinstance(text, str) and bool(_STILL_OPEN.search(text))


def _names(each: Object) -> Iterator[Finding]:
    metadata, path = _mapping(each.get("metadata")), ("metadata",)
    runs_pods = next(templates(each), None) is not None
    most = _IPUJOB_LONGEST if each.get("kind") == "IPUJob" else labels.LONGEST if runs_pods else 253
    yield from _name(metadata.get("name"), (*path, "name"), _DOTTED, most)
    if "name" not in metadata:  # five letters are added to it
        yield from _name(metadata.get("generateName"), (*path, "generateName"), _PREFIX, most - 5)
    for place, template in templates(each):
        for where, container in containers(template, place):
            yield from _name(container.get("name"), (*where, "name"), _NAME, labels.LONGEST)
        for index, volume in enumerate(template["spec"].get("volumes") or ()):
            yield from _name(volume.get("name"), (*place, "spec", "volumes", index, "name"), _NAME, labels.LONGEST)


def _name(name: object, path: TreePath, pattern: re.Pattern[str], most: int) -> Iterator[Finding]:
    if name is None or open_yet(name):
        return
    if not isinstance(name, str) or not pattern.fullmatch(name):
        yield Finding("names", path, f"{name!r} is no name that Kubernetes takes ({_RFC})")
    elif len(name) > most:
        yield Finding("names", path, f"{name!r} is longer than {most} characters")


def _words(container: Object, path: TreePath) -> Iterator[Finding]:
    for key in ("command", "args"):
        for index, word in enumerate(container.get(key) or ()):
            match = _TWO_WORDS.fullmatch(word) if isinstance(word, str) else None
            if match:
                what = f"{word!r} reaches the program as one word: write '{match[1]}' and '{match[2]}' as two"
                yield Finding("words", (*path, key, index), what)


def _secrets(container: Object, path: TreePath) -> Iterator[Finding]:
    for index, one in enumerate(container.get("env") or ()):
        name = one.get("name") if isinstance(one, dict) else None
        if isinstance(name, str) and names_a_secret(name) and one.get("value") and not open_yet(one["value"]):
            what = f"the value of {name} looks like a secret, and secrets never stand in a manifest (use secretKeyRef)"
            yield Finding("secrets", (*path, "env", index), what)


def _pod(each: Object, template: Object, path: TreePath) -> Iterator[Finding]:
    spec = template["spec"]
    bare = [one for _, one in containers(template, path) if not one.get("securityContext")]
    if bare and not spec.get("securityContext"):
        what = "there is no securityContext, so that it runs as the image likes, as root mostly"
        yield Finding("security", (*path, "spec"), what)
    own, run = _mapping(each.get("spec")), _mapping(_mapping(each.get("spec")).get("runPolicy"))
    limited = any("activeDeadlineSeconds" in one for one in (spec, own, run))
    if not limited and labels.MAX_EXEC_TIME not in _mapping(_mapping(each.get("metadata")).get("labels")):
        what = "nothing ends it when nobody is there to: it has no activeDeadlineSeconds"
        yield Finding("deadline", (*path, "spec"), what)


def _needs(container: Object, template: Object, path: TreePath) -> Iterator[Finding]:
    name, count = container.get("name"), devices(container)
    words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
    torch = any(_TORCH.search(word) for word in words)
    if (count > 1 or torch) and not _shared_memory(container, template["spec"]):
        ranks = "torchrun" if torch else f"{count:g} devices"
        what = f"container {name}: {ranks} and no emptyDir of medium Memory at /dev/shm, which has 64 MB otherwise"
        yield Finding("shm", path, what)
    known = {one.get("name") for one in container.get("env") or () if isinstance(one, dict)}
    said = _THREADS in known or "envFrom" in container or any(_THREADS in word for word in words)
    if (count or torch) and not said:
        what = f"container {name}: {_THREADS} is not set, and libraries count the cores of the whole node"
        yield Finding("threads", (*path, "env") if "env" in container else path, what)
    resources = _mapping(container.get("resources"))
    limits, requests = _mapping(resources.get("limits")), _mapping(resources.get("requests"))
    if missing := [key for key in ("cpu", "memory") if key in limits and key not in requests]:
        what = f"container {name}: there are limits and no requests of {' and '.join(missing)}"
        yield Finding("requests", (*path, "resources"), what)


def _shared_memory(container: Object, spec: Mapping[str, Any]) -> bool:
    """Whether ranks have room to meet in memory: a volume of it, or the node's own."""
    memory = {
        volume.get("name")
        for volume in spec.get("volumes") or ()
        if _mapping(volume.get("emptyDir")).get("medium") == "Memory"
    }
    mounts: Sequence[Mapping[str, Any]] = container.get("volumeMounts") or ()
    mounted = any(mount.get("mountPath") == "/dev/shm" and mount.get("name") in memory for mount in mounts)
    return mounted or spec.get("hostIPC") is True


def _image(container: Object, path: TreePath) -> Iterator[Finding]:
    image = container.get("image")
    if not isinstance(image, str) or open_yet(image) or "@sha256:" in image:
        return
    tag = image.rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        which = f"has the tag {tag}, but no digest" if tag else "has neither tag nor digest"
        what = f"image {image} {which}: tomorrow it is another one (write {image.partition(':')[0]}@sha256:…)"
        yield Finding("image", (*path, "image"), what)
    else:
        yield Finding("digest", (*path, "image"), f"image {image} has no digest: its tag may move (write @sha256:…)")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
