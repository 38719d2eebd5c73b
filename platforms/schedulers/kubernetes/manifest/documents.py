"""YAML files of several objects: read as kubectl reads them, with the line of every key, and written to the letter."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from platforms.job import ConfigError
from platforms.schedulers.kubernetes.objects.pod_templates import TreePath

_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_TIME = "tag:yaml.org,2002:timestamp"
_MOST_NODES = 50_000  # aliases of aliases can make a small file enormous
# A reader of another YAML would take some of these for a number or a boolean where PyYAML sees a text.
_AMBIGUOUS = re.compile(r"[-+]?\.?\d[\d_.:eE+-]*|0[xob][\da-fA-F_]*|[yYnN~=]")


@dataclass(frozen=True)
class YamlDocument:
    """One of a file's documents, and the line of each of its keys and items by the path that leads there."""

    value: Any
    lines: Mapping[TreePath, int]

    def line(self, path: TreePath) -> int:
        """The line of what stands at `path`, or of the nearest thing above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _Loader(yaml.SafeLoader):
    """YAML as the clients of Kubernetes read it: dates and `1:30` are texts. A key that stands twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} stands twice", key.start_mark)
                seen.add(key.value)
        mapping = super().construct_mapping(node, deep)
        if wrong := [key for key in mapping if not isinstance(key, str)]:
            what = f"the key {wrong[0]!r} is no text (quote it)"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        return mapping


class _Dumper(yaml.SafeDumper):
    """Without anchors, scripts in many lines as blocks, and quotes around what might be read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def read(text: str, where: str) -> list[YamlDocument]:
    """Every document that is not empty. Raises ConfigError, `<where>:<line>: …`, for what is no YAML."""
    forbidden = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if forbidden:
        line = text.count("\n", 0, forbidden.start()) + 1
        raise ConfigError([f"{where}:{line}: a control character (U+{ord(forbidden[0]):04X}), which YAML forbids"])
    try:
        return [YamlDocument(copy.deepcopy(each.value), each.lines) for each in _parsed(text)]
    except yaml.MarkedYAMLError as error:
        line, what = _syntax(error, text)
        raise ConfigError([f"{where}:{line}: not YAML: {what}"]) from None
    except RecursionError:
        raise ConfigError([f"{where}:1: nested too deeply, or an alias (`*name`) that contains itself"]) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError([f"{where}:1: not YAML: {error}"]) from None


def _syntax(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    """The line of a mistake, and what it is."""
    mark = error.problem_mark or error.context_mark
    what = ", ".join(filter(None, [error.context, error.problem]))
    if error.context_mark and "could not find expected ':'" in what:  # noticed a line later
        mark = error.context_mark
        words = text.splitlines()[mark.line].strip()[:40]
        what = f"a key ends with a colon, and {words!r} does not (write `{words.rstrip('.,;= ')}:`)"
    elif error.context_mark and mark and _unclosed(what) and error.context_mark.line < mark.line:
        what = f"opened here and not closed: {what}"
        mark = error.context_mark
    elif "flow" in what and "${" in text:
        what += ' (quote a hole inside brackets: "${…}")'
    return mark.line + 1 if mark else 1, what


def _unclosed(what: str) -> bool:
    """Whether a bracket or a quote has no end: it is noticed where something else stands instead."""
    return "flow" in what or "unexpected end of stream" in what


def write(objects: Iterable[Mapping[str, Any]]) -> str:
    """The same objects give the same text, and `read` gives exactly them back."""
    return "---\n".join(
        yaml.dump(each, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=math.inf)
        for each in objects
    )


def plain(value: object, where: str, path: TreePath = ()) -> Any:
    """A copy made of dicts, lists and JSON's own scalars. Raises ConfigError for what no manifest can hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(str(value), where, path)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ConfigError([f"{where}: {shown(path)}: the key {wrong[0]!r} is no text"])
        return {_text(str(key), where, path): plain(each, where, (*path, key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, where, (*path, index)) for index, each in enumerate(value)]
    raise ConfigError([f"{where}: {shown(path)}: {value!r} is nothing that a manifest can hold"])


def shown(path: TreePath) -> str:
    """A path as people write it: `spec.containers[0].image`, `metadata.labels[hpc-ml-bench/run]`."""
    parts = [f".{part}" if isinstance(part, str) and part.isidentifier() else f"[{part}]" for part in path]
    return "".join(parts).lstrip(".") or "the object"


def _text(text: str, where: str, path: TreePath) -> str:
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ConfigError([f"{where}: {shown(path)}: {text!r} is no text that a cluster takes (NUL, or no Unicode)"])
    return text


@lru_cache(maxsize=256)  # a template serves many jobs, and a manifest is read again at each step of its way
def _parsed(text: str) -> tuple[YamlDocument, ...]:
    return tuple(_documents(text))


def _documents(text: str) -> Iterator[YamlDocument]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            lines: dict[TreePath, int] = {}
            _note(node, (), lines)
            value = loader.construct_document(node)
            if value is not None:
                yield YamlDocument(value, lines)
    finally:
        loader.dispose()


def _note(node: yaml.Node, path: TreePath, lines: dict[TreePath, int]) -> None:
    """The lines of a node's children, by path."""
    lines.setdefault(path, node.start_mark.line + 1)
    if len(lines) > _MOST_NODES:
        raise yaml.YAMLError("far too many aliases, or things")
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            here = (*path, str(key.value))
            lines[here] = key.start_mark.line + 1
            _note(child, here, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _note(child, (*path, index), lines)


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if any(not letter.isprintable() and letter != "\n" for letter in text):
        style = '"'
    elif "\n" in text:
        block = not text.startswith((" ", "\n")) and not re.search(r" \n| \Z", text)
        style = "|" if block else '"'
    elif _AMBIGUOUS.fullmatch(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_INT, _FLOAT, _TIME)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _INT, re.compile(r"^[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]*|[1-9][0-9_]*)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    list("-+.0123456789"),
)
