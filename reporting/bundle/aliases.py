"""Puts aliases in place of the names that say whose runs these are: `node-01`, `user-1`, `/path-1`.

The same name has the same alias everywhere in a bundle. Numbers, versions and names of devices are not touched. What
KnownNames has collected is found wherever it stands; addresses, URLs and absolute paths are found by their form. Values
of secrets are replaced by `(hidden)`, whatever else is asked.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from platforms.job import names_a_secret
from reporting.bundle.identifying import COMMON, HOST, IMAGE, KINDS, PATH, USER, KnownNames, kind_of

HIDDEN = "(hidden)"
SEARCHED_INSIDE = 5  # a name with so many letters is found inside of longer words, too
# Keys whose values may look like addresses (570.86.10.1) and are versions.
VERSIONS = frozenset(
    (
        "versions",
        "driver",
        "kernel",
        "transforms",
        "decoder",
        "commit",
        "code",
        "python",
        "torch",
        "numpy",
        "cuda",
        "nccl",
        "rccl",
    )
)
PUBLIC = (
    "nvidia.com", "amd.com", "intel.com", "graphcore.ai", "cerebras.net", "k8s.io", "kubernetes.io", "kubeflow.org",
    "pytorch.org", "python.org", "mlcommons.org", "docker.io", "nvcr.io", "quay.io",
)  # fmt: skip
_PUBLIC_IMAGE = re.compile(r"(nvcr\.io/nvidia/|docker\.io/library/|docker\.io/pytorch/|pytorch/|rocm/|python:)")
_KEPT_PATH = re.compile(r"/(?:usr|bin|sbin|lib|lib64|etc|proc|sys|dev)(?:/|$)|/tmp/?$")
_OUR_FILE = re.compile(
    r"models-[0-9a-f]{12}\.pyz|(?:run|submitted)\.json|job\.sh|manifest\.yaml|log|exit|work|python3?(?:\.\d+)?"
    r"|torchrun|steps-rank\d+\.csv(?:\.gz)?|(?:resnet50|cosmoflow|deepcam)-(?:smoke|quick|subset|full)"
)
_REST_OF_PATH = r"[^\s\"'`\\:;,()\[\]{}<>|&]"
_FORMS: Mapping[str, str] = MappingProxyType(
    {
        "url": r"\b[a-z][a-z0-9+.-]*://(?:\(hidden\)@)?[^\s\"'`<>|,;)\]}]+",
        "address_at": r"(?<![\w.%+-])[^\W\d][\w.+-]*@(?!sha256)[^\W\d_][\w-]*(?:\.[\w-]+)*",
        "id": r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b",
        "mac": r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])",
        "ipv6": r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:\d+(?:\.\d+){3}|[0-9A-Fa-f]{0,4})(?:%\w+)?(?![\w:])",
        "ipv4": r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)",
        "path": rf"(?<![\w.~$}}<*/)-])(?:~[\w.-]*)?/[\w.+@%=-]{_REST_OF_PATH}*|(?<![\w/.~)])~[^\W\d][\w.-]*",
        "domain": r"(?<![\w.@/-])(?:[A-Za-z0-9][\w-]*\.)+(?:edu|gov|mil|org|com|net|int|local|internal|lan|ac\.uk|"
        r"uk|de|ch|fr|it|es|fi|se|no|nl|be|at|cz|pl|eu|us|ca|au|jp|cn|kr|in|br)(?![\w-]|\.\w)",
    }
)
_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:gh[pousr]_|glpat-|hf_|xox[abp]-)[\w-]{16,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)|(?<=[Bb]earer )[\w.~+/-]{8,}",
    re.DOTALL,
)
_ASSIGNED = re.compile(
    r"(?:(?<![\w.-])([A-Za-z][\w.-]*)(\"?[ \t]*[=:][ \t]*)|(?<=--)([A-Za-z][\w-]*)(=|[ \t]+))"
    r"(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;\[{][^\s\"',;]*)"
)
_NAMED_IN_YAML = re.compile(r"(\bname: *[\"']?([\w-]+)[\"']?(?:, *|\n *)value: *)(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',}]+)")


class Aliases:
    """Replaces names. The number of an alias follows the order in which the names are met.

    Args:
        known: the names to search.
        identify: replace nothing but the values of secrets.

    Attributes:
        places: how often each kind of thing was replaced.
    """

    def __init__(self, known: KnownNames, *, identify: bool = False) -> None:
        self._known = known
        self._identify = identify
        self._given: dict[str, dict[str, str]] = {}  # by kind: the alias of each name
        self.places: Counter[str] = Counter()
        self._kind_of = {name.lower(): kind for kind, names in known.names.items() for name in names}
        names = "|".join(_names_patterns(known)) or r"(?!)"
        images = "|".join(map(re.escape, sorted(known.names.get(IMAGE, ()), key=len, reverse=True))) or r"(?!)"
        literal = "|".join(map(re.escape, sorted(known.literal, key=len, reverse=True))) or r"(?!)"
        paths = "|".join(_path_patterns(known)) or r"(?!)"
        forms = "|".join(f"(?P<{name}>{form})" for name, form in _FORMS.items())
        self._names = re.compile(f"(?P<name>{names})", re.IGNORECASE)
        self._all = re.compile(
            f"(?P<literal>{literal})|(?P<known_path>{paths})|(?P<image>{images})|{forms}|(?P<name>(?i:{names}))"
        )
        self._original_of_path = dict(_path_variants(known))

    def counts(self) -> dict[str, tuple[int, int]]:
        """How many names of each kind were replaced, and in how many places."""
        return {kind: (len(self._given.get(kind, {})), places) for kind, places in sorted(self.places.items())}

    def text(self, text: str, *, versions: bool = False, only_known: bool = False) -> str:
        """The text with aliases.

        Args:
            versions: it is a version, so what looks like an address is none.
            only_known: replace nothing by its form.
        """
        text = self._without_secrets(text)
        if self._identify:
            return text
        if only_known:
            return self._names.sub(self._name, text)

        def replacement(match: re.Match[str]) -> str:
            form = str(match.lastgroup)
            if versions and form in ("ipv4", "ipv6", "domain", "address_at"):
                return match[0]
            return self._replacement(form, match)

        return self._all.sub(replacement, text)

    def content(self, value: Any, key: str = "", *, versions: bool = False) -> Any:
        """A value of JSON with aliases in its texts; numbers stay. `key`: the one under which it stands."""
        versions = versions or key in VERSIONS
        if isinstance(value, Mapping):
            if names_a_secret(str(value.get("name") or "")) and isinstance(value.get("value"), str):
                value = {**value, "value": self._hide()}
            return {
                self._key(str(name)): self.content(each, str(name), versions=versions) for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return self._items(value, key, versions)
        if not isinstance(value, str):
            return value
        if names_a_secret(key) and value not in ("", HIDDEN):
            return self._hide()
        if self._identify:
            return self.text(value)
        if value in self._known.literal:
            return self.text(value, only_known=True)
        kind = kind_of(key)
        if kind is not None and value and (self._known.is_word(value) or value.lower() in self._kind_of):
            if value.lower() in ("auto", "none", "all", "default"):
                return value
            kind = self._kind_of.get(value.lower(), kind)
            return self._host(value) if kind == HOST else self._alias(kind, value)
        return self.text(value, versions=versions)

    def _items(self, values: Sequence[Any], key: str, versions: bool) -> list[Any]:
        """The items of a list, as of a command line, where the word after `--token` is a secret."""
        found = []
        before: object = ""
        for item in values:
            found.append(self._hide() if _is_option_of_secret(before) else self.content(item, key, versions=versions))
            before = item
        return found

    def script(self, text: str) -> str:
        """A job's script or manifest with aliases: also where a name of COMMON stands in its own place."""
        if self._identify:
            return self.text(text)

        def in_place(match: re.Match[str]) -> str:
            head, quoted, value = match[1], match[3], match[4]
            if not self._known.is_word(value) or value.lower() in ("auto", "none", "all"):
                return match[0]
            return f"{head}{quoted}{self._alias(KINDS[match[2]], value)}{quoted}"

        text = re.sub(r"(?m)^(#SBATCH\s+--comment[= ]).*$", r"\1(comment)", text)  # any words of a person
        keys = "|".join(re.escape(key) for key in KINDS if key not in ("nodes", "uid", "image", "context"))
        text = re.sub(
            rf"(?m)^((?:#SBATCH\s+--|\s*(?:- )?)({keys})(?:=|:\s*))(['\"]?)([\w.-]+)\3[ \t]*$", in_place, text
        )
        return self.text(text)

    # --- what is replaced by what ---

    def _key(self, key: str) -> str:
        is_ours = set(re.findall(r"[a-z]+", key.lower())) <= self._known.words and "/" not in key and "@" not in key
        if is_ours and self._names.search(key) is None:
            return key
        return self.text(key)

    def _replacement(self, form: str, match: re.Match[str]) -> str:
        text = match[0]
        if form == "literal":
            return self._names.sub(self._name, text)
        if form == "name":
            return self._name(match)
        if form == "known_path":
            return self._path(self._original(text))
        if form == "path":
            stripped = text.rstrip(".")
            return self._path(stripped) + text[len(stripped) :]
        if form == "url":
            return self._url(text)
        if form == "address_at":
            user, _, host = text.partition("@")
            return f"{self._alias(USER, user)}@{self._host(host)}"
        if form in ("ipv4", "ipv6"):
            return self._address(text)
        if form == "domain":
            return self._host(text)
        return self._alias("address" if form == "mac" else form, text)

    def _name(self, match: re.Match[str]) -> str:
        text = match[0]
        kind = self._kind_of.get(text.lower())
        if kind == HOST or kind is None:
            return self._host(text)
        return self._alias(kind, text)

    def _host(self, text: str) -> str:
        """The alias of a node or another machine. A name with its domain has the alias of the name without it."""
        lowered = text.lower()
        if any(lowered == public or lowered.endswith(f".{public}") for public in PUBLIC):
            return text
        if lowered in ("localhost", "localhost.localdomain"):
            return text
        short = lowered.partition(".")[0]
        return self._alias(HOST, short if short in self._kind_of else lowered)

    def _path(self, text: str) -> str:
        if _KEPT_PATH.match(text):
            return self._names.sub(self._name, text)
        folder, _, last = text.rstrip("/").rpartition("/")
        if _OUR_FILE.fullmatch(last) and folder.strip("/~"):
            return f"{self._path(folder)}/{last}"
        return self._alias(PATH, text.rstrip("/") or text)

    def _url(self, text: str) -> str:
        scheme, _, rest = text.partition("://")
        host = rest.partition("/")[0].rpartition("@")[2].partition(":")[0]
        if self._host(host) == host and rest.count("/") <= 1 and self._names.search(text) is None:
            return text
        if scheme == "file":
            return f"file://{self._path(rest)}"
        return f"{scheme}://{self._alias('url', text)}"

    def _address(self, text: str) -> str:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified:
            return text
        return self._alias("address", str(address))

    def _original(self, text: str) -> str:
        """The path that is meant by a known path as it is written here, quoted or escaped, and what follows it."""
        for length in range(len(text), 0, -1):
            if text[:length] in self._original_of_path:
                return self._original_of_path[text[:length]] + text[length:]
        return text

    def _alias(self, kind: str, name: str) -> str:
        names = self._given.setdefault(kind, {})
        if kind in (HOST, USER):
            name = name.lower()
        if kind == IMAGE and _PUBLIC_IMAGE.match(name):
            return name
        if name not in names:
            number = len(names) + 1
            tag = re.search(r":[\w.-]+$", name) if kind == IMAGE else None
            texts = {
                HOST: f"node-{number:02}",
                PATH: f"/path-{number}",
                IMAGE: f"image-{number}{tag[0] if tag else ''}",
            }
            names[name] = texts.get(kind, f"{kind}-{number}")
        self.places[kind] += 1
        return names[name]

    # --- secrets ---

    def _without_secrets(self, text: str) -> str:
        text = _SECRETS.sub(lambda match: self._hide(), text)

        def assigned(match: re.Match[str]) -> str:
            name, between, value = match[1] or match[3], match[2] or match[4], match[5]
            if not names_a_secret(name) or value.strip("\"'") in ("", HIDDEN):
                return match[0]
            return f"{name}{between}{self._hide()}"

        def in_yaml(match: re.Match[str]) -> str:
            is_secret = names_a_secret(match[2]) and match[3] != HIDDEN
            return f"{match[1]}{self._hide()}" if is_secret else match[0]

        return _ASSIGNED.sub(assigned, _NAMED_IN_YAML.sub(in_yaml, text))

    def _hide(self) -> str:
        self.places["secret"] += 1
        return HIDDEN


