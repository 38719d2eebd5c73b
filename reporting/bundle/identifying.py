"""Which names in the evidence of runs say whose they are, or where they ran: collected before anything is replaced.

A name is known because it stands in a place that holds such names: `nodes` of a run.json, `#SBATCH --account=`, the
folder behind `/home/`. Once it is known, it is found everywhere else, too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import yaml

from platforms.nodes import node_names

HOST, USER, PATH, IMAGE = "node", "user", "path", "image"

# The keys of run.json, platforms' files and manifests, and sbatch's options, whose values are such names.
KINDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("host", "hostname", "nodes", "node", "avoid_nodes", "nodelist", "exclude", "nodeName"), HOST),
        **dict.fromkeys(("user", "users", "uid", "author", "mail-user", "mail_user", "USER", "LOGNAME"), USER),
        **dict.fromkeys(("account", "project", "wckey"), "account"),
        **dict.fromkeys(("partition", "qos", "reservation", "clusters"), "partition"),
        **dict.fromkeys(("namespace", "context", "serviceAccountName", "service_account", "queue"), "namespace"),
        **dict.fromkeys(("kueue.x-k8s.io/queue-name", "local_queue", "priorityClassName"), "namespace"),
        **dict.fromkeys(("claimName", "claim", "secretName", "pvc"), "volume"),
        **dict.fromkeys(("bucket",), "bucket"),
        **dict.fromkeys(("image", "container-image"), IMAGE),
        **dict.fromkeys(("imagePullSecrets",), "secret name"),
    }
)
THEIR_KEYS = frozenset({"env", "metrics", "labels", "annotations", "values", "throttled", "nodeSelector"})
"""Below these stand keys of a user's own, which are no words of ours."""
FREE_TEXT = frozenset({"reason", "error", "events", "warnings", "problems", "said", "unsupported"})
_ODD = re.compile(r"[^\w.+@%=/~-]")
_SHORT_OPTIONS = MappingProxyType({"A": "account", "p": "partition", "q": "qos", "w": "nodelist", "x": "exclude"})
_DIRECTIVE = re.compile(r"^#SBATCH\s+(?:--([\w-]+)|-(\w))(?:=|\s+)(.+?)\s*$", re.MULTILINE)
_PATH_BEGINS = re.compile(r"(?:~[\w.-]*)?/")
_HOME = re.compile(r"/(?:home|homes|users|people)/([^/]+)", re.IGNORECASE)
_SYSTEM = re.compile(r"/(?:usr|bin|sbin|lib|lib64|etc|proc|sys|dev|run|tmp)?/?")
# Names that everybody has, or that mean something else nearly everywhere they stand.
_COMMON = """
    root nobody user users admin ubuntu runner local localhost default standard normal main batch debug short long
    test train gpu cpu ipu gpus cpus cuda rocm node nodes none auto all any data work home job jobs log
"""
COMMON = frozenset(_COMMON.split())


def kind_of(key: str) -> str | None:
    """Of which kind the names below a key are; also of a label with a domain, as `centre.org/user`."""
    return KINDS.get(key) or KINDS.get(key.rpartition("/")[2])


