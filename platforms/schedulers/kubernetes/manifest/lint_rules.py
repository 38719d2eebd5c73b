"""What is wrong with a manifest anywhere, whatever a site's own rules are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.config.values import quantity_of
from platforms.job import names_a_secret
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.pod_templates import Object, TreePath, containers, templates

# Rules that are law everywhere: who breaks them is refused by the cluster, runs or measures something else than was
# meant, or tells what nobody should know.
ALWAYS = frozenset({"names", "words", "secrets", "limits", "cpus"})

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DOTTED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9][-a-z0-9.]*")
_IPUJOB_LONGEST = 36  # the operator acquires no IPUs for longer names (EIDF's Graphcore FAQ, until 2026)
_TWO_WORDS = re.compile(r"(--?[A-Za-z][\w-]*)\s+(\S.*)")
_TORCH = re.compile(r"\btorchrun\b|torch\.distributed")
_STILL_OPEN = re.compile(r"set in site\.yaml>|\$\{")
_RANKS = re.compile(r"--nproc[-_]per[-_]node[= ](\w+)")
_THREADS = "OMP_NUM_THREADS"
_RFC = "small letters, digits and -, as RFC 1123 has it"


@dataclass(frozen=True)
class LintFinding:
    """Which rule is broken, where in the object, and how."""

    rule: str
    path: TreePath
    what: str


def findings(each: Object) -> Iterator[LintFinding]:
    """Everything that is wrong with one object."""
    yield from _names(each)
    for path, template in templates(each):
        yield from _pod(each, template, path)
        for place, container in containers(template, path):
            yield from _words(container, place)
            yield from _secrets(container, place)
            yield from _needs(container, template, place)
            yield from _share(container, place)
            yield from _in_memory(container, template["spec"], place)
            yield from _image(container, place)


def devices(container: Mapping[str, Any]) -> float:
    """How many devices a container asks for, rightly or not: resources with somebody's name before a slash."""
    asked = [pair for kind in ("limits", "requests") for pair in _amounts(container, kind).items()]
    return max((amount_of(value) for name, value in asked if _extended(name)), default=0.0)


def amount_of(value: object) -> float:
    """A quantity, as a number; 0 of what is none."""
    try:
        return quantity_of(str(value))
    except ValueError:
        return 0.0


def open_yet(text: object) -> bool:
    """Whether a site, or who fills the holes, has still to say what stands there."""
    return isinstance(text, str) and bool(_STILL_OPEN.search(text))


def _names(each: Object) -> Iterator[LintFinding]:
    metadata, path = _mapping(each.get("metadata")), ("metadata",)
    runs_pods = next(templates(each), None) is not None
    most = _IPUJOB_LONGEST if each.get("kind") == "IPUJob" else labels.LONGEST if runs_pods else 253
    yield from _name(metadata.get("name"), (*path, "name"), _DOTTED, most)
    added = 0 if "name" in metadata else 5  # letters
    yield from _name(metadata.get("generateName"), (*path, "generateName"), _PREFIX, most - added)
    for place, template in templates(each):
        for where, container in containers(template, place):
            yield from _name(container.get("name"), (*where, "name"), _NAME, labels.LONGEST)
        for index, volume in enumerate(_listed(template["spec"].get("volumes"))):
            name = _mapping(volume).get("name")
            yield from _name(name, (*place, "spec", "volumes", index, "name"), _NAME, labels.LONGEST)


def _name(name: object, path: TreePath, pattern: re.Pattern[str], most: int) -> Iterator[LintFinding]:
    if name is None or open_yet(name):
        return
    if not isinstance(name, str) or not pattern.fullmatch(name):
        yield LintFinding("names", path, f"{name!r} is no name that Kubernetes takes ({_RFC})")
    elif len(name) > most:
        yield LintFinding("names", path, f"{name!r} is longer than {most} characters")


