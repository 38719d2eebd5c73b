"""Reads YAML with the line of every key, and without YAML's guesses: what the user wrote is what is read.

YAML 1.1 turns `1:30` into 90, `on` into true, `007` into 7 and a second key of the same name into the only one. Here a
plain scalar is null (`null`, `~`, nothing), true, false or a plain decimal number, and everything else is text.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml

Parsed = TypeVar("Parsed")
Loc = tuple[str | int, ...]

# libyaml is ten times as fast. It is not installed everywhere, and crashes on deep nesting, which small files lack.
_FAST: type = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_FAST_CHARACTERS = 8192
_STANDARD_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)")
_MOST_BYTES = 1 << 20
_MOST_NODES = 50_000  # aliases of aliases can make a small file's values enormous


class Int(int):
    """A whole number that remembers how it was written, for keys that want text."""

    text: str


class Float(float):
    """A number that remembers how it was written: `3.10` is Python 3.10 where a key wants text."""

    text: str


class YamlMistake(Exception):
    """Something is wrong with a text: in which line, and what."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what


class Lines(dict[Loc, int]):
    """The line of each key and item of a YAML document, by the path that leads there."""

    def at(self, loc: Loc) -> int:
        """Return the line of what stands at `loc`, or of the nearest thing above it that exists."""
        while loc and loc not in self:
            loc = loc[:-1]
        return self.get(loc, 1)


@dataclass
class Document:
    """One file: its mapping (None when it cannot be used), the line of every key, and what is wrong with it.

    `substituted` holds the values that `substitute` changed, as they were written. Their new text is the site's, and no
    message quotes it.
    """

    path: Path
    value: dict[str, object] | None = None
    lines: Lines = field(default_factory=Lines)
    substituted: dict[Loc, str] = field(default_factory=dict)
    empty: bool = False
    complaints: list[tuple[int, str]] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Every problem, in order of lines: `path:line: key: what`."""
        complaints = sorted(dict.fromkeys(self.complaints), key=lambda complaint: complaint[0])
        return [f"{self.path}:{line}: {what}" for line, what in complaints]

    def complain(self, loc: Loc, what: str, line: int | None = None) -> None:
        """Add a problem of the key at `loc`; `line` if it is not the key's own line."""
        key = key_path(loc)
        self.complaints.append((line or self.lines.at(loc), f"{key}: {what}" if key else what))


def key_path(loc: Loc) -> str:
    """Format `("layouts", "default", 0)` as people write it: `layouts.default[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def scalar(text: str) -> object:
    """Return the meaning of a plain scalar: None, bool, Int, Float or the text itself."""
    if text in ("", "~", "null"):
        return None
    if text in ("true", "false"):
        return text == "true"
    number: Int | Float
    if _INT.fullmatch(text):
        number = Int(text)
    elif _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        number = Float(text)
    else:
        return text
    number.text = text
    return number


def read(path: Path, substitute: Callable[[str], str] = str) -> Document:
    """Read one file; `substitute` is applied to every value before it is understood. Raises nothing: see `problems`."""
    document = Document(path)
    try:
        root, document.lines = parse(text_of(path), _compose)
    except YamlMistake as mistake:
        document.complain((), mistake.what, mistake.line)
        return document
    if root is None or (isinstance(root, yaml.ScalarNode) and root.style in (None, "") and scalar(root.value) is None):
        document.empty = True
        document.complain((), "the file is empty (write `key: value` lines, or delete it)")
    elif not isinstance(root, yaml.MappingNode):
        document.complain((), "this is no mapping (write `key: value` lines)", root.start_mark.line + 1)
    else:
        try:
            document.value = _Builder(document, substitute).mapping(root, ())
        except RecursionError:
            document.complain((), "nested too deeply")
    return document


def text_of(path: Path) -> str:
    """Read a file of YAML as text. Raises YamlMistake if it cannot be read, is too large, or is not UTF-8."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise YamlMistake(1, f"cannot be read: {error.strerror or error}") from None
    if len(data) > _MOST_BYTES:
        raise YamlMistake(1, f"{len(data):,} bytes are too many for a file of YAML")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlMistake(line, f"byte 0x{data[error.start]:02x} is not UTF-8 (save the file as UTF-8)") from None


