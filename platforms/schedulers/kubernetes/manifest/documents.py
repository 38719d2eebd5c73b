"""YAML files with several documents: read as kubectl reads them, with the line of every key, and written."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from platforms.config import yaml_lines
from platforms.config.yaml_lines import Lines, YamlMistake
from platforms.job import ConfigError
from platforms.schedulers.kubernetes.objects.pod_templates import TreePath

_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
# Other YAML parsers take some of these texts for a number or a boolean where PyYAML sees a text.
_AMBIGUOUS = re.compile(r"[-+]?\.?\d[\d_.:eE+-]*|0[xob][\da-fA-F_]*|[yYnN~=]")


@dataclass(frozen=True)
class YamlDocument:
    """One document of a file."""

    value: Any
    lines: Lines


# --- reading ---------------------------------------------------------------------------------------------------------


def read(text: str, where: str) -> list[YamlDocument]:
    """Read every document that is not empty. Raises ConfigError, `<where>:<line>: message`, for invalid YAML."""
    try:
        documents = yaml_lines.parse(text, _parse)
    except YamlMistake as mistake:
        raise ConfigError([f"{where}:{mistake.line}: {mistake.what}"]) from None
    return [YamlDocument(copy.deepcopy(document.value), document.lines) for document in documents]


@lru_cache(maxsize=256)  # many jobs share a template, and a rendered manifest is read several times
def _parse(text: str) -> tuple[YamlDocument, ...]:
    return tuple(_documents_in(text))


def _documents_in(text: str) -> Iterator[YamlDocument]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            lines = yaml_lines.lines_of(node)
            value = loader.construct_document(node)
            if value is not None:
                yield YamlDocument(value, lines)
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Reads YAML as the clients of Kubernetes do: dates and `1:30` are texts. A key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is given twice", key.start_mark)
                seen.add(key.value)
        mapping = super().construct_mapping(node, deep)
        for key in mapping:
            if not isinstance(key, str):
                problem = f"the key {key!r} is not text (quote it)"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return mapping


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_INT, _FLOAT, _TIMESTAMP)]
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


# --- writing ---------------------------------------------------------------------------------------------------------


def write(objects: Iterable[Mapping[str, Any]]) -> str:
    """Write objects as YAML. Equal objects give the same text, and `read` gives exactly the same objects back."""
    texts = []
    for tree in objects:
        text = yaml.dump(
            tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=math.inf
        )
        texts.append(text)
    return "---\n".join(texts)


class _Dumper(yaml.SafeDumper):
    """Writes YAML without anchors, scripts of several lines as blocks, and ambiguous texts in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if any(not letter.isprintable() and letter != "\n" for letter in text):
        style = '"'
    elif "\n" in text:
        fits_block = not text.startswith((" ", "\n")) and not re.search(r" \n| \Z", text)
        style = "|" if fits_block else '"'
    elif _AMBIGUOUS.fullmatch(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


# --- plain values ----------------------------------------------------------------------------------------------------


def plain(value: object, where: str, path: TreePath = ()) -> Any:
    """Copy a value into dicts, lists and the scalars of JSON. Raises ConfigError for what no manifest can hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(str(value), where, path)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError([f"{where}: {printable_path(path)}: the key {key!r} is not text"])
        return {_plain_text(str(key), where, path): plain(child, where, (*path, key)) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child, where, (*path, index)) for index, child in enumerate(value)]
    raise ConfigError([f"{where}: {printable_path(path)}: a manifest cannot hold {value!r}"])


def printable_path(path: TreePath) -> str:
    """Write a path as people do: `spec.containers[0].image`, `metadata.labels[hpc-ml-bench/run]`."""
    text = ""
    for part in path:
        is_word = isinstance(part, str) and part.isidentifier()
        text += f".{part}" if is_word else f"[{part}]"
    return text.lstrip(".") or "the object"


def _plain_text(text: str, where: str, path: TreePath) -> str:
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        problem = f"{text!r} is not text that a cluster accepts (NUL, or not Unicode)"
        raise ConfigError([f"{where}: {printable_path(path)}: {problem}"])
    return text