def _words(container: Object, path: TreePath) -> Iterator[LintFinding]:
    for key in ("command", "args"):
        words = container.get(key)
        if words is not None and not open_yet(words) and not _are_words(words):
            what = (
                f"{key}: {words!r:.60} is no list of texts (write [sh, -c, 'a line of shell'], and numbers in quotes)"
            )
            yield LintFinding("words", (*path, key), what)
            continue
        for index, word in enumerate(_listed(words)):
            match = _TWO_WORDS.fullmatch(word) if isinstance(word, str) else None
            if match:
                what = f"{word!r} reaches the program as one word: write '{match[1]}' and '{match[2]}' as two"
                yield LintFinding("words", (*path, key, index), what)


def _are_words(words: object) -> bool:
    return isinstance(words, list) and all(isinstance(word, str) for word in words)


def _secrets(container: Object, path: TreePath) -> Iterator[LintFinding]:
    for index, one in enumerate(_listed(container.get("env"))):
        name = one.get("name") if isinstance(one, dict) else None
        if isinstance(name, str) and names_a_secret(name) and one.get("value") and not open_yet(one["value"]):
            what = f"the value of {name} looks like a secret, and secrets never stand in a manifest (use secretKeyRef)"
            yield LintFinding("secrets", (*path, "env", index), what)


def _pod(each: Object, template: Object, path: TreePath) -> Iterator[LintFinding]:
    spec = template["spec"]
    bare = [one for _, one in containers(template, path) if not one.get("securityContext")]
    if bare and not spec.get("securityContext"):
        what = "there is no securityContext, so that it runs as the image likes, as root mostly"
        yield LintFinding("security", (*path, "spec"), what)
    own, run = _mapping(each.get("spec")), _mapping(_mapping(each.get("spec")).get("runPolicy"))
    limited = any("activeDeadlineSeconds" in one for one in (spec, own, run))
    if not limited and labels.MAX_EXEC_TIME not in _mapping(_mapping(each.get("metadata")).get("labels")):
        what = "nothing ends it when nobody is there to: it has no activeDeadlineSeconds"
        yield LintFinding("deadline", (*path, "spec"), what)


def _needs(container: Object, template: Object, path: TreePath) -> Iterator[LintFinding]:
    name, count = container.get("name"), devices(container)
    words = [str(word) for key in ("command", "args") for word in _listed(container.get(key))]
    torch = any(_TORCH.search(word) for word in words)
    if (count > 1 or torch) and not _shared_memory(container, template["spec"]):
        ranks = "torchrun" if torch else f"{count:g} devices"
        what = f"container {name}: {ranks} and no emptyDir of medium Memory at /dev/shm, which has 64 MB otherwise"
        yield LintFinding("shm", path, what)
    known = {one.get("name") for one in _listed(container.get("env")) if isinstance(one, dict)}
    said = _THREADS in known or "envFrom" in container or any(_THREADS in word for word in words)
    if (count or torch) and not said:
        what = f"container {name}: {_THREADS} is not set, and libraries count the cores of the whole node"
        yield LintFinding("threads", (*path, "env") if "env" in container else path, what)


def _share(container: Object, path: TreePath) -> Iterator[LintFinding]:
    """Its part of the node, and whether its threads have room there."""
    who, place = f"container {container.get('name')}", (*path, "resources")
    limits, requests = _amounts(container, "limits"), _amounts(container, "requests")
    if missing := [key for key in ("cpu", "memory") if key in limits and key not in requests]:
        yield LintFinding("requests", place, f"{who}: there are limits and no requests of {' and '.join(missing)}")
    for name, amount in requests.items():
        limit = limits.get(name)
        if open_yet(limit) or open_yet(amount):
            continue
        if _extended(name) and (limit is None or amount_of(limit) != amount_of(amount)):
            what = f"{who}: {name} is requested and not limited to the same: no pod is made of that (limit it only)"
            yield LintFinding("limits", (*place, "requests", name), what)
        elif limit is not None and amount_of(amount) > amount_of(limit):
            what = f"{who}: {amount} {name} are requested, and no more than {limit} allowed: no pod is made of that"
            yield LintFinding("limits", (*place, "requests", name), what)
    ranks, threads, cpus = _ranks(container), _threads(container), amount_of(limits.get("cpu"))
    if threads > 1 and cpus and ranks * threads > cpus:
        what = f"{who}: {ranks} ranks of {threads} threads and {limits['cpu']} CPUs: they are throttled, and that looks"
        cure = "like the machine's figure (fewer threads, or more CPUs)"
        yield LintFinding("cpus", (*place, "limits", "cpu"), f"{what} {cure}")