def parse(text: str, parser: Callable[[str], Parsed]) -> Parsed:
    """Let `parser`, which uses PyYAML, read a text. Raises YamlMistake in place of all that PyYAML raises."""
    forbidden = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if forbidden:
        line = text.count("\n", 0, forbidden.start()) + 1
        raise YamlMistake(line, f"a control character (U+{ord(forbidden[0]):04X}), which YAML forbids")
    try:
        return parser(text)
    except yaml.MarkedYAMLError as error:
        raise _explained(error, text) from None
    except RecursionError:
        raise YamlMistake(1, "nested too deeply, or an alias (`*name`) that contains itself") from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlMistake(1, f"not YAML: {error}") from None


def _explained(error: yaml.MarkedYAMLError, text: str) -> YamlMistake:
    begun = error.context_mark
    mark = error.problem_mark or begun
    problem = ", ".join(filter(None, [error.context, error.problem]))
    if mark is None:
        return YamlMistake(1, f"not YAML: {problem}")
    lines = [*text.splitlines(), ""]
    line = lines[min(mark.line, len(lines) - 1)]
    character = line[mark.column : mark.column + 1]
    if character == "\t":
        return YamlMistake(mark.line + 1, "a tab where YAML wants spaces (indent with spaces)")
    hint = ""
    is_flow = str(error.context).startswith("while parsing a flow")
    if is_flow and "${" in line:
        hint = ' (inside of { } and [ ] a text with braces needs quotes: "${…}")'
    elif "mapping values are not allowed" in problem:
        hint = " (quote a text that contains `: `, and check the indentation)"
    elif "cannot start any token" in problem:
        hint = f" (quote a text that begins with `{character}`)"
    elif "another document" in problem:
        hint = " (one file is one platform: remove the `---`)"
    elif begun and "could not find expected ':'" in problem:  # PyYAML notices it a line later
        mark = begun
        start = lines[mark.line].strip()[:40]
        problem = f"a key ends with a colon, and {start!r} does not (write `{start.rstrip('.,;= ')}:`)"
    elif begun and begun.line < mark.line and (is_flow or "unexpected end of stream" in problem):
        mark = begun
        problem = f"opened here and not closed: {problem}"
    return YamlMistake(mark.line + 1, f"not YAML: {problem}{hint}")


def _compose(text: str) -> tuple[yaml.Node | None, Lines]:
    root = yaml.compose(text, _FAST if len(text) <= _FAST_CHARACTERS else yaml.BaseLoader)
    if root is None:
        return None, Lines()
    return root, lines_of(root)


def lines_of(root: yaml.Node) -> Lines:
    """Return the lines of a document.

    Raises YAMLError, RecursionError for aliases that make it enormous or endless.
    """
    lines = Lines()
    visits = itertools.count()

    def visit(node: yaml.Node, loc: Loc) -> None:
        if next(visits) > _MOST_NODES:
            raise yaml.YAMLError("far too many values, or aliases (`*name`) of aliases")
        lines.setdefault(loc, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            for key, child in node.value:
                here = (*loc, str(key.value))
                lines.setdefault(here, key.start_mark.line + 1)
                visit(child, here)
        elif isinstance(node, yaml.SequenceNode):
            for index, child in enumerate(node.value):
                visit(child, (*loc, index))

    visit(root, ())
    return lines


@dataclass
class _Builder:
    """Turns YAML nodes into plain values, noting problems in the document."""

    document: Document
    substitute: Callable[[str], str]

    def value(self, node: yaml.Node, loc: Loc) -> object:
        if node.tag not in _STANDARD_TAGS:
            self.document.complain(loc, f"tags such as {node.tag} are not used here (remove it; quote what is text)")
        if isinstance(node, yaml.ScalarNode):
            text = self.substitute(node.value)
            if text != node.value:
                self.document.substituted[loc] = node.value
            return scalar(text) if node.style in (None, "") else text
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, loc)
        values = []
        for index, child in enumerate(node.value):
            values.append(self.value(child, (*loc, index)))
        return values

    def mapping(self, node: yaml.Node, loc: Loc) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, child in node.value:
            line = key.start_mark.line + 1
            here = (*loc, str(key.value))
            if not isinstance(key, yaml.ScalarNode) or key.tag not in _STANDARD_TAGS:
                self.document.complain(loc, "a key must be one word", line)
            elif key.value == "<<":
                self.document.complain(here, "merging is not used here (write the keys out)", line)
            elif key.value in values:
                first = self.document.lines[here]
                self.document.complain(here, f"written twice, first in line {first} (keep one of them)", line)
            else:
                values[key.value] = self.value(child, here)
        return values