@dataclass
class KnownNames:
    """The names that were found, by kind, in the order in which they were found.

    Attributes:
        names: of each kind, without those of COMMON: these are replaced only in the places that hold such names.
        literal: ids of tests, in which nothing but a known name is replaced, though they may look like an address.
        words: words that our own files, tests and devices have, as `a100`. A name that is one of them is replaced
            only in the places that hold such names.
    """

    names: dict[str, dict[str, None]] = field(default_factory=dict)
    literal: dict[str, None] = field(default_factory=dict)
    words: set[str] = field(default_factory=lambda: {"hpc", "ml", "bench", "benchmark", "models", "mllog", "hpcml"})

    def add(self, kind: str, value: object) -> None:
        """Take one name, or a list of nodes."""
        text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
        if not text or text.startswith(("$", "{", "(")) or text.lower() in COMMON or text.isdigit():
            return
        if text.startswith("/"):
            self.add_path(text)
            return
        if kind == HOST:
            self.add(USER, text.rpartition("@")[0])  # of ssh's user@host
            for name in _hosts(text):
                self._add(HOST, name)
        elif kind == USER and "@" in text:  # an address: the pattern of addresses finds it
            self._add(USER, text.partition("@")[0])
        else:
            self._add(kind, text)

    def add_path(self, text: str) -> None:
        """Take an absolute path, and the user to whom its home folder belongs."""
        home = _HOME.search(text)
        if home:
            self.add(USER, home[1])
        if _SYSTEM.fullmatch(text) or not text.strip("/~ "):
            return
        self._add(PATH, text.rstrip("/"))
        parts = text.split("/")
        odd = [place for place, part in enumerate(parts) if _ODD.search(part)]
        if odd and odd[-1] > 1:  # a form of paths ends at a blank, so this folder must be known by itself
            self._add(PATH, "/".join(parts[: odd[-1] + 1]))

    def add_content(self, content: object, key: str = "") -> None:
        """Take what stands in a run.json, a platform's file or a manifest: by the names of the keys, and all paths."""
        if isinstance(content, Mapping):
            for name, value in content.items():
                if key not in THEIR_KEYS:
                    self.add_words(str(name))
                is_named_here = name == "name" and key in ("imagePullSecrets", "secretKeyRef")
                self.add_content(value, "imagePullSecrets" if is_named_here else str(name))
        elif isinstance(content, list | tuple):
            for value in content:
                self.add_content(value, key)
        elif isinstance(content, str):
            if kind_of(key) is not None:
                self.add(str(kind_of(key)), content)
            if key not in FREE_TEXT:
                for path in _paths_in(content):
                    self.add_path(path)

    def add_words(self, text: str) -> None:
        """Take the words of a text, such as the name of a device, as words of ours."""
        self.words.update(re.findall(r"[a-z0-9]+", text.lower()))

    def is_word(self, name: str) -> bool:
        """Whether a name may mean something else in a text, so that it is replaced in its own place only."""
        return len(name) < 2 or name.isdigit() or name.lower() in COMMON or name.lower() in self.words

    def add_script(self, script: str) -> None:
        """Take what stands in a job's script: sbatch's directives, and words that are paths."""
        for long, short, value in _DIRECTIVE.findall(script):
            name = long or _SHORT_OPTIONS.get(short, "")
            if name in KINDS and name != "nodes":  # sbatch's --nodes is a number
                for word in value.split(",") if KINDS[name] != HOST else [value]:
                    self.add(KINDS[name], word.strip("'\""))
        for line in script.splitlines():
            for word in _shell_words(line):
                for path in _paths_in(word):
                    self.add_path(path)

    def add_manifest(self, text: str) -> None:
        """Take what stands in a Kubernetes manifest."""
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError:
            return
        for document in documents:
            self.add_content(document)

    def _add(self, kind: str, text: str) -> None:
        self.names.setdefault(kind, {}).setdefault(text)


def _hosts(text: str) -> Iterable[str]:
    """The names in `n[01-03],n07` or `user@login.example.org`. A name with a domain is also known without it."""
    text = text.partition("@")[2] or text
    try:
        names = node_names(text)
    except ValueError:
        names = (text,)
    for name in names:
        short = name.partition(".")[0]
        yield name
        if short != name and not short.isdigit() and short.lower() not in COMMON:
            yield short


def _shell_words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=False)
    except ValueError:  # a quote that ends in another line
        return line.split()


def _paths_in(text: str) -> Iterator[str]:
    """The path that a text is, or that follows an option's `=`: `--data-dir=/data/set`."""
    name, equals, value = text.partition("=")
    if _PATH_BEGINS.match(text):
        yield text.partition("\n")[0]
    elif equals and _PATH_BEGINS.match(value) and " " not in name:
        yield value.partition("\n")[0]