def _is_option_of_secret(word: object) -> bool:
    return isinstance(word, str) and word.startswith("-") and "=" not in word and names_a_secret(word.lstrip("-"))


def _names_patterns(known: KnownNames) -> Iterator[str]:
    """A pattern for each known name that is no path, the longest first, and for lists and siblings of known nodes."""
    names = {name: kind for kind, of_kind in known.names.items() if kind != PATH for name in of_kind}
    for name in sorted(names, key=lambda name: (-len(name), name)):
        if known.is_word(name):
            continue
        variants = dict.fromkeys((name, *_in_json(name), quote(name)))
        for variant in variants:
            before, after = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
            if len(name) >= SEARCHED_INSIDE and not any(name.lower() in word for word in known.words):
                before = r"(?<!\d)" if name[0].isdigit() else ""
                after = r"(?!\d)" if name[-1].isdigit() else ""
            yield before + re.escape(variant) + after
    for prefix, digits in dict.fromkeys(_numbered(known)):
        yield rf"(?<![A-Za-z0-9]){re.escape(prefix)}(?:\[[\d,-]+\]|\d{{{digits}}})(?![A-Za-z0-9])"


def _numbered(known: KnownNames) -> Iterator[tuple[str, int]]:
    """What stands before the number of known nodes, and its digits: `nid`, 6."""
    for name in known.names.get(HOST, ()):
        match = re.fullmatch(r"(.*[A-Za-z][A-Za-z_-]*[A-Za-z_-])(\d+)", name)
        if match and match[1].lower().strip("-_") not in known.words | COMMON:
            yield match[1], len(match[2])


def _path_variants(known: KnownNames) -> Iterator[tuple[str, str]]:
    """Each known path in each way in which it may be written: as it is, in JSON, in a shell's quotes, in a URL."""
    for path in known.names.get(PATH, ()):
        in_shell = shlex.quote(path).strip("'")
        for variant in (path, *_in_json(path), in_shell, quote(path)):
            yield variant, path


def _in_json(name: str) -> tuple[str, str]:
    """How JSON writes a name, with and without letters beyond ASCII."""
    return json.dumps(name)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1]


def _path_patterns(known: KnownNames) -> Iterator[str]:
    for variant in sorted(dict(_path_variants(known)), key=lambda path: (-len(path), path)):
        yield rf"(?<![\w]){re.escape(variant)}(?:/{_REST_OF_PATH}*|(?![\w-]))"