def _ranks(container: Object) -> int:
    """Of its node, as torchrun is told."""
    words = " ".join(str(word) for key in ("command", "args") for word in _listed(container.get(key)))
    said = _RANKS.search(words)
    if said is None:
        return 1
    return int(said[1]) if said[1].isdecimal() else max(1, int(devices(container)))


def _threads(container: Object) -> int:
    """Of a rank, 0 where nobody says."""
    named = (one for one in _listed(container.get("env")) if isinstance(one, dict) and one.get("name") == _THREADS)
    return next((int(amount_of(one.get("value"))) for one in named), 0)


def _in_memory(container: Object, spec: Mapping[str, Any], path: TreePath) -> Iterator[LintFinding]:
    """Volumes in memory that may take more than the container has."""
    limit, name = _amounts(container, "limits").get("memory"), container.get("name")
    mounted = {one.get("name") for one in _listed(container.get("volumeMounts")) if isinstance(one, dict)}
    for volume, size in _memory(spec).items():
        if volume in mounted and amount_of(limit) and amount_of(size) > amount_of(limit):
            what = f"volume {volume} may take {size} of memory, and container {name} has {limit}: filled, it is killed"
            yield LintFinding("memory", (*path, "resources", "limits", "memory"), what)


def _amounts(container: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return _mapping(_mapping(container.get("resources")).get(kind))


def _extended(name: object) -> bool:
    """A resource that some plugin counts, and of which nobody gets more than he limits himself to."""
    return "/" in str(name) and "kubernetes.io/" not in str(name)


def _shared_memory(container: Object, spec: Mapping[str, Any]) -> bool:
    """Whether ranks have room to meet in memory: a volume of it, or the node's own."""
    memory = _memory(spec)
    mounts = [one for one in _listed(container.get("volumeMounts")) if isinstance(one, dict)]
    mounted = any(mount.get("mountPath") == "/dev/shm" and mount.get("name") in memory for mount in mounts)
    return mounted or spec.get("hostIPC") is True


def _memory(spec: Mapping[str, Any]) -> dict[object, object]:
    """Volumes in memory, and how large they may become."""
    volumes = [one for one in _listed(spec.get("volumes")) if isinstance(one, dict)]
    sources = {one.get("name"): _mapping(one.get("emptyDir")) for one in volumes}
    return {name: source.get("sizeLimit") for name, source in sources.items() if source.get("medium") == "Memory"}


def _image(container: Object, path: TreePath) -> Iterator[LintFinding]:
    image = container.get("image")
    if not isinstance(image, str) or open_yet(image) or "@sha256:" in image:
        return
    folder, _, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    if tag in ("", "latest"):
        which = f"has the tag {tag}, but no digest" if tag else "has neither tag nor digest"
        whole = f"{folder}/{name}" if folder else name
        what = f"image {image} {which}: tomorrow it is another one (write {whole}@sha256:…)"
        yield LintFinding("image", (*path, "image"), what)
    else:
        yield LintFinding(
            "digest", (*path, "image"), f"image {image} has no digest: its tag may move (write @sha256:…)"
        )


def _listed(value: object) -> Sequence[Any]:
    """The items of a list; none where something else stands, such as a hole that is still to be filled."""
    return value if isinstance(value, list) else ()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
